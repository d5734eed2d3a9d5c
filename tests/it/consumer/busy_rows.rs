//! A row that somebody holds locked delays nobody but its own operation, and is never handed back to
//! the broker for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oncebox::runtime::RustTools;
use oncebox::tool::{Call, Gate};
use tokio::sync::Semaphore;

use super::kit::{self, Scripted};
use crate::support::downstream::{Downstream, tickets};
use crate::support::{eventually, world::World};

const ALL_OTHERS: &str = "select count(*) from oncebox.operations where status = 'applied' and operation_key not like '%:held'";

async fn steps_with_one_held(world: &World, tool: &str) {
    let steps = (0..10).map(|n| format!("a{n}")).chain(["held".to_owned()]);
    kit::submit_all(world, tool, steps.chain((0..10).map(|n| format!("b{n}")))).await;
}

async fn the_others_end(world: &World) {
    eventually("the others are applied", 10, async || {
        (world.count(ALL_OTHERS).await == 20).then_some(())
    })
    .await;
}

#[tokio::test]
async fn at_the_claim() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    steps_with_one_held(&world, "tickets.create").await;
    let held = kit::hold_row(&world, "held").await;
    let roles = world.run("relay,worker");
    the_others_end(&world).await;
    // Asked for again inside the process for a second, then put off and acked.
    let put_off = "select count(*) from oncebox.outbox x join oncebox.operations o using (operation_id) \
        where o.operation_key like '%:held' and x.due_at > clock_timestamp() and x.attempts = 0";
    eventually("its message is put off", 10, async || {
        (world.count(put_off).await == 1).then_some(())
    })
    .await;
    assert_eq!(kit::record(&world, "held").await.epoch, 0);
    drop(held);
    kit::ends(&world, "held", "applied").await;
    assert_eq!(downstream.total().await, 21);
    roles.stop().await;
}

/// A tool whose operations stand at `before`, then open their gates, then stand at `after`.
fn standing(
    effects: &Arc<AtomicU64>,
    before: &Arc<Semaphore>,
    after: &Arc<Semaphore>,
) -> RustTools {
    let (effects, before, after) = (Arc::clone(effects), Arc::clone(before), Arc::clone(after));
    let tool = Scripted(move |call: Call, gate: Gate| {
        let (effects, before, after) =
            (Arc::clone(&effects), Arc::clone(&before), Arc::clone(&after));
        async move {
            drop(before.acquire().await.unwrap());
            let sending = match gate.open().await {
                Ok(sending) => sending,
                Err(closed) => return closed,
            };
            effects.fetch_add(1, Ordering::SeqCst);
            drop(after.acquire().await.unwrap());
            kit::applied(sending, &call)
        }
    });
    RustTools::default().with("rust.one", "1", Arc::new(tool))
}

async fn all_claimed(world: &World) {
    let claimed = "select count(*) from oncebox.operations where claim_epoch > 0";
    eventually("all are claimed", 20, async || (world.count(claimed).await == 21).then_some(()))
        .await;
}

#[tokio::test]
async fn at_the_sent_mark_of_a_blind_tool() {
    let world = World::new().await;
    world.contract(&kit::blind_rust_contract("rust.one", "concurrency: {process: 32}")).await;
    let effects = Arc::new(AtomicU64::new(0));
    let (before, after) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
    steps_with_one_held(&world, "rust.one").await;
    let roles = world.run_with("relay,worker", &[], standing(&effects, &before, &after));
    all_claimed(&world).await;
    let held = kit::hold_row(&world, "held").await;
    before.add_permits(1);
    the_others_end(&world).await;
    assert_eq!(kit::record(&world, "held").await.phase.as_deref(), Some("claimed"));
    assert_eq!(effects.load(Ordering::SeqCst), 20, "not sent without its mark");
    drop(held);
    let record = kit::ends(&world, "held", "applied").await;
    assert_eq!((record.attempts, effects.load(Ordering::SeqCst)), (1, 21));
    roles.stop().await;
}

#[tokio::test]
async fn at_the_settle() {
    let world = World::new().await;
    world.contract(&kit::blind_rust_contract("rust.one", "concurrency: {process: 32}")).await;
    let effects = Arc::new(AtomicU64::new(0));
    let (before, after) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(0)));
    steps_with_one_held(&world, "rust.one").await;
    let roles = world.run_with("relay,worker", &[], standing(&effects, &before, &after));
    eventually("all run", 20, async || (effects.load(Ordering::SeqCst) == 21).then_some(())).await;
    let held = kit::hold_row(&world, "held").await;
    after.add_permits(1);
    the_others_end(&world).await;
    assert_eq!(kit::record(&world, "held").await.phase.as_deref(), Some("sent"));
    drop(held);
    kit::ends(&world, "held", "applied").await;
    assert_eq!(effects.load(Ordering::SeqCst), 21);
    roles.stop().await;
}

#[tokio::test]
async fn a_place_that_becomes_free_is_taken_at_once() {
    let world = World::new().await;
    world.contract(&kit::blind_rust_contract("rust.one", "concurrency: {process: 1}")).await;
    let effects = Arc::new(AtomicU64::new(0));
    let tool = kit::counting(&effects, |_| async {});
    let tools = RustTools::default().with("rust.one", "1", tool);
    kit::submit_all(&world, "rust.one", (0..40).map(|n| format!("s{n}"))).await;
    // Nothing but the end of one operation wakes the next: no maintain, no later message.
    let roles = world.run_with("relay,worker", &[], tools);
    world.settled(20).await;
    assert_eq!(effects.load(Ordering::SeqCst), 40);
    roles.stop().await;
}
