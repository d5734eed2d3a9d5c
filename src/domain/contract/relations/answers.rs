//! What the downstream's answers are said to prove.

use crate::domain::contract::{Contract, EffectClass, HttpRequest, Method};

use super::Found;

pub(super) fn check(contract: &Contract, http: &HttpRequest, found: &mut Found) {
    for (list, statuses) in http.status_lists() {
        for (index, status) in statuses.iter().enumerate() {
            let place = ["downstream", "http", list, &index.to_string()];
            if let Some(message) = fault(list, *status) {
                found.when(true, &place, message);
            }
            if let Some(other) = earlier(http, list, index, *status) {
                let message = format!("{status} stands in {other} too; a status proves one thing");
                found.when(true, &place, message);
            }
        }
    }
    receipts(contract, http, found);
    jobs(contract, http, found);
}

/// Why a status cannot stand in a list.
fn fault(list: &str, status: u16) -> Option<String> {
    match (list, status) {
        (_, 401 | 403) => Some(format!(
            "{status} can stand in no list: it tells of the deployment's credentials, not of the operation, and is retried with the tool's breaker open"
        )),
        (_, 100..=199 | 300..=399) => Some(format!(
            "{status} can stand in no list: an interim answer or a redirect proves nothing"
        )),
        ("applied" | "accepted", 200..=299) | ("already" | "refused" | "not_now", 400..=499) => {
            None
        }
        ("applied" | "accepted", _) => {
            Some(format!("{status} is no success; only 2xx can stand here"))
        }
        ("refused" | "not_now", 200..=299) => {
            Some(format!("{status} is a success; it cannot mean that nothing was done"))
        }
        // What a 5xx proves, only the service's owner knows; the review asks.
        (_, _) => None,
    }
}

/// The list in which a status stood before.
fn earlier(http: &HttpRequest, list: &str, index: usize, status: u16) -> Option<&'static str> {
    for (name, statuses) in http.status_lists() {
        if name == list {
            return statuses.iter().take(index).any(|s| *s == status).then_some(name);
        }
        if statuses.contains(&status) {
            return Some(name);
        }
    }
    None
}

fn receipts(contract: &Contract, http: &HttpRequest, found: &mut Found) {
    let class = contract.effect_class;
    found.when(
        http.applied.is_empty() && http.accepted.is_empty(),
        &["downstream", "http", "applied"],
        "names no status: no answer could ever prove the effect",
    );
    found.when(
        !http.applied.is_empty() && http.receipt.is_none() && class != EffectClass::Read,
        &["downstream", "http", "receipt"],
        "is missing: without a receipt in the answer an effect is not proved",
    );
    found.when(
        http.method == Method::Head,
        &["downstream", "http", "method"],
        "HEAD answers have no body, so nothing could be kept as receipt or response",
    );
}

fn jobs(contract: &Contract, http: &HttpRequest, found: &mut Found) {
    if http.accepted.is_empty() {
        return;
    }
    let poll = contract.downstream.as_ref().and_then(|d| d.poll.as_ref());
    let message = "is missing, and http.accepted needs it: the job could never be followed";
    found.when(http.job.is_none(), &["downstream", "http", "job"], message);
    found.when(poll.is_none(), &["downstream", "poll"], message);
}
