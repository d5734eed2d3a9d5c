//! What a person found out ends an operation, once no earlier attempt can contradict it any more; all
//! of it is traced with a name and a reason.

use serde_json::json;

use super::stage::{RETRY, Stage, THREE, times};
use crate::consumer::kit;
use crate::support::contracts::{blind, looked_up};

#[tokio::test]
async fn no_effect_is_believed_only_when_the_attempt_is_over() {
    for (finding, reason) in
        [("--not-applied", "resolved_not_applied"), ("--compensated", "compensated")]
    {
        let stage = Stage::with(blind, RETRY).await;
        let roles = stage.run("5m");
        stage.downstream.tickets().drop_answer(1).await;
        stage.submit("s").await;
        stage.ends("s", "unknown").await;
        let line = format!("resolve s {finding} --by ann --reason looked");
        let (code, _, told) = stage.ops(&line).await;
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("an earlier attempt may still be under way"), "{told}");
        assert!(told.contains("this can be said from 20"), "{told}");
        assert_eq!(kit::record(&stage.world, "s").await.status, "unknown");
        stage.set("s", "attempts_over_at = attempts_over_at - interval '5 minutes'").await;
        let (code, _, told) = stage.ops(&line).await;
        assert_eq!(code, Some(0), "{told}");
        let key = stage.column("s", "downstream_key").await;
        stage.ends_for("s", "failed_permanent", reason).await;
        let resolved = stage.told("s", "resolved").await;
        assert_eq!(resolved.len(), 1);
        assert_eq!((&resolved[0]["by"], &resolved[0]["why"]), (&json!("ann"), &json!("looked")));
        let (code, _, told) = stage.ops("retry s --reopen --by ann --reason wanted").await;
        // What was undone was done: a second one takes a new key.
        assert_eq!(code, Some(i32::from(finding == "--compensated")), "{told}");
        if finding == "--not-applied" {
            let record = stage.ends("s", "applied").await;
            assert_eq!(record.receipt.as_deref(), Some("T-2"));
            assert_eq!(stage.column("s", "downstream_key").await, key);
        }
        roles.stop().await;
    }
}

#[tokio::test]
async fn an_effect_is_believed_at_once_and_stops_the_look_ups() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().always(500).await;
    stage.submit("s").await;
    stage.ends("s", "unknown").await;
    let (code, _, told) = stage.ops("resolve s --applied T-1 --by ann --reason seen").await;
    assert_eq!(code, Some(0), "{told}");
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    assert_eq!(stage.column("s", "next_lookup_at").await, None);
    for line in [
        "resolve s --not-applied --by ann --reason x",
        "resolve s --applied T-2 --by ann --reason x",
        "retry s --by ann --reason x",
        "retry s --reopen --by ann --reason x",
    ] {
        let (code, _, told) = stage.ops(line).await;
        assert_eq!(code, Some(1), "{line}: {told}");
    }
    let after = kit::record(&stage.world, "s").await;
    assert_eq!((after.status.as_str(), after.receipt), ("applied", record.receipt));
    roles.stop().await;
}

#[tokio::test]
async fn a_finding_overtakes_a_scheduled_look_up() {
    let stage = Stage::with(looked_up, "retry: {initial: 2s, max: 2s, jitter: 0}").await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    stage.comes_to("s", "retry_scheduled").await;
    let (code, _, told) = stage.ops("resolve s --applied T-1 --by ann --reason seen").await;
    assert_eq!(code, Some(0), "{told}");
    // The message of the look-up comes, and finds that all is said.
    crate::support::eventually("the delivery is replayed", 20, async || {
        (times(&stage.world.trace("s").await, "replayed") == 1).then_some(())
    })
    .await;
    assert_eq!(stage.downstream.lookups().count().await, 0);
    roles.stop().await;
}

#[tokio::test]
async fn a_finding_overtakes_a_look_up_that_is_under_way() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().always(500).await;
    stage.submit("s").await;
    stage.ends("s", "unknown").await;
    stage.downstream.lookups().as_usual().await;
    stage.downstream.lookups().hold().await;
    let asked = stage.downstream.lookups().count().await;
    stage.downstream.lookups().arrived(asked + 1, 20).await;
    let (code, _, told) = stage.ops("resolve s --applied T-1 --by ann --reason seen").await;
    assert_eq!(code, Some(0), "{told}");
    let resolved = kit::record(&stage.world, "s").await;
    stage.downstream.lookups().let_go().await;
    roles.stop().await;
    let after = kit::record(&stage.world, "s").await;
    assert_eq!((after.epoch, after.receipt), (resolved.epoch, resolved.receipt));
    assert_eq!(times(&stage.world.trace("s").await, "conflict"), 0);
}
