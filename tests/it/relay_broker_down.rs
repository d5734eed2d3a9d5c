//! A broker that stops, freezes or blocks publishers costs time and nothing else: commits go on, no
//! row is marked, and the same relay publishes everything when the broker is back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use crate::relay_confirms::assert_each_once_by_id;
use crate::support::eventually;
use crate::support::servers::{Ending, Server, Servers};
use crate::support::wire::{Wire, left, rabbitmqctl, submit, tools};
use crate::support::world::World;
use oncebox::runtime::RustTools;

fn run(world: &World) -> crate::support::world::Running {
    let more = [
        ("broker.confirm_timeout", "2s"),
        ("broker.connect_timeout", "3s"),
        ("broker.heartbeat", "5s"),
        ("relay.lease", "8s"),
    ];
    world.run_with("relay", &more, RustTools::default())
}

async fn published(world: &World, seconds: u64) {
    eventually("everything is published", seconds, async || (left(world).await == 0).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stops_three_times_is_found_again_each_time() {
    let mut servers = Servers::start().await;
    let world = servers.world().await;
    tools(&world, &["a"]).await;
    servers.stop(Server::Rabbit, Ending::Orderly).await;
    // The first time it is away when the relay starts.
    let roles = run(&world);
    for round in 1..=3 {
        if round > 1 {
            // A quorum queue that was declared moments before an abrupt end may never confirm again
            // (RabbitMQ 3.10): that is the broker's loss, and not what is tested here.
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            let ending = if round == 3 { Ending::Abrupt } else { Ending::Orderly };
            servers.stop(Server::Rabbit, ending).await;
        }
        submit(&world, "a", round * 100, round * 100 + 29).await;
        assert_eq!(left(&world).await, 30, "round {round}");
        servers.start_again(Server::Rabbit).await;
        submit(&world, "a", round * 100 + 30, round * 100 + 30).await;
        published(&world, 60).await;
    }
    roles.stop().await;
    assert_each_once_by_id(&Wire::of(&world).await.take("a", 1_000).await, 93);
    drop(world);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_or_frozen_broker_lets_commits_go_on_and_marks_nothing() {
    let servers = Servers::start().await;
    let world = servers.world().await;
    tools(&world, &["a"]).await;
    let roles = run(&world);
    submit(&world, "a", 1, 10).await;
    published(&world, 30).await;

    rabbitmqctl(&servers, &["set_vm_memory_high_watermark", "0.00001"]).await;
    submit(&world, "a", 100, 119).await;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(left(&world).await, 20, "nothing is marked while the broker does not read");
    submit(&world, "a", 120, 129).await;
    rabbitmqctl(&servers, &["set_vm_memory_high_watermark", "0.4"]).await;
    published(&world, 60).await;

    servers.pause(Server::Rabbit);
    submit(&world, "a", 200, 219).await;
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    assert_eq!(left(&world).await, 20, "frozen longer than every deadline");
    servers.resume(Server::Rabbit);
    published(&world, 60).await;
    roles.stop().await;
    assert_each_once_by_id(&Wire::of(&world).await.take("a", 1_000).await, 60);
    drop(world);
}
