//! However many copies of a message reach however many workers, each key has one effect.

use super::kit;
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;
use oncebox::domain::outcome::Status;

#[tokio::test]
async fn a_hundred_copies_and_five_hundred_keys_make_one_effect_each_with_eight_workers() {
    let (world, downstream) = (World::new().await, Downstream::start_with(&["--no-dedup"]));
    kit::contract(&world, &tickets(&downstream.url, "concurrency: {process: 32}")).await;
    let slow = serde_json::json!({"on": "tickets", "delay_ms_before_effect": 200});
    downstream.control(slow).await;
    kit::declare(&world, &["tickets.create"]).await;
    kit::submit_all(&world, "tickets.create", (0..500).map(|n| format!("s{n}"))).await;
    let (channel, copy) = (kit::channel(&world).await, kit::envelope(&world, "s250").await);
    for _ in 0..100 {
        kit::publish(&world, &channel, "tickets.create", &copy).await;
    }
    let workers: Vec<_> = (0..8).map(|_| kit::worker(&world, "same")).collect();
    let relay = kit::roles(&world, "relay,maintain", &[]);
    world.settled(60).await;
    let counted = downstream.effects().await;
    assert_eq!(counted["total"], 500);
    assert_eq!(downstream.most_per_key().await, 1);
    assert_eq!(
        world.count("select count(*) from oncebox.operations where status = 'applied'").await,
        500
    );
    assert_eq!(world.count("select count(*) from oncebox.dead_letters").await, 0);
    let broker = oncebox::broker::Broker::connect(&world.broker("look")).await.unwrap();
    crate::support::eventually("every copy is acked", 20, async || {
        (broker.ready_count("tickets.create").await.unwrap() == 0).then_some(())
    })
    .await;
    drop((workers, relay));
}

#[tokio::test]
async fn copies_in_one_batch_are_one_effect_and_are_all_acked() {
    let (world, downstream) = (World::new().await, Downstream::start_with(&["--no-dedup"]));
    world.contract(&tickets(&downstream.url, "")).await;
    kit::declare(&world, &["tickets.create"]).await;
    kit::submit(&world, "tickets.create", "s1").await;
    let (channel, copy) = (kit::channel(&world).await, kit::envelope(&world, "s1").await);
    // All are there before the worker is, so that they come in one batch.
    for _ in 0..30 {
        kit::publish(&world, &channel, "tickets.create", &copy).await;
    }
    let roles = world.run("worker");
    kit::ends(&world, "s1", "applied").await;
    let queue = world.broker("look");
    let broker = oncebox::broker::Broker::connect(&queue).await.unwrap();
    crate::support::eventually("nothing is left in the queue", 20, async || {
        (broker.ready_count("tickets.create").await.unwrap() == 0).then_some(())
    })
    .await;
    roles.stop().await;
    assert_eq!(broker.ready_count("tickets.create").await.unwrap(), 0, "none was given back");
    assert_eq!(downstream.total().await, 1);
}

#[tokio::test]
async fn a_changed_request_is_rejected_while_the_first_runs_and_afterwards() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "concurrency: {process: 64}")).await;
    downstream.control(serde_json::json!({"pause": true})).await;
    let roles = world.run("relay,worker");
    kit::submit_all(&world, "tickets.create", (0..50).map(|n| format!("s{n}"))).await;
    kit::arrived(&downstream, 50).await;
    for running in [true, false] {
        let asks = (0..50).map(async |n| {
            let step = format!("s{n}");
            let same = kit::submission(&world, "tickets.create", &step);
            let other =
                world.submission("tickets.create", &step, r#"{"subject":"another amount"}"#);
            tokio::join!(world.submit(&same), world.submit(&other))
        });
        for (same, other) in futures::future::join_all(asks).await {
            let (same, other) = (same.unwrap(), other.unwrap());
            let expected = if running { Status::InFlight } else { Status::Replayed };
            assert_eq!((same.status, same.effect_reference.is_some()), (expected, !running));
            assert_eq!(other.status, Status::Rejected);
            assert_eq!(other.reason, Some("operation_key_reused_with_different_request"));
            assert!(other.response.is_none() && other.effect_reference.is_none());
        }
        downstream.control(serde_json::json!({"pause": false})).await;
        world.settled(20).await;
    }
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (50, 1));
    roles.stop().await;
}
