//! A lost channel, queue or connection is noticed and repaired in bounded time, and what was
//! unfinished ends as one effect.

use std::time::Duration;

use lapin::{Connection, ConnectionProperties};
use oncebox::broker::Names;
use serde_json::json;

use super::kit;
use crate::support::cutter::Cutter;
use crate::support::downstream::{Downstream, tickets};
use crate::support::servers::Servers;
use crate::support::{eventually, world::World};

#[tokio::test]
async fn an_acknowledgement_that_took_too_long_costs_a_channel_and_no_effect() {
    let servers = Servers::start().await;
    servers.rabbit_eval(
        "application:set_env(rabbit,consumer_timeout,3000), application:set_env(rabbit,channel_tick_interval,1000).",
    );
    let world = servers.world().await;
    let downstream = Downstream::start();
    let contract = tickets(&downstream.url, "").replace("timeout: 2s", "timeout: 20s");
    kit::contract(&world, &contract).await;
    downstream.control(json!({"delay_ms_before_effect": 8000, "times": 1})).await;
    let roles = world.run_with("relay,worker", kit::MARGIN, Default::default());
    kit::submit(&world, "tickets.create", "slow").await;
    kit::arrived(&downstream, 1).await;
    // Its message comes again on the next channel and finds it in flight.
    eventually("the channel was closed and the message came again", 30, async || {
        world.trace("slow").await.iter().any(|event| event == "in_flight").then_some(())
    })
    .await;
    kit::submit_all(&world, "tickets.create", (0..20).map(|n| format!("s{n}"))).await;
    world.settled(30).await;
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (21, 1));
    assert_eq!(downstream.effects().await["requests"], 21);
    roles.stop().await;
}

#[tokio::test]
async fn a_deleted_queue_is_declared_again_and_its_operations_go_on() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let roles = world.run("relay,worker,maintain");
    kit::submit(&world, "tickets.create", "before").await;
    kit::ends(&world, "before", "applied").await;
    let connection =
        Connection::connect(&world.amqp, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let queue = Names::new(&world.prefix).unwrap().tool("tickets.create");
    channel.queue_delete(queue.as_str().into(), Default::default()).await.unwrap();
    kit::submit(&world, "tickets.create", "after").await;
    kit::ends(&world, "after", "applied").await;
    assert_eq!(downstream.total().await, 2);
    roles.stop().await;
}

#[tokio::test]
async fn a_connection_that_is_cut_or_falls_silent_is_made_again() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let (cutter, through) = Cutter::before(&world.amqp).await;
    let relay = world.run("relay,maintain");
    let settings = [("broker.url", through.as_str()), ("broker.heartbeat", "1s")];
    let worker = world.run_with("worker", &settings, Default::default());
    for round in 0..3 {
        downstream.control(json!({"pause": true})).await;
        let steps = (0..10).map(|n| format!("{round}-{n}"));
        let before = downstream.effects().await["requests"].as_u64().unwrap();
        kit::submit_all(&world, "tickets.create", steps).await;
        kit::arrived(&downstream, before + 10).await;
        // The effects end while there is nobody to ack to.
        if round == 1 {
            cutter.swallow_answers(true)
        } else {
            cutter.cut()
        }
        downstream.control(json!({"pause": false})).await;
        world.settled(20).await;
        if round == 1 {
            eventually("the silent connection is given up", 30, async || {
                (cutter.live() == 0).then_some(())
            })
            .await;
            cutter.swallow_answers(false);
        }
    }
    let broker = oncebox::broker::Broker::connect(&world.broker("look")).await.unwrap();
    eventually("everything that came again is acked", 30, async || {
        (broker.ready_count("tickets.create").await.unwrap() == 0).then_some(())
    })
    .await;
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (30, 1));
    assert_eq!(downstream.effects().await["requests"], 30, "what came again started nothing");
    worker.stop().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_worker_stops_in_time_though_broker_and_database_are_away() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let (database, to_database) = Cutter::before(&world.database).await;
    let (broker, to_broker) = Cutter::before(&world.amqp).await;
    let settings = [
        ("ONCEBOX_WORKER_DRAIN", "3s"),
        ("DATABASE_URL", to_database.as_str()),
        ("AMQP_URL", to_broker.as_str()),
        ("ONCEBOX_BROKER_CONNECT_TIMEOUT", "2s"),
    ];
    let relay = world.run("relay");
    let mut worker = kit::roles(&world, "worker", &settings);
    kit::submit(&world, "tickets.create", "s").await;
    kit::ends(&world, "s", "applied").await;
    for proxy in [&database, &broker] {
        proxy.swallow_answers(true);
    }
    kit::submit(&world, "tickets.create", "t").await;
    let began = std::time::Instant::now();
    assert_eq!(worker.stop(60), Some(0), "it ends by itself");
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    relay.stop().await;
}
