//! How events leave the outbox: after their own confirm, beside the operations and never before them.

use std::time::Duration;

use oncebox::relay::{Relay, RelaySettings};

use super::listener::{Listener, declare_otherwise, delete_exchange, exchange, exchange_exists};
use crate::support::eventually;
use crate::support::mute::{Mute, PUBLISH};
use crate::support::process::oncebox;
use crate::support::wire::{
    Wire, execute, host_of, left, settings, settings_through, submit, tools, work_until_empty,
};
use crate::support::world::World;

/// Events of operations that have ended, `count` of them, as settles would have left them.
async fn events(world: &World, count: i32) {
    let mut connection = world.connect().await;
    let written = sqlx::query(
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, due_at, event_routing, event_body) \
         select oncebox.new_id(), 'results', 'acme', gen_random_uuid(), 'acme:test:w:' || n, clock_timestamp(), \
                'acme.a.applied', json_build_object('status', 'applied', 'n', n) \
         from generate_series(1, $1) n",
    )
    .bind(count)
    .execute(&mut connection)
    .await
    .unwrap();
    assert_eq!(written.rows_affected(), u64::try_from(count).unwrap());
}

async fn events_left(world: &World) -> i64 {
    world.count("select count(*) from oncebox.outbox where queue = 'results'").await
}

