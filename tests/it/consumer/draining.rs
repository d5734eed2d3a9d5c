//! SIGTERM cancels first, lets running effects end and be acked, gives back what was not started, and
//! leaves what does not end in time to its lease.

use super::kit;
use crate::support::downstream::{Downstream, tickets};
use crate::support::{eventually, world::World};

async fn ready(world: &World) -> u32 {
    let broker = oncebox::broker::Broker::connect(&world.broker("look")).await.unwrap();
    let ready = broker.ready_count("tickets.create").await.unwrap();
    broker.close().await;
    ready
}

#[tokio::test]
async fn running_effects_end_and_the_rest_goes_back() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let contract = tickets(&downstream.url, "concurrency: {process: 10}");
    kit::contract(&world, &contract.replace("timeout: 2s", "timeout: 8s")).await;
    let slow = serde_json::json!({"delay_ms_before_effect": 1500});
    downstream.control(slow).await;
    kit::submit_all(&world, "tickets.create", (0..30).map(|n| format!("s{n}"))).await;
    let relay = world.run("relay");
    let mut first = kit::roles(&world, "worker", &[("ONCEBOX_WORKER_DRAIN", "10s")]);
    kit::arrived(&downstream, 10).await;
    eventually("the prefetch is taken", 20, async || {
        let published = world.count("select count(*) from oncebox.outbox").await == 0;
        (published && ready(&world).await == 10).then_some(())
    })
    .await;
    assert_eq!(first.stop(10), Some(0), "it ends by itself within the grace time");
    assert_eq!(downstream.effects().await["requests"], 10, "nothing was started after the stop");
    assert_eq!(
        world.count("select count(*) from oncebox.operations where status = 'applied'").await,
        10
    );
    assert_eq!(
        world.count("select count(*) from oncebox.operations where lease_until is not null").await,
        0
    );
    assert_eq!(world.count("select count(*) from oncebox.operations where claim_epoch > 0 and status = 'pending'").await, 0);
    assert_eq!(ready(&world).await, 20, "the ten that ended are acked, the others are back");
    assert_eq!(world.count("select count(*) from oncebox.workers").await, 0, "it has signed off");
    downstream.reset().await;
    let second = kit::worker(&world, "next");
    world.settled(20).await;
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (30, 1));
    let replayed = "select count(*) from oncebox.operation_events where event = 'replayed'";
    assert_eq!(world.count(replayed).await, 0, "none came twice");
    drop(second);
    relay.stop().await;
}

#[tokio::test]
async fn an_effect_that_does_not_end_in_time_is_left_to_its_lease() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let contract = tickets(&downstream.url, "lease: 60s").replace("timeout: 2s", "timeout: 50s");
    kit::contract(&world, &contract).await;
    downstream.control(serde_json::json!({"pause": true})).await;
    let relay = world.run_with("relay,maintain", kit::MARGIN, Default::default());
    let mut first = kit::roles(&world, "worker", &[("ONCEBOX_WORKER_DRAIN", "2s")]);
    kit::submit(&world, "tickets.create", "s").await;
    kit::arrived(&downstream, 1).await;
    assert_eq!(first.stop(15), Some(0), "the effect takes a minute, the process does not");
    let left = kit::record(&world, "s").await;
    assert_eq!(left.phase.as_deref(), Some("sent"));
    assert!(left.owner.is_some(), "neither applied nor lost: its lease runs");
    downstream.control(serde_json::json!({"pause": false})).await;
    sqlx::query("update oncebox.operations set lease_until = clock_timestamp()")
        .execute(&mut world.connect().await)
        .await
        .unwrap();
    let second = kit::worker(&world, "next");
    kit::ends(&world, "s", "applied").await;
    assert_eq!(downstream.total().await, 1);
    drop(second);
    relay.stop().await;
}
