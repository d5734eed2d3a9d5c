//! What answers each question: places of the contract, and oncebox's own mechanisms.

use std::time::Duration;

use crate::domain::canonical::NumberRule;
use crate::domain::contract::describe::{effect, fields};
use crate::domain::contract::{
    AbsentRule, Authorization, Contract, LateArrival, Recoverability, duration_text,
};
use crate::domain::pointer::Pointer;

use super::{Evidence, Origin, Question, gaps};

pub(super) fn of(contract: &Contract, question: Question, margin: Duration) -> Vec<Evidence> {
    let mut found = Found(Vec::new());
    match question {
        Question::Effect => what(contract, &mut found),
        Question::Identity => identity(contract, &mut found),
        Question::Sameness => sameness(contract, &mut found),
        Question::Claim => claim(&mut found),
        Question::Replay => replay(contract, &mut found),
        Question::InFlight => in_flight(contract, margin, &mut found),
        Question::Unknown => unknown(contract, &mut found),
        Question::Permission => permission(contract, &mut found),
        Question::Expiry => expiry(contract, margin, &mut found),
        Question::Tests => tests(contract, &mut found),
    }
    found.0
}

struct Found(Vec<Evidence>);

impl Found {
    fn here(&mut self, place: &[&str], text: impl Into<String>) {
        let tokens: Vec<String> = place.iter().map(ToString::to_string).collect();
        let origin = Origin::Contract(Pointer::from(tokens));
        self.0.push(Evidence { text: text.into(), origin });
    }

    fn ours(&mut self, documented: &'static str, tested: &'static str, text: impl Into<String>) {
        let origin = Origin::Oncebox { documented, tested };
        self.0.push(Evidence { text: text.into(), origin });
    }
}

fn what(contract: &Contract, found: &mut Found) {
    found.here(&["purpose"], contract.purpose.trim());
    found.here(
        &["effect_class"],
        format!("{}: {}", contract.effect_class.as_str(), effect(contract)),
    );
    if let Some(http) = contract.http() {
        let text = format!("{} {}", http.method.as_str(), http.url.shown());
        found.here(&["downstream", "http"], text);
    }
    if let Some(effects) = &contract.repeat_side_effects {
        let told = if effects.is_empty() { "none".to_owned() } else { effects.join(", ") };
        found.here(&["repeat_side_effects"], format!("a repetition would also cause: {told}"));
    }
}

fn identity(contract: &Contract, found: &mut Found) {
    let notes = &contract.operation_key;
    found.here(&["operation_key", "created_by"], format!("created by: {}", notes.created_by));
    found.here(&["operation_key", "reused_by"], format!("reused by: {}", notes.reused_by));
    found.here(
        &["operation_key", "new_key_when"],
        format!("a new one when: {}", notes.new_key_when),
    );
    found.ours(
        "src/domain/key.rs",
        "tests/it/submission/tenants.rs",
        "tenant:environment:workflow_id:step_id, given by the application; message ids, request ids and tool-call ids are never read for a decision",
    );
    if contract.twins.hold {
        found.here(
            &["twins"],
            match contract.twins.within {
                Duration::ZERO => "the same material arguments under a new key are held behind an unfinished operation".to_owned(),
                within => format!("the same material arguments under a new key are held behind an unfinished operation, and not sent if one was applied less than {} ago", duration_text(within)),
            },
        );
    }
}

fn sameness(contract: &Contract, found: &mut Found) {
    let rule = &contract.fingerprint;
    found.here(&["fingerprint", "fields"], fields(contract).join(", "));
    found.here(
        &["fingerprint", "numbers"],
        match rule.numbers {
            NumberRule::Exact => "numbers are the same by their digits",
            NumberRule::Numeric => "numbers are the same by their value",
        },
    );
    for (place, rules) in &rule.text {
        let rules: Vec<String> =
            rules.iter().map(|rule| format!("{rule:?}").to_lowercase()).collect();
        found.here(&["fingerprint", "text"], format!("{place} after {}", rules.join(", ")));
    }
    found.ours(
        "src/domain/fingerprint.rs",
        "tests/golden/fingerprints.json",
        "SHA-256 over canonical JSON of tool, version, tenant and these fields, computed anew at every claim",
    );
    found.ours(
        "docs/errors/operation_key_reused_with_different_request.md",
        "tests/it/submission/second_submission.rs",
        "another fingerprint under the same key is rejected, and nothing is done",
    );
}