/// Passes until the outbox holds no operation message; what was done about events meanwhile.
async fn operations_are_out(world: &World, relay: &mut Relay) {
    eventually("the operations are out", 20, async || {
        relay.run_once().await.unwrap();
        (left(world).await == events_left(world).await).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_relay_killed_before_the_removal_publishes_again_under_the_same_id() {
    let world = World::new().await;
    let listener = Listener::to(&world, "#").await;
    events(&world, 1).await;
    let short = RelaySettings { lease: Duration::from_secs(3), ..settings(&world) };
    let mut killed = Relay::new(short);
    eventually("the event is taken", 20, async || {
        (killed.run_once().await.unwrap().taken == 1).then_some(())
    })
    .await;
    // It lives long enough to publish, and does not come to the removal.
    let first = listener.hears(1).await.remove(0);
    drop(killed);
    assert_eq!(left(&world).await, 1);
    work_until_empty(&world, &mut Relay::new(settings(&world)), 20).await;
    let second = listener.hears(1).await.remove(0);
    assert_eq!(first.message_id, second.message_id);
    assert_eq!(first.body, second.body);
}

/// More than a batch and more than a tool's window, while that window is full.
#[tokio::test]
async fn events_have_no_part_in_a_tools_window() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let listener = Listener::to(&world, "acme.#").await;
    let small = RelaySettings { window: 5, batch: 10, ..settings(&world) };
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(small));
    submit(&world, "a", 1, 20).await;
    events(&world, 35).await;
    eventually("the events are out", 20, async || {
        relay.run_once().await.unwrap();
        (events_left(&world).await == 0).then_some(())
    })
    .await;
    assert_eq!(wire.ready("a").await, 5);
    assert_eq!(left(&world).await, 15, "the backlog waits here");
    assert_eq!(listener.hears(35).await.len(), 35);
    // And they take nothing of its room.
    events(&world, 10).await;
    assert_eq!(wire.take("a", 100).await.len(), 5);
    eventually("the window was filled again", 20, async || {
        relay.run_once().await.unwrap();
        (wire.ready("a").await == 5).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_exchange_holds_up_no_operation_and_comes_back() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let listener = Listener::to(&world, "#").await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    events(&world, 1).await;
    work_until_empty(&world, &mut relay, 20).await;
    delete_exchange(&world).await;
    submit(&world, "a", 1, 20).await;
    events(&world, 20).await;
    let counts = relay.run_once().await.unwrap();
    assert_eq!((counts.taken, counts.confirmed), (40, 20), "the operations went out");
    assert_eq!(wire.take("a", 100).await.len(), 20);
    let waits = "select count(*) from oncebox.outbox where queue = 'results' and last_error = 'unconfirmed'";
    eventually("the events wait, visibly", 20, async || {
        relay.run_once().await.unwrap();
        (world.count(waits).await > 0).then_some(())
    })
    .await;
    eventually("the exchange is declared again", 20, async || {
        relay.run_once().await.unwrap();
        exchange_exists(&world).await.then_some(())
    })
    .await;
    listener.bind(&world, "#").await;
    work_until_empty(&world, &mut relay, 60).await;
    events(&world, 1).await;
    work_until_empty(&world, &mut relay, 20).await;
    eventually("events are heard again", 20, async || listener.next().await.map(drop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_is_somebody_elses_stops_events_only_and_is_reported() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    declare_otherwise(&world).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    submit(&world, "a", 1, 20).await;
    events(&world, 3).await;
    operations_are_out(&world, &mut relay).await;
    assert_eq!(wire.take("a", 100).await.len(), 20);
    let untried = "select count(*) from oncebox.outbox where queue = 'results' and attempts = 0";
    assert_eq!(world.count(untried).await, 3);
    let told = oncebox(&world, &["doctor"]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("oncebox.results"), "{told}");
    delete_exchange(&world).await;
    let listener = Listener::to(&world, "#").await;
    work_until_empty(&world, &mut relay, 30).await;
    listener.hears(3).await;
}

/// A listener's queue that refuses: the event is tried again, and the operations go on.
#[tokio::test]
async fn a_listener_that_refuses_holds_up_no_operation() {
    let world = World::new().await;
    tools(&world, &["a", "full"]).await;
    let listener = Listener::to(&world, "nobody").await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    relay.run_once().await.unwrap();
    wire.delete_queue("full").await;
    wire.declare_small("full", 1).await;
    let results = exchange(&world);
    let bind = wire.channel().await;
    bind.queue_bind(
        wire.queue("full").into(),
        results.into(),
        "#".into(),
        Default::default(),
        Default::default(),
    )
    .await
    .unwrap();
    events(&world, 5).await;
    submit(&world, "a", 1, 20).await;
    let nacked =
        "select count(*) from oncebox.outbox where queue = 'results' and last_error = 'nacked'";
    eventually("the events are refused", 20, async || {
        relay.run_once().await.unwrap();
        (world.count(nacked).await > 0).then_some(())
    })
    .await;
    assert_eq!(wire.take("a", 100).await.len(), 20);
    wire.delete_queue("full").await;
    work_until_empty(&world, &mut relay, 60).await;
    assert!(listener.next().await.is_none());
}

/// A listener's queue that has lost most of its replicas confirms nothing.
#[tokio::test(flavor = "multi_thread")]
async fn events_without_an_answer_hold_up_no_operation() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let listener = Listener::to(&world, "#").await;
    let (wire, mute) = (Wire::of(&world).await, Mute::open(&host_of(&world.amqp)).await);
    mute.silence(&[PUBLISH], &exchange(&world));
    let mut slow = settings_through(&world, mute.address);
    slow.broker.confirm_timeout = Duration::from_secs(6);
    slow.lease = Duration::from_secs(10);
    let mut relay = Relay::new(slow);
    events(&world, 20).await;
    eventually("the events are under way", 20, async || {
        (relay.run_once().await.unwrap().taken == 20).then_some(())
    })
    .await;
    for round in 1..=5 {
        submit(&world, "a", round, round).await;
        eventually("the operation's message is there", 20, async || {
            relay.run_once().await.unwrap();
            (wire.take("a", 1).await.len() == 1).then_some(())
        })
        .await;
    }
    let given_up = "select count(*) from oncebox.outbox where queue = 'results' and attempts > 0";
    assert_eq!(world.count(given_up).await, 0, "none of them waited for the events' confirms");
    mute.heal();
    work_until_empty(&world, &mut relay, 60).await;
    assert_eq!(mute.connections(), 1, "no connection was given up");
    listener.hears(20).await;
}

/// A row that no release of ours would write.
#[tokio::test]
async fn an_event_that_can_never_be_published_is_given_up_in_the_trace() {
    let world = World::new().await;
    let listener = Listener::to(&world, "#").await;
    let mut relay = Relay::new(settings(&world));
    events(&world, 3).await;
    execute(&world, "alter table oncebox.outbox drop constraint outbox_traceparent_check").await;
    let spoil = "update oncebox.outbox set traceparent = repeat('x', 200000) where operation_key like '%:2'";
    assert_eq!(execute(&world, spoil).await, 1);
    work_until_empty(&world, &mut relay, 20).await;
    listener.hears(2).await;
    let told = "select count(*) from oncebox.operation_events where event = 'result_unpublishable'";
    assert_eq!(world.count(told).await, 1);
}
