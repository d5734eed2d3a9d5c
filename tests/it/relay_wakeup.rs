//! A commit wakes an idle relay long before its poll; notifications are only a hint, and committers
//! are not asked for any while a relay works.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use oncebox::runtime::RustTools;
use sqlx::Executor as _;
use sqlx::postgres::PgListener;
use tokio::time::timeout;

use crate::support::cutter::Cutter;
use crate::support::eventually;
use crate::support::wire::{Wire, execute, host_of, left, read, submit, through, tools};
use crate::support::world::World;

const SLEEPERS: &str = "select count(*) from pg_locks where locktype = 'advisory' and granted \
     and database = (select oid from pg_database where datname = current_database())";

async fn asleep(world: &World) {
    eventually("a relay sleeps and says so", 20, async || {
        (world.count(SLEEPERS).await > 0).then_some(())
    })
    .await;
}

/// The median time from a commit to its message's arrival at a consumer.
async fn median_latency(world: &World, from: i32, count: i32) -> Duration {
    // A queue that was declared a moment ago may answer its first consumer with an internal error,
    // which ends that connection (RabbitMQ 3.10, see the README on young queues).
    let (_wire, channel, mut consumer) = eventually("the queue takes a consumer", 20, async || {
        let wire = Wire::of(world).await;
        let channel = wire.channel().await;
        let no_ack = lapin::options::BasicConsumeOptions { no_ack: true, ..Default::default() };
        let queue = wire.queue("a").into();
        let consumer = channel.basic_consume(queue, "t".into(), no_ack, Default::default()).await;
        Some((wire, channel, consumer.ok()?))
    })
    .await;
    let mut connection = world.connect().await;
    let mut latencies = Vec::new();
    for step in from..from + count {
        asleep(world).await;
        sqlx::query("select oncebox.submit('acme', 'test', 'a', $1::text, 'a', '1', '{}')")
            .bind(step)
            .execute(&mut connection)
            .await
            .unwrap();
        let committed = Instant::now();
        let delivery = timeout(Duration::from_secs(20), consumer.next()).await.expect("arrives");
        read(&delivery.unwrap().unwrap());
        latencies.push(committed.elapsed());
    }
    channel.close(200, "seen".into()).await.ok();
    latencies.sort();
    latencies[latencies.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_wakes_an_idle_relay_long_before_its_poll() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let poll = Duration::from_secs(5);
    let roles = world.run_with("relay", &[("relay.poll", "5s")], RustTools::default());
    let median = median_latency(&world, 0, 31).await;
    assert!(median < poll / 20, "{median:?}");
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_cut_costs_one_poll_and_comes_back() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let roles = world.run_with("relay", &[("relay.poll", "2s")], RustTools::default());
    median_latency(&world, 0, 1).await;
    let cut = execute(
        &world,
        "select pg_terminate_backend(pid) from pg_stat_activity \
         where datname = current_database() and query ilike '%advisory%' and pid <> pg_backend_pid()",
    )
    .await;
    assert!(cut > 0, "there were listeners");
    submit(&world, "a", 1_000, 1_000).await;
    eventually("found within the poll", 10, async || (left(&world).await == 0).then_some(())).await;
    let median = median_latency(&world, 2_000, 11).await;
    assert!(median < Duration::from_secs(2) / 4, "woken again: {median:?}");
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listening_connection_that_falls_silent_holds_up_nothing() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let valve = Cutter::open(&host_of(&world.database)).await;
    let direct = through(&world.database, valve.address());
    let more = [("database.listen_url", direct.as_str()), ("relay.poll", "1s")];
    let roles = world.run_with("relay", &more, RustTools::default());
    asleep(&world).await;
    valve.swallow_answers(true);
    // Busy, then idle, again and again: each time the relay would tell committers about it.
    for round in 0..5 {
        for step in 0..40 {
            submit(&world, "a", round * 100 + step, round * 100 + step).await;
        }
        eventually("all are out", 15, async || (left(&world).await == 0).then_some(())).await;
    }
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listening_address_that_never_answers_holds_up_nothing() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = through(&world.database, nobody.local_addr().unwrap());
    let more = [("database.listen_url", silent.as_str()), ("relay.poll", "500ms")];
    let roles = world.run_with("relay", &more, RustTools::default());
    for step in 0..10 {
        submit(&world, "a", step, step).await;
        eventually("it is out", 5, async || (left(&world).await == 0).then_some(())).await;
    }
    roles.stop().await;
}

/// Counts notifications in a task until told to stop.
struct Ear {
    listener: PgListener,
}

impl Ear {
    async fn of(world: &World) -> Self {
        let mut listener = PgListener::connect(&world.database).await.unwrap();
        listener.listen("oncebox_outbox").await.unwrap();
        Self { listener }
    }

    async fn heard(&mut self) -> usize {
        let mut count = 0;
        while timeout(Duration::from_millis(500), self.listener.recv()).await.is_ok() {
            count += 1;
        }
        count
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_notify_only_while_a_relay_sleeps() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut ear = Ear::of(&world).await;
    for step in 0..20 {
        submit(&world, "a", step, step).await;
    }
    assert_eq!(ear.heard().await, 0, "nobody sleeps");
    let mut sleeper = world.connect().await;
    sleeper.execute("select pg_advisory_lock(31365095596650360)").await.unwrap();
    submit(&world, "a", 100, 120).await;
    assert_eq!(ear.heard().await, 1, "one for a transaction, however many rows it has");
    let delayed = "select oncebox.submit('acme', 'test', 'a', 'later', 'a', '1', '{}', not_before => now() + interval '1 hour')";
    execute(&world, delayed).await;
    assert_eq!(ear.heard().await, 0, "what is not due wakes nobody");
    sleeper.execute("begin").await.unwrap();
    submit(&world, "a", 200, 200).await;
    assert_eq!(ear.heard().await, 1);
    sleeper.execute("rollback; select pg_advisory_unlock_all()").await.unwrap();
    submit(&world, "a", 300, 300).await;
    assert_eq!(ear.heard().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_with_a_backlog_asks_nobody_to_wake_it() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    submit(&world, "a", 1, 300).await;
    let more = [("relay.window", "50"), ("relay.batch", "50"), ("relay.publishers", "1")];
    let roles = world.run_with("relay", &more, RustTools::default());
    let wire = Wire::of(&world).await;
    eventually("the window is full", 20, async || (wire.ready("a").await >= 50).then_some(()))
        .await;
    eventually("nobody sleeps", 20, async || (world.count(SLEEPERS).await == 0).then_some(()))
        .await;
    let mut ear = Ear::of(&world).await;
    for step in 1_000..1_100 {
        submit(&world, "a", step, step).await;
    }
    assert_eq!(ear.heard().await, 0, "committers queued behind each other for nothing");
    roles.stop().await;
}
