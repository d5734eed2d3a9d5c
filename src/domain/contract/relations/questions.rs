//! What questions may ask with, and what their answers are said to mean.

use std::time::Duration;

use crate::domain::contract::template::{Placeholder, TextTemplate};
use crate::domain::contract::{AbsentRule, Contract, EffectClass, HttpCall};

use super::{Found, plain_secrets};

/// One request that asks.
pub(super) struct Asked<'a> {
    /// Where it stands.
    pub(super) place: &'static [&'static str],
    /// What it asks with.
    pub(super) placeholders: Vec<&'a Placeholder>,
    headers: &'a [(String, TextTemplate)],
    timeout: Duration,
    /// A body that the method cannot carry.
    lost_body: bool,
}

const LOOKUP: &[&str] = &["downstream", "lookup", "http"];
const POLL: &[&str] = &["downstream", "poll", "http"];
const PRECONDITIONS: &[&str] = &["preconditions", "http"];
const POSTCONDITION: &[&str] = &["postcondition", "http"];
const POLICY: &[&str] = &["authorization", "http"];

/// Every request of the contract that asks.
pub(super) fn asked(contract: &Contract) -> Vec<Asked<'_>> {
    let lookup = contract.lookup().and_then(|lookup| lookup.http.as_ref());
    let poll = contract.poll().and_then(|poll| poll.http.as_ref());
    let policy = contract.authorization.as_ref().and_then(|a| a.http.as_ref());
    [
        lookup.map(|lookup| call(LOOKUP, &lookup.call)),
        poll.map(|poll| call(POLL, &poll.call)),
        contract.preconditions.as_ref().map(|check| call(PRECONDITIONS, &check.http)),
        contract.postcondition.as_ref().map(|check| call(POSTCONDITION, &check.http)),
        policy.map(|policy| Asked {
            place: POLICY,
            placeholders: policy.placeholders(),
            headers: &policy.headers,
            timeout: policy.timeout,
            lost_body: false,
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn call<'a>(place: &'static [&'static str], call: &'a HttpCall) -> Asked<'a> {
    Asked {
        place,
        placeholders: call.placeholders(),
        headers: &call.headers,
        timeout: call.timeout,
        lost_body: call.body.is_some() && !call.method.may_have_body(),
    }
}

pub(super) fn check(contract: &Contract, found: &mut Found) {
    for asked in asked(contract) {
        request(contract, &asked, found);
    }
    identities(contract, found);
    lookup(contract, found);
    poll(contract, found);
    for (name, check) in
        [("preconditions", &contract.preconditions), ("postcondition", &contract.postcondition)]
    {
        let Some(check) = check else { continue };
        statuses(
            &[name],
            &[("pass", &check.pass, Range::Said), ("fail", &check.fail, Range::Said)],
            found,
        );
        for (list, statuses) in [("pass", &check.pass), ("fail", &check.fail)] {
            found.when(
                statuses.is_empty(),
                &[name, list],
                "names no status: the check could have one outcome only",
            );
        }
    }
}

fn request(contract: &Contract, asked: &Asked<'_>, found: &mut Found) {
    let at = |inner| [asked.place, &[inner]].concat();
    found.when(asked.timeout.is_zero(), &at("timeout"), "must be longer than nothing");
    found.when(asked.lost_body, &at("body"), "GET and HEAD carry no body");
    plain_secrets(asked.place, asked.headers, found);
    let asks_with = |placeholder| asked.placeholders.contains(&&placeholder);
    let afterwards = [LOOKUP, POSTCONDITION].contains(&asked.place);
    found.when(
        asks_with(Placeholder::Receipt) && !afterwards,
        asked.place,
        "{receipt} is known to a look-up and to a postcondition only",
    );
    found.when(
        asks_with(Placeholder::Job) && !afterwards && asked.place != POLL,
        asked.place,
        "{job} is known to a poll, a look-up and a postcondition only",
    );
    found.when(
        asks_with(Placeholder::Job) && contract.poll().is_none(),
        asked.place,
        "{job} can never be known: without downstream.poll no provider owns a job",
    );
    found.when(
        asks_with(Placeholder::IdempotencyKey) && asked.place == POLICY,
        asked.place,
        "{idempotency_key} is the downstream's business; a policy decides about the operation",
    );
}

/// A question about one operation must say which.
fn identities(contract: &Contract, found: &mut Found) {
    for asked in asked(contract) {
        let named = asked.placeholders.iter().any(|p| match p {
            Placeholder::Argument(_)
            | Placeholder::IdempotencyKey
            | Placeholder::OperationId
            | Placeholder::Job
            | Placeholder::Receipt => true,
            Placeholder::Tenant | Placeholder::Environment => false,
        });
        found.when(
            asked.place == LOOKUP && !named,
            asked.place,
            "does not say which operation it asks about; it needs {idempotency_key}, {operation_id} or an argument",
        );
        found.when(
            asked.place == POLL && !asked.placeholders.contains(&&Placeholder::Job),
            asked.place,
            "does not say which job it asks about; it needs {job}",
        );
    }
}

fn lookup(contract: &Contract, found: &mut Found) {
    let Some(lookup) = contract.lookup() else { return };
    let place = &["downstream", "lookup"];
    found.when(
        !lookup.authoritative && lookup.when_absent == AbsentRule::Resend,
        &[place.as_slice(), &["absent"]].concat(),
        "resend needs authoritative: true: an absence that may be a cache's or a replica's opinion would be answered by a second effect",
    );
    unanswered(contract, lookup.http.is_none(), LOOKUP, found);
    let Some(http) = &lookup.http else { return };
    let lists = [("found", &http.found, Range::Success), ("absent", &http.absent, Range::Said)];
    statuses(LOOKUP, &lists, found);
    found.when(
        http.found.is_empty(),
        &[LOOKUP, &["found"]].concat(),
        "names no status: no effect could ever be found",
    );
}

fn poll(contract: &Contract, found: &mut Found) {
    let Some(poll) = contract.poll() else { return };
    unanswered(contract, poll.http.is_none(), POLL, found);
    let Some(http) = &poll.http else { return };
    let lists =
        [("applied", &http.applied, Range::Success), ("refused", &http.refused, Range::Said)];
    statuses(POLL, &lists, found);
    found.when(
        http.applied.is_empty(),
        &[POLL, &["applied"]].concat(),
        "names no status: no job could ever be done",
    );
    found.when(
        http.receipt.is_none() && contract.effect_class != EffectClass::Read,
        &[POLL, &["receipt"]].concat(),
        "is missing: without a receipt in the answer an effect is not proved",
    );
}

/// A tool that is all contract has no code that could answer.
fn unanswered(contract: &Contract, no_http: bool, place: &[&str], found: &mut Found) {
    found.when(
        no_http && contract.http().is_some(),
        place,
        "is missing: only a tool written in Rust can answer this without HTTP",
    );
}

/// What a status may be to mean anything.
#[derive(Clone, Copy)]
enum Range {
    /// 2xx
    Success,
    /// 2xx, or 4xx that speak of the target.
    Said,
}

/// Two lists that share no status, each of statuses that can mean something.
fn statuses(place: &[&str], lists: &[(&str, &Vec<u16>, Range); 2], found: &mut Found) {
    let [(first, of_first, _), _] = lists;
    for (list, statuses, range) in lists {
        for (index, status) in statuses.iter().enumerate() {
            let index_text = index.to_string();
            let at = [place, &[*list, &index_text]].concat();
            let problem = match (range, status) {
                (_, 401 | 403) => Some("tells of the deployment's credentials, not of the target"),
                (_, 408 | 425 | 429) => Some("asks to come again and tells nothing"),
                (Range::Success | Range::Said, 200..=299) | (Range::Said, 400..=499) => None,
                (Range::Success, 400..=499) => Some("is no success"),
                (_, _) => {
                    Some("is no answer about the target: interim, a redirect or a server's failure")
                }
            };
            if let Some(problem) = problem {
                found.when(true, &at, format!("{status} {problem}"));
            }
            let twice = statuses.iter().take(index).any(|other| other == status);
            let elsewhere = list != first && of_first.contains(status);
            found.when(
                twice || elsewhere,
                &at,
                format!("{status} stands twice; a status means one thing"),
            );
        }
    }
}
