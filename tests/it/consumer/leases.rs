//! Work that is alive is not repeated, however long it takes; a worker that cannot extend its lease
//! stops by its own clock; an identity belongs to one process start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncebox::runtime::RustTools;

use super::kit;
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;

#[tokio::test]
async fn a_tool_that_runs_four_times_its_lease_is_not_repeated() {
    let world = World::new().await;
    kit::contract(&world, &kit::blind_rust_contract("rust.one", kit::QUICK)).await;
    let effects = Arc::new(AtomicU64::new(0));
    let tool = kit::counting(&effects, |_| tokio::time::sleep(Duration::from_secs(8)));
    let tools = RustTools::default().with("rust.one", "1", tool);
    let first = world.run_with("relay,worker,maintain", kit::MARGIN, tools.clone());
    let second = world.run_with("worker", kit::MARGIN, tools);
    kit::submit(&world, "rust.one", "s").await;
    let record = kit::ends(&world, "s", "applied").await;
    assert_eq!((record.attempts, record.lost_claims), (1, 0));
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    let trace = world.trace("s").await;
    assert_eq!(trace.iter().filter(|event| *event == "claimed").count(), 1, "{trace:?}");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_renewal_that_finds_its_row_locked_is_tried_again() {
    let world = World::new().await;
    let lease = "lease: 4s\nretry: {initial: 100ms, max: 300ms}";
    kit::contract(&world, &kit::blind_rust_contract("rust.one", lease)).await;
    let effects = Arc::new(AtomicU64::new(0));
    let tool = kit::counting(&effects, |_| tokio::time::sleep(Duration::from_secs(7)));
    let tools = RustTools::default().with("rust.one", "1", tool);
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, tools);
    kit::submit(&world, "rust.one", "s").await;
    kit::until(&world, "s", "it runs", |record| record.phase.as_deref() == Some("sent")).await;
    let began = std::time::Instant::now();
    let held = kit::hold_row(&world, "s").await;
    // Past the moment of the first renewal, a third of the lease, and short of its end.
    crate::support::eventually("renewals have met the lock", 5, async || {
        (began.elapsed() > Duration::from_millis(2300)).then_some(())
    })
    .await;
    drop(held);
    let record = kit::ends(&world, "s", "applied").await;
    assert_eq!((record.attempts, effects.load(Ordering::SeqCst)), (1, 1));
    roles.stop().await;
}

#[tokio::test]
async fn a_tool_whose_lease_cannot_be_extended_is_stopped_and_nothing_is_called_done() {
    let world = World::new().await;
    kit::contract(&world, &kit::blind_rust_contract("rust.one", kit::QUICK)).await;
    let (effects, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ended = Arc::clone(&ends);
    let tool = kit::counting(&effects, move |_| {
        let ended = Arc::clone(&ended);
        async move {
            tokio::time::sleep(Duration::from_secs(6)).await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    });
    let tools = RustTools::default().with("rust.one", "1", tool);
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, tools);
    kit::submit(&world, "rust.one", "s").await;
    kit::until(&world, "s", "it runs", |record| record.phase.as_deref() == Some("sent")).await;
    let held = kit::hold_row(&world, "s").await;
    let over = "select count(*) from oncebox.operations where lease_until < clock_timestamp() - interval '2 seconds'";
    crate::support::eventually("the lease is over", 20, async || {
        (world.count(over).await == 1).then_some(())
    })
    .await;
    drop(held);
    let record = kit::ends(&world, "s", "unknown").await;
    assert_eq!((record.attempts, record.sent), (1, true));
    assert_eq!((effects.load(Ordering::SeqCst), ends.load(Ordering::SeqCst)), (1, 0));
    roles.stop().await;
}

#[tokio::test]
async fn two_starts_under_one_name_have_two_identities() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let relay = world.run("relay");
    let mut owners = Vec::new();
    for step in ["s1", "s2"] {
        let mut worker = kit::worker(&world, "same");
        kit::submit(&world, "tickets.create", step).await;
        kit::ends(&world, step, "applied").await;
        assert_eq!(worker.stop(20), Some(0));
        let owner: String = sqlx::query_scalar(
            "select owner from oncebox.operation_events where event = 'claimed' and operation_id = $1",
        )
        .bind(kit::record(&world, step).await.id)
        .fetch_one(&mut world.connect().await)
        .await
        .unwrap();
        assert!(owner.starts_with("same:"), "{owner}");
        owners.push(owner);
    }
    assert_ne!(owners[0], owners[1]);
    relay.stop().await;
}
