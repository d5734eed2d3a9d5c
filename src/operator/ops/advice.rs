//! What a record and its trace tell an operator.

use crate::domain::lifecycle::State;
use crate::domain::operation::Operation;
use crate::domain::reason::Reason;
use crate::store::TraceRow;

/// What does not fit together.
pub(super) fn flags(operation: &Operation, trace: &[TraceRow]) -> Vec<&'static str> {
    let happened = |event: &str| trace.iter().any(|row| row.event == event);
    let applied = operation.state == State::Applied;
    let was_sent = operation.first_sent_at.is_some() || happened("sent");
    let proved = ["committed", "reconciled", "resolved"].into_iter().any(happened);
    let flags = [
        (
            applied && was_sent && (operation.effect_reference.is_none() || !proved),
            "the trace goes from sent to applied without a receipt: ask the downstream whether the effect exists",
        ),
        (
            happened("conflict"),
            "evidence contradicts itself (event conflict): compare the receipts with the downstream",
        ),
        (
            operation.response_dropped,
            "the downstream's answer could not be kept; the status stands without it",
        ),
    ];
    flags.into_iter().filter(|(raised, _)| *raised).map(|(_, flag)| flag).collect()
}

/// What to do about a record that waits for a person; `None` when nothing is to be done.
pub(super) fn next_step(operation: &Operation) -> Option<String> {
    let id = operation.id;
    let resolve = format!(
        "ask the downstream with downstream_key or your own reference, then `oncebox ops resolve {id} --applied REFERENCE`, --not-applied or --compensated, with --by and --reason"
    );
    match operation.state {
        State::Unknown => Some(format!("{}; {resolve}", unknown(operation.reason))),
        State::Parked => Some(parked(operation, &resolve)),
        State::Held => Some(format!(
            "an older operation with the same arguments is unfinished; `oncebox ops release {id}` lets this one go on beside it"
        )),
        State::FailedPermanent if !operation.may_have_been_sent() => Some(format!(
            "nothing was done; once the cause is gone, `oncebox ops retry {id} --reopen --by NAME --reason WHY`, or a new operation"
        )),
        State::FailedPermanent => {
            Some("a new operation, after a person's or the workflow's new decision only".to_owned())
        }
        State::Queued
        | State::RetryScheduled
            if operation.order.as_ref().is_some_and(|order| order.waiting) =>
        {
            Some("waits for earlier operations of its ordering key; `oncebox ops release` on the stuck one lets it pass".to_owned())
        }
        State::Queued
        | State::AwaitingApproval
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled
        | State::Applied
        | State::Rejected
        | State::Expired => None,
    }
}

fn unknown(reason: Option<Reason>) -> &'static str {
    match reason {
        Some(Reason::WindowClosed) => "the downstream no longer recognises the key",
        Some(Reason::AttemptsExhausted) => "every attempt is used up and one is unproved",
        Some(Reason::RefusedAfterUnproved) => {
            "the downstream said no, but an earlier attempt may have worked"
        }
        Some(Reason::Conflict) => "two pieces of evidence contradict each other",
        Some(Reason::WorkerLost) => "its worker was lost after the request may have left",
        Some(_) | None => "the effect may exist and nothing here can prove it",
    }
}

fn parked(operation: &Operation, resolve: &str) -> String {
    let id = operation.id;
    let retry = format!("`oncebox ops retry {id} --by NAME --reason WHY`");
    match operation.reason {
        Some(Reason::ContractVersionUnknown) => {
            format!("no live worker has this contract version; deploy it, then {retry}")
        }
        Some(Reason::FingerprintDisagreement) => format!(
            "its stored arguments no longer give its fingerprint: find out who changed the row or the contract; {resolve}"
        ),
        Some(Reason::WorkerLost | Reason::ToolPanicked) => {
            format!(
                "it keeps ending its worker; look at the workers' logs, repair the tool, then {retry}"
            )
        }
        Some(Reason::Unpublishable) => {
            format!(
                "its message cannot be put on the wire; after an upgrade {retry}, else {resolve}"
            )
        }
        Some(_) | None => {
            format!("find out why it was set aside (the trace says when), then {retry}")
        }
    }
}
