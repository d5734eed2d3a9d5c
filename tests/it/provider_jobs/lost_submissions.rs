//! A job whose acceptance was lost is never submitted a second time unless the provider knows our key
//! or no job can be left.

use std::time::Duration;

use serde_json::json;

use crate::consumer::kit;
use crate::recovery::stage::{RETRY, Stage, times};
use crate::support::contracts::{ContractText, blind, deduplicating, looked_up};

/// What can become of the answer to a submission that made a job.
fn lost() -> [(&'static str, serde_json::Value); 4] {
    [
        ("dropped", json!({"drop_response": true, "times": 1})),
        ("cut", json!({"truncate": true, "times": 1})),
        ("no_job", json!({"garbage": "receipt", "times": 1})),
        ("error", json!({"status_after_effect": 500, "times": 1})),
    ]
}

#[tokio::test]
async fn a_provider_that_knows_our_key_names_the_same_job_again() {
    let stage = Stage::with(|url| deduplicating(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().take(Duration::from_secs(1)).await;
    for (step, fault) in lost() {
        stage.downstream.jobs().fault(fault).await;
        stage.submit(step).await;
        let record = stage.ends(step, "applied").await;
        assert_eq!(record.attempts, 2, "{step}");
        let key = stage.column(step, "downstream_key").await.unwrap();
        let job = stage.column(step, "provider_job").await.unwrap();
        assert_eq!(stage.downstream.jobs().under(&key).await, [job], "{step}");
        assert_eq!(stage.downstream.effects_of(&key).await, 1, "{step}");
    }
    roles.stop().await;
}

#[tokio::test]
async fn where_it_can_only_be_looked_up_its_effect_is_waited_for() {
    for (step, fault) in lost() {
        // The job takes longer than any stall: absent while it runs, and no second one is made.
        let stage = Stage::with(|url| looked_up(url).jobs("300ms", "10s"), RETRY).await;
        let roles = stage.run("100ms");
        stage.downstream.jobs().take(Duration::from_millis(2500)).await;
        stage.downstream.jobs().fault(fault).await;
        stage.submit(step).await;
        stage.downstream.lookups().arrived(1, 20).await;
        // Somebody asks often.
        stage.downstream.effect(20).await;
        let (code, _, told) = stage.ops(&format!("retry {step} --by ann --reason now")).await;
        assert_eq!(code, Some(0), "{step}: {told}");
        let record = stage.ends(step, "applied").await;
        assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")), "{step}");
        assert_eq!(stage.downstream.effects().await["requests"], 1, "{step}");
        roles.stop().await;
    }
}

#[tokio::test]
async fn where_it_can_be_looked_up_it_is_submitted_again_when_no_job_can_be_left() {
    let stage = Stage::with(|url| looked_up(url).jobs("300ms", "1s"), RETRY).await;
    let roles = stage.run("500ms");
    stage.downstream.jobs().take(Duration::from_millis(200)).await;
    stage.downstream.jobs().drop_connection(1).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    let waited = stage.seconds("s", "committed", "reconciled").await;
    assert!(waited >= 1.5, "absent was believed after {waited} s");
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn where_nobody_can_be_asked_it_is_unknown() {
    for (step, fault) in lost() {
        let stage = Stage::with(|url| blind(url).jobs("300ms", "10s"), RETRY).await;
        let roles = stage.run("100ms");
        stage.downstream.jobs().take(Duration::from_millis(200)).await;
        stage.downstream.jobs().fault(fault).await;
        stage.submit(step).await;
        stage.ends_for(step, "unknown", "no_proof").await;
        assert_eq!(stage.column(step, "next_lookup_at").await, None, "{step}");
        assert_eq!(stage.downstream.effects().await["requests"], 1, "{step}");
        roles.stop().await;
    }
}

#[tokio::test]
async fn a_worker_killed_before_it_wrote_the_jobs_name() {
    let kinds: [(&str, fn(&str) -> ContractText); 3] =
        [("applied", deduplicating), ("applied", looked_up), ("unknown", blind)];
    for (status, kind) in kinds {
        let stage = Stage::with(|url| kind(url).jobs("300ms", "10s"), RETRY).await;
        let roles = stage.roles("relay,maintain", "100ms");
        stage.downstream.jobs().take(Duration::from_secs(3)).await;
        let barrier = kit::stop_before(&stage.world, "accepted").await;
        let mut first = stage.process("worker", "100ms");
        stage.submit("s").await;
        kit::stands_there(&stage.world).await;
        first.kill();
        drop(barrier);
        let _second = stage.process("worker", "100ms");
        let record = stage.ends("s", status).await;
        let tool = &stage.tool;
        if status == "unknown" {
            assert_eq!(record.reason.as_deref(), Some("worker_lost"), "{tool}");
        }
        stage.downstream.effect(20).await;
        assert_eq!(stage.downstream.total().await, 1, "{tool}");
        let key = match status {
            "unknown" => record.id.to_string(),
            _ => stage.column("s", "downstream_key").await.unwrap(),
        };
        assert_eq!(stage.downstream.jobs().under(&key).await, ["J-1"], "{tool}");
        roles.stop().await;
    }
}

#[tokio::test]
async fn a_job_that_fails_after_an_unproved_submission_proves_nothing_about_that_one() {
    // Who deduplicates in truth had one job only; what the contract promises is not what happened.
    let stage = Stage::with(|url| deduplicating(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.jobs().break_after(Duration::from_secs(1)).await;
    stage.downstream.jobs().drop_answer(1).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "refused_after_unproved").await;
    assert!(record.sent);
    assert_eq!(stage.column("s", "next_lookup_at").await, None, "nobody is left to ask");
    roles.stop().await;
}

#[tokio::test]
async fn a_job_that_fails_after_an_unproved_submission_has_the_effect_looked_up() {
    let contract = |url: &str| deduplicating(url).also_looked_up().jobs("300ms", "1s");
    let stage = Stage::with(contract, RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.jobs().break_after(Duration::from_millis(500)).await;
    stage.downstream.jobs().drop_answer(1).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "failed_permanent", "refused").await;
    assert!(!record.sent, "looked up, and proved");
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "sent"), times(&trace, "reconciled")), (2, 1), "{trace:?}");
    assert_eq!(stage.downstream.total().await, 0);
    roles.stop().await;
}
