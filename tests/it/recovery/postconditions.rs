//! An effect is called applied when what the contract demands after it holds; where that fails or
//! cannot be asked, the effect is known and the operation unknown.

use serde_json::json;

use super::stage::{RETRY, Stage, THREE, times};
use crate::support::contracts::{blind, deduplicating, looked_up};

#[tokio::test]
async fn it_holds_and_the_operation_is_applied() {
    let stage = Stage::with(|url| blind(url).postcondition(), RETRY).await;
    let roles = stage.run("100ms");
    stage.submit("s").await;
    assert_eq!(stage.ends("s", "applied").await.receipt.as_deref(), Some("T-1"));
    assert_eq!(stage.downstream.postconditions().count().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn it_fails_and_a_person_decides() {
    let stage = Stage::with(|url| deduplicating(url).postcondition(), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.postconditions().always(404).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "postcondition_failed").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"), "the effect is known");
    assert_eq!(stage.column("s", "next_lookup_at").await, None);
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "committed"), times(&trace, "unknown")), (1, 1), "{trace:?}");
    let told = stage.world.submit(&stage.submission("s")).await.unwrap();
    assert_eq!(serde_json::to_value(told.status).unwrap(), "unknown");
    let (code, _, told) = stage.ops("resolve s --applied T-1 --by ann --reason fine").await;
    assert_eq!(code, Some(0), "{told}");
    stage.ends("s", "applied").await;
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn it_cannot_be_asked_and_is_asked_again_later() {
    for kind in [blind, looked_up, deduplicating] {
        let stage = Stage::with(|url| kind(url).postcondition(), RETRY).await;
        let roles = stage.run("100ms");
        stage.downstream.postconditions().always(500).await;
        stage.submit("s").await;
        let record = stage.ends_for("s", "unknown", "postcondition_unreachable").await;
        assert_eq!(record.receipt.as_deref(), Some("T-1"));
        stage.downstream.postconditions().arrived(4, 20).await;
        stage.downstream.postconditions().as_usual().await;
        let record = stage.ends("s", "applied").await;
        assert_eq!(record.receipt.as_deref(), Some("T-1"));
        assert!(record.response.is_some(), "the answer was kept");
        // The effect is proved: only what demands more is asked.
        assert_eq!(stage.downstream.lookups().count().await, 0);
        assert_eq!(stage.downstream.effects().await["requests"], 1);
        roles.stop().await;
    }
}

#[tokio::test]
async fn it_cannot_be_asked_and_fails_later() {
    let stage = Stage::with(|url| blind(url).postcondition(), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.postconditions().fail(2).await;
    stage.downstream.postconditions().always(404).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "postcondition_failed").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    stage.holds("s", "next_lookup_at is null").await;
    roles.stop().await;
}

#[tokio::test]
async fn it_is_asked_of_an_effect_that_a_look_up_found() {
    let stage = Stage::with(|url| looked_up(url).postcondition(), THREE).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.postconditions().always(500).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "postcondition_unreachable").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    stage.downstream.postconditions().as_usual().await;
    stage.ends("s", "applied").await;
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn after_the_give_up_a_person_makes_it_be_asked_again() {
    let retry = "retry: {initial: 100ms, max: 300ms, jitter: 0, give_up: 1s}";
    let stage = Stage::with(|url| blind(url).postcondition(), retry).await;
    let roles = stage.run("100ms");
    stage.downstream.postconditions().always(500).await;
    stage.submit("s").await;
    stage.ends_for("s", "unknown", "postcondition_unreachable").await;
    stage.holds("s", "next_lookup_at is null").await;
    assert_eq!(stage.told("s", "unknown").await.last(), Some(&json!({"lookups": "given_up"})));
    stage.downstream.postconditions().as_usual().await;
    let (code, _, told) = stage.ops("retry s --by ann --reason again").await;
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(stage.ends("s", "applied").await.receipt.as_deref(), Some("T-1"));
    roles.stop().await;
}
