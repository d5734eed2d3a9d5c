#![allow(clippy::wildcard_enum_match_arm, reason = "an expectation names the few that differ")]

use super::*;
use crate::domain::records::{HOUR, MINUTE, NOW, SECOND, ahead, operation, sent_operation};

fn told(row: &Operation, asked: Asked) -> (Status, bool, NextAction) {
    let envelope = Envelope::of(row, asked, NOW);
    (envelope.status, envelope.safe_to_repeat, envelope.next_action)
}

#[test]
fn each_state_has_one_answer() {
    use NextAction as N;
    use Status as T;
    let check = |state, expected| {
        for asked in [Asked::BySubmission, Asked::ByLook] {
            assert_eq!(told(&operation(state), asked), expected, "{state:?}");
        }
    };
    check(State::Queued, (T::InFlight, false, N::Poll));
    check(State::Held, (T::InFlight, false, N::InspectOperation));
    check(State::AwaitingApproval, (T::InFlight, false, N::AskForApproval));
    check(State::Claimed, (T::InFlight, false, N::Poll));
    check(State::Sent, (T::InFlight, false, N::Poll));
    check(State::Accepted, (T::InFlight, false, N::Poll));
    check(State::RetryScheduled, (T::InFlight, false, N::Poll));
    check(State::Parked, (T::InFlight, false, N::Poll));
    check(State::Rejected, (T::Rejected, true, N::None));
    check(State::FailedPermanent, (T::FailedPermanent, false, N::NewOperation));
    check(State::Unknown, (T::Unknown, false, N::Reconcile));
    check(State::Expired, (T::ExpiredOperation, false, N::NewOperation));

    let applied = operation(State::Applied);
    assert_eq!(told(&applied, Asked::BySubmission), (T::Replayed, true, N::None));
    assert_eq!(told(&applied, Asked::ByLook), (T::Applied, true, N::None));
}

#[test]
fn a_rejection_says_what_helps() {
    let rejected = |reason| {
        let row = Operation { reason: Some(reason), ..operation(State::Rejected) };
        told(&row, Asked::BySubmission)
    };
    for reason in Reason::ALL {
        let expected = match reason {
            Reason::ApprovalExpired | Reason::ApprovalTimedOut => NextAction::AskForApproval,
            Reason::SuspectedTwin => NextAction::InspectOperation,
            _ => NextAction::None,
        };
        assert_eq!(rejected(*reason), (Status::Rejected, true, expected), "{reason:?}");
    }
    let burnt = sent_operation(State::Rejected, MINUTE);
    assert_eq!(
        told(&burnt, Asked::ByLook),
        (Status::Rejected, false, NextAction::InspectOperation)
    );
}

#[test]
fn members_have_their_names_and_their_order() {
    let row = Operation {
        effect_reference: Some("T-1".to_owned()),
        response: Some("{\"n\": 1.0, \"big\": 9007199254740993}".to_owned()),
        ..operation(State::Applied)
    };
    let envelope = Envelope::of(&row, Asked::BySubmission, NOW);
    assert_eq!(
        serde_json::to_string(&envelope).unwrap(),
        "{\"status\":\"replayed\",\"operation_id\":\"00000000-0000-0000-0000-000000000007\",\
         \"operation_key\":\"acme:prod:run1:step1\",\"effect_reference\":\"T-1\",\
         \"response\":{\"n\": 1.0, \"big\": 9007199254740993},\"safe_to_repeat\":true,\
         \"next_action\":\"none\",\"retry_after_seconds\":null,\"reason\":null,\
         \"tool\":\"tickets.create\",\"tool_version\":\"2026-08-19\",\"suspected_twin_of\":null}"
    );
    assert!(envelope.without_response().response.is_none());
}

#[test]
fn words_are_stable() {
    let word = |value: serde_json::Value| value.as_str().unwrap().to_owned();
    let statuses = [
        (Status::Applied, "applied"),
        (Status::Replayed, "replayed"),
        (Status::InFlight, "in_flight"),
        (Status::Rejected, "rejected"),
        (Status::Unknown, "unknown"),
        (Status::FailedPermanent, "failed_permanent"),
        (Status::ExpiredOperation, "expired_operation"),
    ];
    for (status, expected) in statuses {
        assert_eq!(word(serde_json::to_value(status).unwrap()), expected);
    }
    let actions = [
        (NextAction::None, "none"),
        (NextAction::Poll, "poll"),
        (NextAction::AskForApproval, "ask_for_approval"),
        (NextAction::InspectOperation, "inspect_operation"),
        (NextAction::Reconcile, "reconcile"),
        (NextAction::NewOperation, "new_operation"),
    ];
    for (action, expected) in actions {
        assert_eq!(word(serde_json::to_value(action).unwrap()), expected);
    }
}

