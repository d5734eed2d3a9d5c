//! That a provider owns a job is believed from an owner that has lost its claim, too: it is followed,
//! and never a second one made.

use serde_json::json;

use crate::recovery::stage::{RETRY, Stage, times};
use crate::support::contracts::{blind, looked_up};
use crate::support::process::Process;

/// A worker that is frozen with the provider's acceptance on the way, past its lease.
async fn frozen(stage: &Stage) -> Process {
    stage.downstream.jobs().run_until_told().await;
    stage.downstream.jobs().fault(json!({"delay_ms_after_effect": 500, "times": 1})).await;
    let owner = stage.process("worker", "100ms");
    stage.submit("s").await;
    stage.downstream.jobs().arrived(1, 20).await;
    owner.signal("STOP");
    stage.holds("s", "lease_until < clock_timestamp()").await;
    owner
}

#[tokio::test]
async fn its_job_is_followed_where_recovery_had_to_stop() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.roles("relay,maintain", "100ms");
    let owner = frozen(&stage).await;
    let _successor = stage.process("worker", "100ms");
    stage.ends_for("s", "unknown", "worker_lost").await;
    owner.signal("CONT");
    stage.holds("s", "provider_job = 'J-1'").await;
    stage.downstream.polls().arrived(1, 20).await;
    stage.downstream.jobs().finish("J-1").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "accepted"), times(&trace, "reconciled")), (1, 1), "{trace:?}");
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn its_job_is_followed_where_recovery_was_looking() {
    let stage = Stage::with(|url| looked_up(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.roles("relay,maintain", "5m");
    let owner = frozen(&stage).await;
    let _successor = stage.process("worker", "5m");
    stage.comes_to("s", "retry_scheduled").await;
    owner.signal("CONT");
    stage.comes_to("s", "accepted").await;
    stage.downstream.polls().arrived(2, 20).await;
    stage.downstream.jobs().finish("J-1").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn its_job_contradicts_a_person_who_found_nothing() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.roles("relay,maintain", "100ms");
    let owner = frozen(&stage).await;
    let _successor = stage.process("worker", "100ms");
    stage.ends("s", "unknown").await;
    stage.set("s", "attempts_over_at = clock_timestamp()").await;
    let (code, _, told) = stage.ops("resolve s --not-applied --by ann --reason nothing").await;
    assert_eq!(code, Some(0), "{told}");
    owner.signal("CONT");
    stage.ends_for("s", "unknown", "conflict").await;
    assert_eq!(stage.told("s", "conflict").await, [json!({"job": "J-1"})]);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}
