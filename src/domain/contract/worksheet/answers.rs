//! The three questions that a queue contract should answer, for one tool.

use crate::domain::contract::template::Placeholder;
use crate::domain::contract::{Contract, Facts, LookUp, Lookup, Recoverability};

/// One of the three questions, answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The stable id.
    pub id: &'static str,
    /// The question.
    pub question: &'static str,
    /// The answer as a stable code.
    pub code: &'static str,
    /// The answer in a sentence.
    pub text: String,
}

pub(super) fn of(contract: &Contract) -> [Answer; 3] {
    let (queried, how) = query(contract);
    let (after, what) = crash(contract);
    [
        Answer {
            id: "delivered_twice",
            question: "Can the same job be delivered twice?",
            code: "yes",
            text: "the outbox row is published until the broker confirms it, and the broker delivers again what was not acknowledged; a message only names a record, and the record lets one worker at a time run and never leaves applied".to_owned(),
        },
        Answer {
            id: "effect_queried",
            question: "Can the consumer query the effect?",
            code: queried,
            text: how,
        },
        Answer {
            id: "crash_before_ack",
            question: "What happens if the consumer crashes after the effect and before the acknowledgement?",
            code: after,
            text: what,
        },
    ]
}

fn look_up(contract: &Contract) -> Option<(&Lookup, LookUp)> {
    Some((contract.lookup()?, Facts::of(contract).look_up))
}

fn query(contract: &Contract) -> (&'static str, String) {
    if let Some((lookup, kind)) = look_up(contract) {
        let by = by(lookup);
        return match kind {
            LookUp::AbsentToOperator | LookUp::AbsentResends => (
                "yes",
                format!("it asks the service {by}; found and absent are both taken as the truth"),
            ),
            LookUp::Presence | LookUp::None => (
                "presence_only",
                format!("it asks the service {by}; found proves the effect, absent proves nothing"),
            ),
        };
    }
    let none = "the contract names no look-up";
    match contract.recoverability() {
        Recoverability::Transactional => (
            "yes",
            "the record of the operation is in the same database, committed with the effect"
                .to_owned(),
        ),
        Recoverability::ResendAlways => (
            "not_needed",
            format!("{none}; it need not know, sending again ends in the same state"),
        ),
        Recoverability::ResendWithin { .. } => (
            "by_repetition",
            format!(
                "{none}; while the downstream recognises the key, sending the same request again is the question, and the first effect's receipt the answer"
            ),
        ),
        Recoverability::None => (
            "no",
            format!(
                "{none}, and the downstream does not deduplicate: no replay is promised, and an uncertain outcome goes to {}",
                contract.person()
            ),
        ),
    }
}

/// By what the service is asked.
fn by(lookup: &Lookup) -> &'static str {
    let Some(request) = &lookup.http else { return "by the tool's own code" };
    let key = request.call.placeholders().into_iter().any(|placeholder| {
        matches!(placeholder, Placeholder::IdempotencyKey | Placeholder::OperationId)
    });
    if key { "by the operation's own key" } else { "by a receipt or a business reference" }
}

fn crash(contract: &Contract) -> (&'static str, String) {
    let told = contract.after_effect_before_ack();
    match contract.recoverability() {
        Recoverability::Transactional => ("one_commit", told),
        Recoverability::ResendAlways => ("sent_again", told),
        Recoverability::ResendWithin { .. } => match look_up(contract) {
            Some((_, kind)) => ("sent_again", format!("{told}: {}", then(contract, kind))),
            None => ("sent_again", told),
        },
        Recoverability::None => match look_up(contract) {
            Some((_, kind)) => ("looked_up", format!("{told}: {}", then(contract, kind))),
            None => ("unknown", told),
        },
    }
}

/// What a look-up leads to.
fn then(contract: &Contract, kind: LookUp) -> String {
    let person = contract.person();
    match kind {
        LookUp::AbsentResends => format!(
            "found, the operation is applied with that receipt; absent, it is sent again once no earlier attempt can still be under way; no clear answer, it is looked up again and is unknown at last, for {person}"
        ),
        LookUp::AbsentToOperator => format!(
            "found, the operation is applied with that receipt; absent, nothing is sent again and {person} decides"
        ),
        LookUp::Presence | LookUp::None => format!(
            "found, the operation is applied with that receipt; not found proves nothing, so nothing is sent again and {person} decides"
        ),
    }
}
