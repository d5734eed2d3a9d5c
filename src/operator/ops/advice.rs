//! What a record and its trace tell an operator.

use crate::domain::lifecycle::State;
use crate::domain::operation::Operation;
use crate::domain::reason::Reason;
use crate::domain::trace_review::lacks_proof;
use crate::store::TraceRow;

/// What does not fit together.
pub(super) fn flags(operation: &Operation, trace: &[TraceRow]) -> Vec<&'static str> {
    let happened = |event: &str| trace.iter().any(|row| row.event == event);
    let events = trace.iter().map(|row| row.event.as_str());
    let flags = [
        (
            lacks_proof(operation, events),
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
    let older = operation.twin.as_ref().and_then(|twin| twin.held_behind);
    let older =
        older.map_or("`oncebox ops list`".to_owned(), |id| format!("`oncebox ops show {id}`"));
    match operation.state {
        State::Unknown => Some(format!("{}; {resolve}", unknown(operation.reason))),
        State::Parked => Some(parked(operation, &resolve)),
        State::Held => Some(format!(
            "an operation with the same arguments is unfinished: look at it with {older}; `oncebox ops release {id}` lets this one go on beside it"
        )),
        State::Rejected if operation.reason == Some(Reason::SuspectedTwin) => Some(format!(
            "nothing was sent: look at the operation before it with {older}; if a second effect is meant, submit again and name its key in distinct_from"
        )),
        State::AwaitingApproval => Some(asks_approval(operation)),
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
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled
        | State::Applied
        | State::Rejected
        | State::Expired => None,
    }
}

/// What answers a request for approval, to be typed as it stands.
fn asks_approval(operation: &Operation) -> String {
    let id = operation.id;
    let shown = operation.fingerprint.as_ref().map_or("FINGERPRINT", |f| f.as_str());
    format!(
        "look at what is asked with `oncebox ops show {id} --with-arguments`, then `oncebox ops approve {id} --fingerprint {shown} --by NAME`, or `oncebox ops deny {id} --fingerprint {shown} --by NAME --reason WHY`"
    )
}

fn unknown(reason: Option<Reason>) -> &'static str {
    match reason {
        Some(Reason::WindowClosed) => "the downstream no longer recognises the key",
        Some(Reason::AttemptsExhausted) => "every attempt is used up and one is unproved",
        Some(Reason::RefusedAfterUnproved) => {
            "the downstream said no, but an earlier attempt may have worked"
        }
        Some(Reason::MayHaveBeenSent) => {
            "its record was lost and put back, and the lost one may have been sent"
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

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;
    use crate::domain::operation::{Timestamp, Token};

    fn operation(state: State) -> Operation {
        Operation {
            id: Uuid::from_u128(7),
            tenant: "acme".into(),
            environment: "prod".into(),
            key: "acme:prod:run:step".into(),
            tool: "tickets.create".into(),
            tool_version: "1".into(),
            fingerprint: None,
            digests: None,
            state,
            reason: None,
            due_at: Timestamp(0),
            lease: None,
            token: Token(1),
            attempts: 1,
            lost_claims: 0,
            deferrals: 0,
            opened_at: Timestamp(0),
            first_sent_at: Some(Timestamp(1)),
            attempts_over_at: None,
            key_first_used_at: Some(Timestamp(1)),
            downstream_key: None,
            queued_at: Timestamp(0),
            sweeps: 0,
            order: None,
            job: None,
            lookups: 0,
            next_lookup_at: None,
            unresolved_since: None,
            twin: None,
            actor: None,
            effect_reference: Some("T-1".into()),
            response: None,
            response_dropped: false,
            results: false,
            traceparent: None,
            updated_at: Timestamp(2),
        }
    }

    fn trace(events: &[&str]) -> Vec<TraceRow> {
        let row = |event: &&str| TraceRow {
            at: OffsetDateTime::UNIX_EPOCH,
            event: (*event).to_owned(),
            epoch: 1,
            owner: None,
            detail: None,
        };
        events.iter().map(row).collect()
    }

    #[test]
    fn applied_without_proof_is_flagged() {
        let check = |record: &Operation, events: &[&str], flagged: bool| {
            assert_eq!(!flags(record, &trace(events)).is_empty(), flagged, "{events:?}");
        };
        let applied = operation(State::Applied);
        check(&applied, &["claimed", "sent", "committed", "settled"], false);
        check(&applied, &["claimed", "sent", "reconciled", "committed", "settled"], false);
        check(&applied, &["claimed", "sent", "unknown", "resolved"], false);
        check(&applied, &["claimed", "sent", "settled"], true);
        let no_receipt = Operation { effect_reference: None, ..operation(State::Applied) };
        check(&no_receipt, &["claimed", "sent", "committed", "settled"], true);
        // A transactional effect is never marked as sent: the transaction is its proof.
        let in_transaction = Operation { first_sent_at: None, ..operation(State::Applied) };
        check(&in_transaction, &["claimed", "settled"], false);
        check(&operation(State::Sent), &["claimed", "sent"], false);
        check(&applied, &["claimed", "sent", "committed", "settled", "conflict"], true);
    }

    #[test]
    fn whoever_waits_for_a_person_is_told_what_to_do() {
        for state in State::ALL {
            let told = next_step(&operation(state)).is_some();
            let waits = matches!(
                state,
                State::Unknown
                    | State::Parked
                    | State::Held
                    | State::AwaitingApproval
                    | State::FailedPermanent
            );
            assert_eq!(told, waits, "{state:?}");
        }
        let unknown = next_step(&operation(State::Unknown)).unwrap();
        assert!(unknown.contains("ops resolve") && !unknown.contains("retry"), "{unknown}");
    }
}
