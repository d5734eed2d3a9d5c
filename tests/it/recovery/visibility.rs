//! An effect that look-ups do not see yet, or that a slow service makes late, is never made twice.

use std::time::Duration;

use serde_json::json;

use super::stage::{RETRY, Stage, times};
use crate::support::contracts::looked_up;

#[tokio::test]
async fn an_absence_is_believed_only_when_an_effect_would_show() {
    let stage = Stage::with(|url| looked_up(url).visible_after("3s"), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.lookups().invisible_for(Duration::from_secs(2)).await;
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    stage.comes_to("s", "retry_scheduled").await;
    // Somebody asks too early, and is told that nothing is there.
    let (code, _, told) = stage.ops("retry s --by ann --reason now").await;
    assert_eq!(code, Some(0), "{told}");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert!(stage.told("s", "retry_scheduled").await.contains(&json!({"why": "absent_too_early"})));
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_lost_workers_effect_is_waited_for_until_it_would_show() {
    let stage = Stage::with(|url| looked_up(url).visible_after("3s"), RETRY).await;
    let roles = stage.roles("relay,maintain", "100ms");
    stage.downstream.lookups().invisible_for(Duration::from_secs(4)).await;
    stage.downstream.tickets().fault(json!({"delay_ms_after_effect": 800, "times": 1})).await;
    let mut first = stage.process("worker", "100ms");
    stage.submit("s").await;
    stage.downstream.effect(20).await;
    first.kill();
    let _second = stage.process("worker", "100ms");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "lease_lost"), times(&trace, "sent")), (1, 1), "{trace:?}");
    assert!(stage.told("s", "retry_scheduled").await.contains(&json!({"why": "absent_too_early"})));
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_service_that_acts_after_our_time_out_is_waited_for() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("4s");
    stage.downstream.tickets().fault(json!({"delay_ms_before_effect": 2500, "times": 1})).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    // It was asked while nothing was there.
    assert!(stage.told("s", "retry_scheduled").await.contains(&json!({"why": "absent_too_early"})));
    assert_eq!(stage.downstream.lookups().count().await, 2);
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}
