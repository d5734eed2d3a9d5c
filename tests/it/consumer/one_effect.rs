//! However many copies of a message reach however many workers, each key has one effect.

use super::kit;
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;

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
