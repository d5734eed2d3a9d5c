//! A second submission is told what became of the first, adds no row and does not touch the record.

use oncebox::domain::lifecycle::State;
use serde_json::{Value, json};

use super::{OTHER, asking, refund, world};
use crate::support::doors::{Door, everything, force};

/// What the same request under the same key hears in each state. (Rejected and never sent reopens:
/// see `reopening`.)
fn label(state: State) -> (Value, bool, &'static str) {
    match state {
        State::Queued
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled
        | State::Parked => (json!("in_flight"), false, "poll"),
        State::Held => (json!("in_flight"), false, "inspect_operation"),
        State::AwaitingApproval => (json!("in_flight"), false, "ask_for_approval"),
        State::Applied => (json!("replayed"), true, "none"),
        State::Rejected => (json!("rejected"), false, "inspect_operation"),
        State::FailedPermanent => (json!("failed_permanent"), false, "new_operation"),
        State::Unknown => (json!("unknown"), false, "reconcile"),
        State::Expired => (json!("expired_operation"), false, "new_operation"),
    }
}

#[tokio::test]
async fn every_state_answers_its_label_and_nothing_changes() {
    for door in Door::BOTH {
        let world = world().await;
        let first = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        for state in State::ALL {
            force(&world, "s1", state, None, true).await;
            let before = everything(&world).await;
            let told = door.submit(&world, &refund(&world, "s1")).await.unwrap();
            let (status, safe, action) = label(state);
            assert_eq!(told["status"], status, "{door:?} {state:?}");
            assert_eq!(told["safe_to_repeat"], safe, "{door:?} {state:?}");
            assert_eq!(told["next_action"], action, "{door:?} {state:?}");
            assert_eq!(told["operation_id"], first["operation_id"]);
            assert_eq!(
                told["effect_reference"].is_string(),
                matches!(state, State::Applied | State::Expired)
            );
            assert_eq!(everything(&world).await, before, "{door:?} {state:?}");
        }
    }
}

#[tokio::test]
async fn another_request_under_the_key_is_rejected_in_every_state_and_told_nothing() {
    for door in Door::BOTH {
        let world = world().await;
        let first = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        for (state, sent) in
            State::ALL.into_iter().flat_map(|state| [(state, true), (state, false)])
        {
            force(&world, "s1", state, None, sent).await;
            let before = everything(&world).await;
            let told = door.submit(&world, &asking(&world, "s1", OTHER)).await.unwrap();
            assert_eq!(
                told,
                json!({
                    "status": "rejected", "operation_id": first["operation_id"], "operation_key": "acme:test:run:s1",
                    "effect_reference": null, "response": null, "safe_to_repeat": false,
                    "next_action": "inspect_operation", "retry_after_seconds": null,
                    "reason": "operation_key_reused_with_different_request",
                    "tool": "tickets.create", "tool_version": "1", "suspected_twin_of": null,
                }),
                "{door:?} {state:?}"
            );
            assert_eq!(everything(&world).await, before, "{door:?} {state:?}");
        }
    }
}

#[tokio::test]
async fn another_tool_under_the_key_is_another_request() {
    let world = world().await;
    world.contract(&crate::support::downstream::mails(super::NOWHERE, "")).await;
    for door in Door::BOTH {
        let step = format!("{door:?}");
        door.submit(&world, &refund(&world, &step)).await.unwrap();
        let mail = world.submission("mail.send", &step, r#"{"to":"a","subject":"Refund"}"#);
        let told = door.submit(&world, &mail).await.unwrap();
        assert_eq!(told["reason"], "operation_key_reused_with_different_request");
        assert_eq!(told["tool"], "tickets.create");
    }
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 2);
}

#[tokio::test]
async fn fifty_pairs_at_once_make_one_record_each_and_reject_the_other_request() {
    let world = world().await;
    let pairs = (0..50).map(|n| {
        let (step, world) = (format!("s{n}"), &world);
        async move {
            let door = Door::BOTH[n % 2];
            let (mine, other) = (refund(world, &step), asking(world, &step, OTHER));
            let (a, b) = tokio::join!(door.submit(world, &mine), door.submit(world, &other));
            let mut told = [a.unwrap()["status"].clone(), b.unwrap()["status"].clone()];
            told.sort_by_key(ToString::to_string);
            assert_eq!(told, [json!("in_flight"), json!("rejected")], "{step}");
        }
    });
    futures::future::join_all(pairs).await;
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 50);
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 50);
}
