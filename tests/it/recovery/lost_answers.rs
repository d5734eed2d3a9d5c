//! An effect whose answer was lost is looked up, not repeated; where none is found, and none can come
//! any more, it is made.

use super::stage::{RETRY, Stage, times};
use crate::support::contracts::{deduplicating, looked_up};

/// The article's fault "Response dropped after downstream commit", where the downstream deduplicates
/// nothing: reconciled by a look-up, no blind second call.
#[tokio::test]
async fn response_dropped_after_downstream_commit() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("5m");
    let faults = [
        ("dropped", serde_json::json!({"drop_response": true})),
        ("cut", serde_json::json!({"truncate": true})),
        ("no_http", serde_json::json!({"garbage": "wire"})),
        ("no_receipt", serde_json::json!({"garbage": "receipt"})),
        ("server_error", serde_json::json!({"status_after_effect": 500})),
        ("late", serde_json::json!({"delay_ms_after_effect": 2000})),
    ];
    for (effects, (step, fault)) in (1..).zip(faults) {
        let mut rule = fault;
        rule["times"] = 1.into();
        stage.downstream.tickets().fault(rule).await;
        stage.submit(step).await;
        let record = stage.ends(step, "applied").await;
        assert_eq!(record.receipt.as_deref(), Some(format!("T-{effects}").as_str()), "{step}");
        assert_eq!(record.attempts, 1, "{step}: it was sent once");
        let trace = stage.world.trace(step).await;
        assert_eq!(times(&trace, "reconciled"), 1, "{step}: {trace:?}");
        assert_eq!(times(&trace, "sent"), 1, "{step}: {trace:?}");
    }
    let counted = stage.downstream.effects().await;
    assert_eq!((&counted["total"], &counted["requests"]), (&6.into(), &6.into()));
    roles.stop().await;
}

/// The article's fault "Response dropped after downstream commit", where the downstream deduplicates:
/// replayed by the same key.
#[tokio::test]
async fn response_dropped_after_downstream_commit_is_replayed_by_the_downstream_key() {
    let stage = Stage::with(|url| deduplicating(url).also_looked_up(), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    // Sending again within the window is the cheaper proof: nobody was asked.
    assert_eq!(stage.downstream.lookups().count().await, 0);
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn an_effect_that_was_not_made_is_made_once_the_unanswered_attempt_is_over() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("1500ms");
    stage.downstream.tickets().drop_connection(1).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    let waited = stage.seconds("s", "committed", "reconciled").await;
    assert!(waited >= 1.5, "absent was believed after {waited} s");
    let found = serde_json::json!({"found": "absent"});
    assert_eq!(stage.told("s", "reconciled").await, [found]);
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn after_an_answer_an_absence_is_believed_when_an_effect_would_show() {
    // Nobody waits for five minutes: the downstream answered, so that attempt is over.
    let stage = Stage::with(|url| looked_up(url).visible_after("1s"), RETRY).await;
    let roles = stage.run("5m");
    let redirect = serde_json::json!({"redirect": "http://127.0.0.1:9/", "times": 1});
    stage.downstream.tickets().fault(redirect).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    let waited = stage.seconds("s", "committed", "reconciled").await;
    assert!((1.0..15.0).contains(&waited), "absent was believed after {waited} s");
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn an_answer_in_no_list_may_be_a_proxys_that_would_not_wait() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("2s");
    stage.downstream.tickets().answer(503, 1).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    let waited = stage.seconds("s", "committed", "reconciled").await;
    assert!(waited >= 2.0, "absent was believed after {waited} s");
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_request_that_never_left_is_sent_without_a_question() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().answer(429, 2).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.attempts, 1, "an answer that says that nothing was done is no attempt");
    assert_eq!(stage.downstream.lookups().count().await, 0);
    roles.stop().await;
}