fn claim(found: &mut Found) {
    found.ours(
        "migrations/0001_tables.sql",
        "tests/it/submission/waiting.rs",
        "unique constraint operations_one_per_key (tenant_id, operation_key): insert, on conflict nothing, then a plain read",
    );
    found.ours(
        "src/domain/claim.rs",
        "tests/it/consumer/fencing.rs",
        "one owner at a time under the record's row lock; claim_epoch fences the one before",
    );
    found.ours(
        "ARCHITECTURE.md",
        "tests/it/consumer/one_effect.rs",
        "however many copies reach however many workers: one effect a key",
    );
}

fn replay(contract: &Contract, found: &mut Found) {
    if let Some(http) = contract.http() {
        if let Some(receipt) = &http.receipt {
            found.here(
                &["downstream", "http", "receipt"],
                format!("effect_reference from {receipt} of the answer"),
            );
        }
        if !http.response.is_empty() {
            let kept: Vec<String> = http.response.iter().map(ToString::to_string).collect();
            found.here(
                &["downstream", "http", "response"],
                format!("of the answer only {}", kept.join(", ")),
            );
        }
    } else {
        found.here(&["downstream"], "the receipt and the response that the tool's own code gives");
    }
    found.ours(
        "src/domain/attempt.rs",
        "tests/it/consumer/settle_always.rs",
        "receipt up to 1 KiB, response up to 64 KiB; what cannot be kept is marked, and the status stands",
    );
}

fn in_flight(contract: &Contract, margin: Duration, found: &mut Found) {
    let timeout = contract.http().map(|http| duration_text(http.timeout));
    let timeout = timeout.map_or(String::new(), |text| format!(", an attempt at most {text}"));
    found.here(
        &["lease"],
        format!(
            "a claim holds for {}, less a margin of {}{timeout}",
            duration_text(contract.lease),
            duration_text(margin)
        ),
    );
    if let Some(poll) = contract.downstream.as_ref().and_then(|d| d.poll.as_ref()) {
        found.here(
            &["downstream", "poll"],
            format!(
                "a job at the service is asked for every {}, for {} at most, and never started a second time",
                duration_text(poll.every),
                duration_text(poll.give_up)
            ),
        );
    }
    found.ours(
        "src/domain/outcome.rs",
        "tests/it/submission/second_submission.rs",
        "a second caller is told in_flight, next_action poll; asking is `oncebox ops show` or the same submission again",
    );
    found.ours(
        "src/domain/lifecycle.rs",
        "tests/it/consumer/leases.rs",
        "an expired lease leads to recovery and not to another first send; the owner of each claim is in the trace",
    );
}

fn unknown(contract: &Contract, found: &mut Found) {
    match contract.recoverability() {
        Recoverability::Transactional => found.ours(
            "src/tool/transactional.rs",
            "tests/it/consumer/transactional.rs",
            "not expected: effect and settlement are one commit",
        ),
        Recoverability::ResendAlways => {
            found.here(&["effect_class"], "a lost answer is asked for again by sending again");
        }
        Recoverability::ResendWithin { window } => found.here(
            &["downstream", "idempotency"],
            format!(
                "the downstream recognises the key for {}; after that a lost answer is open",
                duration_text(window)
            ),
        ),
        Recoverability::None => {
            found.here(&["downstream"], "nothing is sent again after a lost answer without proof");
        }
    }
    if let Some(lookup) = contract.lookup() {
        let absent = match (lookup.authoritative, lookup.when_absent) {
            (false, AbsentRule::Resend | AbsentRule::Operator) => "not found proves nothing",
            (true, AbsentRule::Operator) => "absent goes to a person",
            (true, AbsentRule::Resend) => "absent is sent again",
        };
        found.here(
            &["downstream", "lookup"],
            match &lookup.http {
                Some(request) => format!(
                    "{} {}: found is {}, receipt {}; {absent}",
                    request.call.method.as_str(),
                    request.call.url.shown(),
                    statuses(&request.found),
                    request.receipt
                ),
                None => format!("the tool's own code is asked; {absent}"),
            },
        );
    }
    if let Some(owner) = &contract.owner {
        let within = owner.respond_within.map(|span| format!(" within {}", duration_text(span)));
        found.here(
            &["owner"],
            format!("{} reconciles{}", owner.reconciliation, within.unwrap_or_default()),
        );
    }
    found.ours(
        "docs/errors/no_proof.md",
        "tests/it/consumer/lost_response.rs",
        "a time-out is neither success nor failure; nothing is sent again without proof, and nobody is told to try again",
    );
}

