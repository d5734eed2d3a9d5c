//! Proof of an effect is accepted late and from anyone; what contradicts the record is a conflict that
//! a person sees.

use serde_json::json;

use super::stage::{RETRY, Stage, THREE, times};
use crate::consumer::kit;
use crate::support::contracts::{blind, looked_up};
use crate::support::eventually;
use crate::support::process::Process;

/// A worker that is frozen with the answer to its request on the way, past its lease.
async fn frozen(stage: &Stage) -> Process {
    stage.downstream.tickets().fault(json!({"delay_ms_after_effect": 500, "times": 1})).await;
    let owner = stage.process("worker", "100ms");
    stage.submit("s").await;
    stage.downstream.effect(20).await;
    owner.signal("STOP");
    stage.holds("s", "lease_until < clock_timestamp()").await;
    owner
}

#[tokio::test]
async fn a_stale_owners_receipt_settles_an_unknown_operation() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.roles("relay,maintain", "100ms");
    stage.downstream.lookups().always(500).await;
    let owner = frozen(&stage).await;
    let _successor = stage.process("worker", "100ms");
    let unknown = stage.ends("s", "unknown").await;
    owner.signal("CONT");
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    assert!(record.epoch > unknown.epoch);
    assert_eq!(times(&stage.world.trace("s").await, "reconciled"), 1);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_stale_owners_receipt_contradicts_a_person_who_found_nothing() {
    let stage = Stage::with(blind, RETRY).await;
    let roles = stage.roles("relay,maintain", "100ms");
    let owner = frozen(&stage).await;
    let _successor = stage.process("worker", "100ms");
    stage.ends_for("s", "unknown", "worker_lost").await;
    // The longest that a pause was said to be has passed; this one is longer.
    stage.set("s", "attempts_over_at = clock_timestamp()").await;
    let (code, _, told) = stage.ops("resolve s --not-applied --by ann --reason nothing").await;
    assert_eq!(code, Some(0), "{told}");
    owner.signal("CONT");
    let record = stage.ends_for("s", "unknown", "conflict").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"), "the evidence is kept");
    assert_eq!(stage.told("s", "conflict").await, [json!({"receipt": "T-1"})]);
    let (_, shown, _) = stage.ops("show s").await;
    assert!(shown.contains("conflict") && shown.contains("T-1"), "{shown}");
    // Who weighed it has the last word.
    let (code, _, told) = stage.ops("resolve s --applied T-1 --by ann --reason seen").await;
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(stage.ends("s", "applied").await.receipt.as_deref(), Some("T-1"));
    roles.stop().await;
}

#[tokio::test]
async fn a_stale_owners_receipt_does_not_undo_applied() {
    let stage = Stage::with(blind, RETRY).await;
    let roles = stage.roles("relay,maintain", "100ms");
    let owner = frozen(&stage).await;
    let _successor = stage.process("worker", "100ms");
    stage.ends("s", "unknown").await;
    let (code, _, told) = stage.ops("resolve s --applied T-99 --by ann --reason seen").await;
    assert_eq!(code, Some(0), "{told}");
    owner.signal("CONT");
    let record = stage.ends_for("s", "applied", "conflict").await;
    assert_eq!(record.receipt.as_deref(), Some("T-99"));
    assert_eq!(stage.told("s", "conflict").await, [json!({"receipt": "T-1"})]);
    roles.stop().await;
}

#[tokio::test]
async fn a_stale_owner_without_proof_changes_nothing() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.roles("relay,maintain", "100ms");
    stage.downstream.lookups().always(500).await;
    let refused = json!({"delay_ms_before_effect": 700, "status": 422, "times": 1});
    stage.downstream.tickets().fault(refused).await;
    let owner = stage.process("worker", "100ms");
    stage.submit("s").await;
    stage.downstream.tickets().arrived(1, 20).await;
    owner.signal("STOP");
    stage.holds("s", "lease_until < clock_timestamp()").await;
    let _successor = stage.process("worker", "100ms");
    let unknown = stage.ends("s", "unknown").await;
    owner.signal("CONT");
    eventually("the late owner is told", 20, async || {
        (times(&stage.world.trace("s").await, "lease_lost") == 2).then_some(())
    })
    .await;
    let record = kit::record(&stage.world, "s").await;
    assert_eq!((record.status.as_str(), record.epoch), ("unknown", unknown.epoch));
    roles.stop().await;
}

#[tokio::test]
async fn evidence_that_the_database_refuses_stays_in_the_trace() {
    let stage = Stage::with(blind, RETRY).await;
    let refusing = "create function oncebox.test_refuse() returns trigger language plpgsql as $$ begin \
            if new.effect_reference is not null then \
              raise exception 'refused' using errcode = 'check_violation'; end if; return new; end $$; \
         create trigger test_refuse before update on oncebox.operations for each row execute function oncebox.test_refuse()";
    sqlx::raw_sql(refusing).execute(&mut stage.world.connect().await).await.unwrap();
    let roles = stage.run("100ms");
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "store_failed").await;
    assert!(record.sent && record.receipt.is_none());
    assert_eq!(stage.told("s", "committed").await, [json!({"receipt": "T-1"})]);
    assert_eq!(stage.told("s", "unknown").await, [json!({"reason": "store_failed"})]);
    roles.stop().await;
}
