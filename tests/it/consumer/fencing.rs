//! An owner that wakes up after its lease changes nothing, unless it brings proof of the effect.

use super::kit::{self, Record};
use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::process::Process;
use crate::support::world::{Running, World};

/// A lease of 4 s, so that an owner frozen at its call is past it while its successor is not.
const LEASE: &str = "lease: 4s\nretry: {initial: 100ms, max: 300ms, jitter: 0}";

/// A worker that was frozen while its call was under way, past its lease.
struct Frozen {
    world: World,
    downstream: Downstream,
    owner: Process,
    claim: Record,
    /// Dropped, they stop.
    roles: Running,
}

async fn frozen(tool: &str, fault: serde_json::Value) -> Frozen {
    let (world, downstream) = (World::new().await, Downstream::start());
    for contract in [tickets(&downstream.url, LEASE), mails(&downstream.url, LEASE)] {
        kit::contract(&world, &contract).await;
    }
    let roles = world.run_with("relay,maintain", kit::MARGIN, Default::default());
    downstream.control(fault).await;
    // The broker notices soon that nobody answers there, and gives its messages to others.
    let soon = [("ONCEBOX_WORKER_NAME", "same"), ("ONCEBOX_BROKER_HEARTBEAT", "1s")];
    let owner = kit::roles(&world, "worker", &soon);
    kit::submit(&world, tool, "s").await;
    kit::arrived(&downstream, 1).await;
    owner.signal("STOP");
    let claim = kit::record(&world, "s").await;
    let over = "select count(*) from oncebox.operations where lease_until < clock_timestamp()";
    crate::support::eventually("the lease is over", 20, async || {
        (world.count(over).await == 1).then_some(())
    })
    .await;
    Frozen { world, downstream, owner, claim, roles }
}

async fn told_that_it_lost(world: &World, claim: &Record) {
    crate::support::eventually("the late owner is told", 20, async || {
        let told: i64 = sqlx::query_scalar(
            "select count(*) from oncebox.operation_events \
             where operation_id = $1 and event = 'lease_lost' and owner = $2 and claim_epoch = $3 and detail is null",
        )
        .bind(claim.id)
        .bind(&claim.owner)
        .bind(claim.epoch)
        .fetch_one(&mut world.connect().await)
        .await
        .unwrap();
        (told > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn at_its_heartbeat_it_neither_extends_nor_ends_its_successors_claim() {
    let Frozen { world, downstream, owner, claim, roles: _roles } =
        frozen("tickets.create", serde_json::json!({"pause": true})).await;
    let successor = kit::worker(&world, "same");
    kit::arrived(&downstream, 2).await;
    owner.signal("CONT");
    told_that_it_lost(&world, &claim).await;
    let now = kit::record(&world, "s").await;
    assert_ne!(now.owner, claim.owner, "one name, two identities");
    assert!(now.epoch > claim.epoch);
    downstream.control(serde_json::json!({"pause": false})).await;
    kit::ends(&world, "s", "applied").await;
    assert_eq!(downstream.total().await, 1);
    drop(successor);
}

#[tokio::test]
async fn its_late_refusal_changes_nothing() {
    let refused = serde_json::json!({"delay_ms_before_effect": 1000, "status": 404, "times": 1});
    let Frozen { world, downstream, owner, claim, roles: _roles } =
        frozen("tickets.create", refused).await;
    let successor = kit::worker(&world, "same");
    let applied = kit::ends(&world, "s", "applied").await;
    owner.signal("CONT");
    told_that_it_lost(&world, &claim).await;
    let after = kit::record(&world, "s").await;
    assert_eq!(
        (after.status, after.receipt, after.epoch),
        (applied.status, applied.receipt, applied.epoch)
    );
    assert_eq!(downstream.total().await, 1);
    drop(successor);
}

#[tokio::test]
async fn its_late_receipt_settles_what_its_successor_had_to_call_unknown() {
    let slow = serde_json::json!({"on": "mail", "delay_ms_after_effect": 500, "times": 1});
    let Frozen { world, downstream, owner, claim, roles: _roles } = frozen("mail.send", slow).await;
    let successor = kit::worker(&world, "same");
    let unknown = kit::ends(&world, "s", "unknown").await;
    assert_eq!(unknown.reason.as_deref(), Some("worker_lost"));
    owner.signal("CONT");
    let applied = kit::ends(&world, "s", "applied").await;
    assert!(
        applied.receipt.is_some() && applied.epoch > unknown.epoch && unknown.epoch > claim.epoch
    );
    let trace = world.trace("s").await;
    assert!(trace.iter().any(|event| event == "reconciled"), "{trace:?}");
    assert_eq!(downstream.effects().await["requests"], 1);
    drop(successor);
}

#[tokio::test]
async fn its_late_receipt_is_acknowledged_when_it_is_the_stored_one() {
    let slow = serde_json::json!({"delay_ms_after_effect": 500, "times": 1});
    let Frozen { world, owner, claim, downstream: _downstream, roles: _roles } =
        frozen("tickets.create", slow).await;
    let successor = kit::worker(&world, "same");
    let applied = kit::ends(&world, "s", "applied").await;
    owner.signal("CONT");
    crate::support::eventually("the late owner has acked", 20, async || {
        let acked: i64 = sqlx::query_scalar(
            "select count(*) from oncebox.operation_events where operation_id = $1 and event = 'acknowledged'",
        )
        .bind(claim.id)
        .fetch_one(&mut world.connect().await)
        .await
        .unwrap();
        // Told of with the next batch: another operation makes one.
        kit::submit(&world, "tickets.create", &uuid::Uuid::new_v4().to_string()).await;
        (acked == 2).then_some(())
    })
    .await;
    let after = kit::record(&world, "s").await;
    assert_eq!((after.receipt, after.epoch), (applied.receipt, applied.epoch));
    let trace = world.trace("s").await;
    assert_eq!(trace.iter().filter(|event| *event == "settled").count(), 1, "{trace:?}");
    assert!(!trace.iter().any(|event| event == "conflict"), "{trace:?}");
    drop(successor);
}
