//! A job that fails ends its operation; one that does not end leaves it unknown, is never submitted a
//! second time, and still settles it when it ends later.

use std::time::Duration;

use serde_json::json;

use crate::recovery::stage::{RETRY, Stage, times};
use crate::support::contracts::{blind, deduplicating};

#[tokio::test]
async fn a_job_that_fails_proves_that_nothing_was_done() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().break_after(Duration::from_millis(500)).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "failed_permanent", "job_failed").await;
    assert!(!record.sent);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    // A person has it tried again: another job, under the same key.
    stage.downstream.jobs().take(Duration::from_millis(100)).await;
    let (code, _, told) = stage.ops("retry s --reopen --by ann --reason mended").await;
    assert_eq!(code, Some(0), "{told}");
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    assert_eq!(stage.column("s", "provider_job").await.as_deref(), Some("J-2"));
    roles.stop().await;
}

#[tokio::test]
async fn a_job_that_does_not_end_is_unknown_and_settles_when_it_ends() {
    for kind in [deduplicating, blind] {
        let stage = Stage::with(|url| kind(url).jobs("300ms", "1s"), RETRY).await;
        let roles = stage.run("100ms");
        stage.downstream.jobs().run_until_told().await;
        stage.submit("s").await;
        let record = stage.ends_for("s", "unknown", "job_unfinished").await;
        assert!(record.sent);
        let asked = stage.downstream.polls().count().await;
        stage.downstream.polls().arrived(asked + 3, 20).await;
        stage.downstream.jobs().finish("J-1").await;
        let record = stage.ends("s", "applied").await;
        assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
        assert_eq!(times(&stage.world.trace("s").await, "reconciled"), 1);
        assert_eq!(stage.downstream.effects().await["requests"], 1, "one job");
        roles.stop().await;
    }
}

#[tokio::test]
async fn a_job_that_fails_late_ends_the_unknown_operation() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "1s"), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.jobs().run_until_told().await;
    stage.submit("s").await;
    stage.ends_for("s", "unknown", "job_unfinished").await;
    stage.downstream.jobs().break_off("J-1").await;
    let record = stage.ends_for("s", "failed_permanent", "job_failed").await;
    assert!(!record.sent);
    assert_eq!(stage.told("s", "reconciled").await, [json!({"found": "job_failed"})]);
    roles.stop().await;
}

#[tokio::test]
async fn after_the_give_up_a_person_makes_it_be_asked_again() {
    let retry = "retry: {initial: 100ms, max: 300ms, jitter: 0, give_up: 1s}";
    let stage = Stage::with(|url| blind(url).jobs("300ms", "1s"), retry).await;
    let roles = stage.run("100ms");
    stage.downstream.jobs().run_until_told().await;
    stage.submit("s").await;
    stage.ends_for("s", "unknown", "job_unfinished").await;
    stage.holds("s", "next_lookup_at is null").await;
    stage.downstream.jobs().finish("J-1").await;
    let (code, _, told) = stage.ops("retry s --by ann --reason done").await;
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(stage.ends("s", "applied").await.receipt.as_deref(), Some("T-1"));
    roles.stop().await;
}

#[tokio::test]
async fn a_provider_that_forgot_the_job_is_asked_for_its_effect() {
    let contract = |url: &str| deduplicating(url).also_looked_up().jobs("300ms", "1s");
    let stage = Stage::with(contract, RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.jobs().take(Duration::from_millis(1500)).await;
    stage.downstream.polls().always(404).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert!(stage.downstream.lookups().count().await >= 1);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_job_that_is_done_is_held_against_the_postcondition() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s").postcondition(), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.jobs().take(Duration::from_millis(100)).await;
    stage.downstream.postconditions().always(500).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "postcondition_unreachable").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    stage.downstream.postconditions().as_usual().await;
    stage.ends("s", "applied").await;
    stage.downstream.postconditions().always(404).await;
    stage.submit("t").await;
    stage.ends_for("t", "unknown", "postcondition_failed").await;
    roles.stop().await;
}

#[tokio::test]
async fn a_person_ends_what_its_provider_does_not() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("1s");
    stage.downstream.jobs().run_until_told().await;
    stage.submit("s").await;
    stage.comes_to("s", "accepted").await;
    stage.holds("s", "attempts_over_at < clock_timestamp()").await;
    let (code, _, told) = stage.ops("resolve s --not-applied --by ann --reason cancelled").await;
    assert_eq!(code, Some(0), "{told}");
    stage.ends_for("s", "failed_permanent", "resolved_not_applied").await;
    // It was not cancelled after all; a message that is still under way finds out nothing.
    stage.downstream.jobs().finish("J-1").await;
    let asked = stage.downstream.polls().count().await;
    crate::support::eventually("the last message is dealt with", 20, async || {
        let none = "select count(*) from oncebox.outbox";
        (stage.world.count(none).await == 0).then_some(())
    })
    .await;
    assert!(stage.downstream.polls().count().await <= asked + 1);
    roles.stop().await;
}
