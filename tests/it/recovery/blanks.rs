//! A look-up that shows nothing is repeated with backoff; at the limit the operation is unknown, and
//! role maintain goes on asking, up to the contract's give-up, then a person is the last to ask.

use serde_json::json;

use super::stage::{RETRY, Stage, THREE, times};
use crate::support::contracts::{blind, looked_up};
use crate::support::eventually;

#[tokio::test]
async fn a_look_up_that_shows_nothing_is_repeated() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("5m");
    let faults = [
        ("error", "answer_unclear", json!({"status": 500})),
        ("away", "answer_unclear", json!({"status": 503, "retry_after": "1"})),
        ("busy", "answer_unclear", json!({"status": 429})),
        ("hangs", "unreachable", json!({"hang": true})),
        ("closed", "unreachable", json!({"drop_before_effect": true})),
        ("cut", "answer_unclear", json!({"truncate": true})),
        ("no_json", "answer_unclear", json!({"garbage": "body"})),
        ("no_receipt", "no_receipt", json!({"garbage": "receipt"})),
        ("no_entry", "downstream_denied", json!({"status": 401})),
        ("elsewhere", "answer_unclear", json!({"redirect": "/tickets"})),
    ];
    for (step, why, fault) in faults {
        stage.downstream.tickets().drop_answer(1).await;
        let mut rule = fault;
        rule["times"] = 1.into();
        stage.downstream.lookups().fault(rule).await;
        stage.submit(step).await;
        let record = stage.ends(step, "applied").await;
        assert_eq!((record.attempts, record.lost_claims), (1, 0), "{step}");
        let scheduled = stage.told(step, "retry_scheduled").await;
        assert_eq!(scheduled.last(), Some(&json!({"why": why})), "{step}: {scheduled:?}");
        let key = stage.column(step, "downstream_key").await.unwrap();
        assert_eq!(stage.downstream.lookups().of(&key).count().await, 2, "{step}");
        assert_eq!(stage.downstream.effects_of(&key).await, 1, "{step}");
    }
    roles.stop().await;
}

#[tokio::test]
async fn at_the_limit_it_is_unknown_and_maintain_goes_on_asking() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().always(500).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "no_proof").await;
    assert!(record.sent && record.owner.is_none());
    let at_limit = stage.downstream.lookups().count().await;
    assert!(at_limit >= 3, "{at_limit} look-ups before it was unknown");
    stage.downstream.lookups().arrived(at_limit + 3, 20).await;
    // Each wait was longer than the one before, up to the maximum.
    stage
        .holds("s", "next_lookup_at > clock_timestamp() - interval '1 second' and lookups >= 2")
        .await;
    stage.downstream.lookups().as_usual().await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "unknown"), times(&trace, "reconciled")), (1, 1), "{trace:?}");
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn after_the_give_up_only_a_person_makes_it_ask_again() {
    let retry = "retry: {initial: 100ms, max: 300ms, jitter: 0, attempts: 2, give_up: 1s}";
    let stage = Stage::with(looked_up, retry).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().always(500).await;
    stage.submit("s").await;
    stage.ends("s", "unknown").await;
    stage.holds("s", "next_lookup_at is null").await;
    assert_eq!(stage.told("s", "unknown").await.last(), Some(&json!({"lookups": "given_up"})));
    let asked = stage.downstream.lookups().count().await;
    // Asked for once more, in vain: it is asked once more, no oftener.
    let (code, _, told) = stage.ops("retry s --by ann --reason again").await;
    assert_eq!(code, Some(0), "{told}");
    stage.downstream.lookups().arrived(asked + 1, 20).await;
    stage.holds("s", "next_lookup_at is null").await;
    assert_eq!(stage.downstream.lookups().count().await, asked + 1);
    // The service is back.
    stage.downstream.lookups().as_usual().await;
    assert_eq!(stage.ops("retry s --by ann --reason again").await.0, Some(0));
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn where_nobody_can_be_asked_a_retry_is_refused_and_says_resolve() {
    let stage = Stage::with(blind, RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    stage.ends_for("s", "unknown", "no_proof").await;
    assert_eq!(stage.column("s", "next_lookup_at").await, None);
    let (code, _, told) = stage.ops("retry s --by ann --reason again").await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("the effect may exist; use resolve"), "{told}");
    let (code, _, told) = stage.ops("retry s --reopen --by ann --reason again").await;
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(stage.downstream.tickets().count().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_service_that_is_away_for_long_is_asked_again_when_it_is_back() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().hold().await;
    stage.submit("s").await;
    stage.ends("s", "unknown").await;
    stage.downstream.lookups().let_go().await;
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    eventually("it is not asked any more", 20, async || {
        (stage.column("s", "next_lookup_at").await.is_none()).then_some(())
    })
    .await;
    roles.stop().await;
}