#[test]
fn a_caller_waits_for_what_is_pending_only() {
    let wait = |state, due_at| {
        let row = Operation { due_at, ..operation(state) };
        Envelope::of(&row, Asked::ByLook, NOW).retry_after_seconds
    };
    assert_eq!(wait(State::Queued, NOW.before(HOUR)), Some(1));
    assert_eq!(wait(State::RetryScheduled, ahead(90 * SECOND)), Some(90));
    assert_eq!(wait(State::RetryScheduled, Timestamp(NOW.0 + 1_000_001)), Some(2));
    assert_eq!(wait(State::Queued, ahead(48 * HOUR)), Some(3600));
    for state in State::ALL {
        assert_eq!(wait(state, ahead(SECOND)).is_some(), state.is_pending(), "{state:?}");
    }
}

#[test]
fn an_event_says_the_ending_and_keeps_the_response_to_itself() {
    let row = Operation {
        effect_reference: Some("T-1".to_owned()),
        response: Some("{\"secret\": 1}".to_owned()),
        ..operation(State::Applied)
    };
    let event = ResultEvent::of(&row).unwrap();
    assert_eq!(event.routing_key, "acme.tickets.create.applied");
    assert_eq!(
        event.body,
        "{\"status\":\"applied\",\"operation_id\":\"00000000-0000-0000-0000-000000000007\",\
         \"operation_key\":\"acme:prod:run1:step1\",\"effect_reference\":\"T-1\",\
         \"response\":null,\"safe_to_repeat\":true,\"next_action\":\"none\",\
         \"retry_after_seconds\":null,\"reason\":null,\
         \"tool\":\"tickets.create\",\"tool_version\":\"2026-08-19\",\"suspected_twin_of\":null}"
    );
    for state in State::ALL.into_iter().filter(|state| state.is_ending()) {
        let event = ResultEvent::of(&operation(state)).unwrap();
        let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
        assert!(event.routing_key.ends_with(&format!(".{}", body["status"].as_str().unwrap())));
    }
}

/// The column of an event is bounded, and a settle can always be written.
#[test]
fn the_longest_event_fits_its_column() {
    let row = Operation {
        key: "\"".repeat(1400),
        tenant: "t".repeat(63),
        tool: "t".repeat(64),
        tool_version: "\"".repeat(64),
        effect_reference: Some("\u{1}".repeat(1024)),
        reason: Some(Reason::RefusedAfterUnproved),
        ..operation(State::FailedPermanent)
    };
    let event = ResultEvent::of(&row).unwrap();
    assert!(event.body.len() <= 16384, "{}", event.body.len());
    assert!(event.routing_key.len() <= 200, "{}", event.routing_key.len());
}

/// Whoever used a key for another request learns that, and nothing of the first one's values.
#[test]
fn a_mismatch_tells_no_values() {
    let row = Operation {
        effect_reference: Some("T-1".to_owned()),
        response: Some("{}".to_owned()),
        reason: Some(Reason::NoProof),
        ..operation(State::Applied)
    };
    let envelope = Envelope::mismatch(&row);
    assert_eq!(envelope.status, Status::Rejected);
    assert!(!envelope.safe_to_repeat);
    assert_eq!(envelope.next_action, NextAction::InspectOperation);
    assert_eq!(envelope.reason, Some("operation_key_reused_with_different_request"));
    assert_eq!(envelope.tool_version.as_deref(), Some("2026-08-19"));
    assert!(envelope.effect_reference.is_none() && envelope.response.is_none());
}

#[test]
fn a_refusal_at_the_door_names_no_record() {
    let envelope = Envelope::refused(None, None, None, Reason::ContractVersionUnknown);
    assert_eq!(
        (envelope.status, envelope.safe_to_repeat, envelope.next_action),
        (Status::Rejected, true, NextAction::None)
    );
    assert_eq!(envelope.reason, Some("contract_version_unknown"));
    assert!(envelope.operation_id.is_none());
}