fn permission(contract: &Contract, found: &mut Found) {
    if let Some(Authorization { grants, http, code }) = &contract.authorization {
        if *grants {
            found.here(
                &["authorization", "grants"],
                "actor, tenant, tool and arguments are looked up in the grants before each send",
            );
        }
        if let Some(policy) = http {
            found.here(
                &["authorization", "http"],
                format!("before each send: POST {}", policy.url.shown()),
            );
        }
        if let Some(name) = code {
            found.here(
                &["authorization", "code"],
                format!("before each send the process's own authorizer {name} is asked"),
            );
        }
    }
    if let Some(approval) = &contract.approval {
        let places: Vec<String> = approval.when.keys().map(ToString::to_string).collect();
        let which = if places.is_empty() {
            "every request".to_owned()
        } else {
            format!("requests by the value of {}", places.join(", "))
        };
        found.here(
            &["approval"],
            format!(
                "{which} need an approval, which holds for {}",
                duration_text(approval.expires)
            ),
        );
    }
    if let Some(check) = &contract.preconditions {
        found.here(
            &["preconditions"],
            format!(
                "before the first send: {} {}",
                check.http.method.as_str(),
                check.http.url.shown()
            ),
        );
    }
    if contract.sends_version_precondition() {
        found.here(
            &["downstream", "http", "headers"],
            "the service compares the target's version (If-Match)",
        );
    }
    found.ours(
        "docs/errors/downstream_denied.md",
        "tests/it/consumer/retries.rs",
        "401 and 403 of the downstream are the deployment's fault: the tool pauses, and nothing is called refused",
    );
}

fn expiry(contract: &Contract, margin: Duration, found: &mut Found) {
    let retention = &contract.retention;
    let kept = |span: Option<Duration>| span.map_or("for ever".to_owned(), duration_text);
    let late = match retention.late_arrival {
        LateArrival::Reject => "is refused as expired_operation",
        LateArrival::ReplayReference => "gets the effect's reference",
        LateArrival::Reconcile => "is looked up",
    };
    found.here(
        &["retention"],
        format!(
            "the result is kept {}, then what recognises the key {}; a late duplicate {late}, and never runs",
            kept(retention.result),
            kept(retention.tombstone)
        ),
    );
    let path = gaps::longest_path(contract, margin);
    found.here(
        &["retry", "give_up"],
        format!(
            "the longest path to a late duplicate that the contract knows of is {}; what a queue holds back and a person repeats comes on top",
            gaps::told(&path)
        ),
    );
}

fn tests(contract: &Contract, found: &mut Found) {
    found.ours(
        "tests/README.md",
        "tests/it/consumer/kills.rs",
        "workers killed and connections cut at every step; effects are counted by the service itself",
    );
    found.ours(
        "tests/README.md",
        "tests/it/consumer/lost_response.rs",
        "the answer lost after the service's commit, with and without deduplication",
    );
    if contract.recoverability() == Recoverability::Transactional {
        found.ours(
            "src/tool/transactional.rs",
            "tests/it/consumer/transactional.rs",
            "effect and settlement torn apart at the commit",
        );
    }
}

/// `200, 302`
fn statuses(list: &[u16]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
