//! A refusal after an unproved attempt proves nothing about that attempt: it is looked up, and where
//! nobody can be asked it is unknown. Neither is *already done* proof on a first send.

use serde_json::json;

use super::stage::{RETRY, Stage, times};
use crate::support::contracts::deduplicating;

#[tokio::test]
async fn the_earlier_attempts_effect_is_found() {
    let stage = Stage::with(|url| deduplicating(url).also_looked_up(), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.tickets().answer(422, 1).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    assert_eq!(times(&stage.world.trace("s").await, "reconciled"), 1);
    assert_eq!(stage.downstream.effects().await["requests"], 2);
    roles.stop().await;
}

#[tokio::test]
async fn there_was_none_and_the_refusal_stands() {
    let stage = Stage::with(|url| deduplicating(url).also_looked_up(), RETRY).await;
    // Long enough that the first look comes too early.
    let roles = stage.run("2s");
    stage.downstream.tickets().drop_connection(1).await;
    stage.downstream.tickets().answer(422, 1).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "failed_permanent", "refused").await;
    assert!(!record.sent);
    let why = stage.told("s", "retry_scheduled").await;
    assert!(why.contains(&json!({"why": "absent_too_early"})), "{why:?}");
    assert_eq!(
        stage.downstream.effects().await["requests"],
        2,
        "a refused request is not repeated"
    );
    roles.stop().await;
}

#[tokio::test]
async fn where_nobody_can_be_asked_it_is_unknown() {
    let stage = Stage::with(deduplicating, RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.tickets().answer(422, 1).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "refused_after_unproved").await;
    assert!(record.sent);
    assert_eq!(stage.downstream.effects().await["requests"], 2);
    roles.stop().await;
}

#[tokio::test]
async fn already_done_on_a_first_send_is_looked_up_and_not_sent_again() {
    let text = |url: &str| {
        let text = deduplicating(url).also_looked_up().timeout("900ms");
        let text = text.more("lease: 2s").more(RETRY).text();
        text.replace("refused: [400, 404, 422]", "refused: [400, 404, 422]\n    already: [409]")
    };
    let stage = Stage::of(text).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().answer(409, 9).await;
    stage.downstream.lookups().fail(1).await;
    stage.submit("s").await;
    // It is not there, so somebody else's it was; asked for anew, it is made.
    stage.comes_to("s", "retry_scheduled").await;
    stage.downstream.lookups().arrived(2, 20).await;
    let sends = "select count(*) from oncebox.operation_events where event = 'sent'";
    assert!(stage.world.count(sends).await <= 2);
    let first = stage.told("s", "retry_scheduled").await;
    assert_eq!(first[0], json!({"why": "look_up"}), "{first:?}");
    roles.stop().await;
}
