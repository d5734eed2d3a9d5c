//! Every committed row is published, whichever transaction commits last; and neither rows that wait,
//! nor rows that fail, nor dead rows under an old snapshot hold up the others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use oncebox::relay::Relay;
use oncebox::runtime::RustTools;
use oncebox::store;
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use crate::relay_confirms::assert_each_once_by_id;
use crate::support::cutter::Cutter;
use crate::support::eventually;
use crate::support::process::{Process, oncebox};
use crate::support::servers::Servers;
use crate::support::wire::{
    Wire, execute, host_of, left, settings, submit, through, tools, work_until_empty,
};
use crate::support::world::World;

async fn begin(world: &World) -> PgConnection {
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    connection
}

async fn submit_in(connection: &mut PgConnection, step: &str) {
    sqlx::query("select oncebox.submit('acme', 'test', 'w', $1, 'a', '1', '{}')")
        .bind(step)
        .execute(connection)
        .await
        .unwrap();
}

/// Empties the queue and lets relays see that: one that waits for nothing looks at nothing, so that
/// the next thing it asks of the broker is a batch.
async fn rest(wire: &Wire) {
    assert_eq!(wire.take("a", 10).await.len(), 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// Passes for a time.
async fn work(relay: &mut Relay, time: Duration) -> u32 {
    let (began, mut passes) = (Instant::now(), 0);
    while began.elapsed() < time {
        relay.run_once().await.unwrap();
        passes += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    passes
}

#[tokio::test]
async fn a_row_that_commits_after_younger_ones_is_not_skipped() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    let mut slow = begin(&world).await;
    submit_in(&mut slow, "slow").await;
    for step in 0..8 {
        submit(&world, "a", step, step).await;
        work(&mut relay, Duration::from_millis(700)).await;
    }
    assert_eq!(left(&world).await, 0);
    slow.execute("commit").await.unwrap();
    assert_eq!(left(&world).await, 1);
    work_until_empty(&world, &mut relay, 20).await;
    assert_each_once_by_id(&wire.take("a", 100).await, 9);
}

#[tokio::test]
async fn a_transaction_that_is_open_holds_the_horizon() {
    let world = World::new().await;
    let mut look = world.connect().await;
    let mut open = begin(&world).await;
    open.execute("create table something (n int)").await.unwrap();
    let id = sqlx::query_scalar("select pg_current_xact_id()::text::bigint");
    let id: i64 = id.fetch_one(&mut open).await.unwrap();
    let before = store::horizon(&mut look).await.unwrap();
    assert!(before.begun_below > id, "it has begun, although nothing after it has ended");
    for _ in 0..3 {
        execute(&world, "insert into oncebox.settings values (gen_random_uuid()::text, '')").await;
    }
    let during = store::horizon(&mut look).await.unwrap();
    assert!(during.begun_below > before.begun_below);
    assert!(during.ended_below < before.begun_below, "what had begun before has not ended");
    open.execute("rollback").await.unwrap();
    eventually("the horizon passes when it has ended", 20, async || {
        let after = store::horizon(&mut look).await.unwrap();
        (after.ended_below >= before.begun_below).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_row_is_dated_after_its_transaction_got_its_id() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut first = begin(&world).await;
    submit_in(&mut first, "same").await;
    let mut second = world.connect().await;
    let waiting = tokio::spawn(async move {
        submit_in(&mut second, "same").await;
        second.close().await.ok();
    });
    eventually("the second submission waits for the first", 4, async || {
        let waits = world
            .count(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                 and datname = current_database()",
            )
            .await;
        (waits == 1).then_some(())
    })
    .await;
    // While it waits it has no id: a mark may pass this moment.
    let horizon = store::horizon(&mut world.connect().await).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.execute("rollback").await.unwrap();
    waiting.await.unwrap();
    let micros: i64 = world
        .count("select (extract(epoch from due_at) * 1000000)::bigint from oncebox.outbox")
        .await;
    assert!(micros > horizon.at.0, "dated before its transaction could be seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_writers_of_any_duration_lose_no_row_and_publish_no_rolled_back_one() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let roles = world.run_with("relay", &[("relay.poll", "200ms")], RustTools::default());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..50_u64 {
        let database = world.database.clone();
        writers.spawn(async move {
            let mut connection = PgConnection::connect(&database).await.unwrap();
            for round in 0..4_u64 {
                let dice = (writer * 7_919 + round * 104_729) % 1_000;
                connection.execute("begin").await.unwrap();
                submit_in(&mut connection, &format!("{writer}-{round}")).await;
                // Most are short, some outlast several moves of the mark.
                let pause = if dice < 40 { 6_000 } else { dice % 300 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let end = if dice % 5 == 0 { "rollback" } else { "commit" };
                connection.execute(end).await.unwrap();
            }
            connection.close().await.unwrap();
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    eventually("every committed row is out", 30, async || (left(&world).await == 0).then_some(()))
        .await;
    roles.stop().await;
    let committed: Vec<Uuid> = sqlx::query_scalar("select operation_id from oncebox.operations")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap();
    assert!(committed.len() > 100 && committed.len() < 200, "{}", committed.len());
    let seen = Wire::of(&world).await.take("a", 1_000).await;
    let seen: BTreeSet<Uuid> = seen.iter().map(|message| message.operation).collect();
    assert_eq!(seen, committed.into_iter().collect());
}

/// `(index entries visited, sequential scans)` on the outbox so far.
async fn visited(world: &World) -> (i64, i64) {
    let entries = world
        .count(
            "select coalesce(sum(idx_tup_read), 0)::bigint from pg_stat_user_indexes where relname = 'outbox'",
        )
        .await;
    let scans =
        world.count("select seq_scan from pg_stat_user_tables where relname = 'outbox'").await;
    (entries, scans)
}

#[tokio::test]
async fn dead_rows_under_an_old_snapshot_are_not_walked_over_at_every_pass() {
    const DEAD: i64 = 200_000;
    // Any open transaction of the server holds the mark: other tests' would too.
    let servers = Servers::start().await;
    let world = servers.world().await;
    tools(&world, &["a"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    // Statements are planned while the table is as good as empty.
    for step in 0..10 {
        submit(&world, "a", step, step).await;
        relay.run_once().await.unwrap();
    }
    let mut old = world.connect().await;
    old.execute("begin isolation level repeatable read").await.unwrap();
    old.execute("select count(*) from oncebox.outbox").await.unwrap();
    execute(
        &world,
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, due_at) \
         select oncebox.new_id(), 'a', 'acme', gen_random_uuid(), 'acme:test:w:' || n, clock_timestamp() \
         from generate_series(1, 200000) n",
    )
    .await;
    execute(&world, "delete from oncebox.outbox").await;
    // The mark moves past them: two looks at the horizon, and what a date may lie before an id.
    work(&mut relay, Duration::from_secs(5)).await;
    let (entries, scans) = visited(&world).await;
    let mut passes = 0;
    for step in 100..105 {
        submit(&world, "a", step, step).await;
        passes += work(&mut relay, Duration::from_secs(1)).await;
    }
    assert_eq!(left(&world).await, 0, "new rows are found meanwhile");
    // The relay's session hands its counts over about once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    relay.run_once().await.unwrap();
    let (more_entries, more_scans) = visited(&world).await;
    let a_pass = (more_entries - entries) / i64::from(passes);
    assert!(a_pass < DEAD / 10, "{a_pass} entries visited in each of {passes} passes");
    assert!(more_scans - scans <= 1, "the whole table was read {} times", more_scans - scans);
    old.execute("commit").await.unwrap();
    assert_eq!(wire.take("a", 100).await.len(), 15);
    drop(world);
}

#[tokio::test]
async fn delayed_rows_wait_outside_and_leave_near_their_time() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    execute(
        &world,
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, due_at) \
         select oncebox.new_id(), 'a', 'acme', gen_random_uuid(), 'acme:test:w:' || n, clock_timestamp() + interval '10 minutes' \
         from generate_series(1, 20000) n",
    )
    .await;
    execute(
        &world,
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, due_at) \
         select oncebox.new_id(), 'a', 'acme', gen_random_uuid(), 'acme:test:x:' || n, clock_timestamp() + make_interval(secs => n) \
         from unnest(array[0, 1, 2, 4]) n",
    )
    .await;
    let roles = world.run_with("relay", &[("relay.poll", "20s")], RustTools::default());
    let wire = Wire::of(&world).await;
    // Nothing commits any more: each leaves because it is due, not because of the poll.
    eventually("the short ones did not wait for the long ones", 15, async || {
        (wire.ready("a").await == 4).then_some(())
    })
    .await;
    assert_eq!(left(&world).await, 20_000);
    roles.stop().await;
}

#[tokio::test]
async fn two_hundred_failing_rows_do_not_hold_up_two_hundred_good_ones() {
    let world = World::new().await;
    tools(&world, &["a", "full"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    relay.run_once().await.unwrap();
    wire.delete_queue("full").await;
    wire.declare_small("full", 0).await;
    submit(&world, "full", 1, 200).await;
    submit(&world, "a", 1, 200).await;
    let mut relay = Relay::new(oncebox::relay::RelaySettings { batch: 50, ..settings(&world) });
    for _ in 0..8 {
        relay.run_once().await.unwrap();
    }
    assert_eq!(world.count("select count(*) from oncebox.outbox where queue = 'a'").await, 0);
    assert_each_once_by_id(&wire.take("a", 500).await, 200);
    assert_eq!(left(&world).await, 200, "and none of the others was given up");
    let tried = world.count("select min(attempts)::bigint from oncebox.outbox").await;
    assert!(tried > 0, "each was tried, and waits longer each time");
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_side_by_side_publish_everything_under_one_id_each_even_when_one_freezes() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let wire = Wire::of(&world).await;
    let valve = Cutter::open(&host_of(&world.amqp)).await;
    let mut command = oncebox(&world, &["run", "--role", "relay"]);
    command
        .env("AMQP_URL", through(&world.amqp, valve.address()))
        .env("ONCEBOX_RELAY_LEASE", "8s")
        .env("ONCEBOX_WORKER_MARGIN", "1s")
        .env("ONCEBOX_BROKER_CONFIRM_TIMEOUT", "5s");
    let mut frozen = Process::start(command);
    submit(&world, "a", 1, 1).await;
    eventually("the first relay works", 30, async || (left(&world).await == 0).then_some(())).await;
    rest(&wire).await;
    // It sends its batch and hears nothing: frozen there, it holds a lease and wakes up without one.
    valve.swallow_answers(true);
    submit(&world, "a", 2, 2_001).await;
    eventually("it has taken rows", 20, async || {
        let taken = world
            .count("select count(*) from oncebox.outbox where due_at > now() + interval '1 second'")
            .await;
        (taken > 0).then_some(())
    })
    .await;
    frozen.signal("STOP");
    let more = [("relay.lease", "8s"), ("broker.confirm_timeout", "2s"), ("relay.publishers", "3")];
    let roles = world.run_with("relay", &more, RustTools::default());
    let mut seen = Vec::new();
    eventually("the others take over", 60, async || {
        seen.extend(wire.take("a", 3_000).await);
        (left(&world).await == 0).then_some(())
    })
    .await;
    valve.swallow_answers(false);
    frozen.signal("CONT");
    submit(&world, "a", 2_002, 2_011).await;
    eventually("all is out", 30, async || (left(&world).await == 0).then_some(())).await;
    roles.stop().await;
    frozen.kill();
    seen.extend(wire.take("a", 5_000).await);
    assert_each_once_by_id(&seen, 2_010);
    // The frozen relay's batches went out twice, no more.
    assert!(seen.len() <= 2_010 + 1_000, "{} messages", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_killed_in_the_middle_of_a_batch_gives_its_rows_back_by_doing_nothing() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let valve = Cutter::open(&host_of(&world.amqp)).await;
    let run = |amqp: String| {
        let mut command = oncebox(&world, &["run", "--role", "relay"]);
        command
            .env("AMQP_URL", amqp)
            .env("ONCEBOX_RELAY_WINDOW", "10000")
            .env("ONCEBOX_RELAY_LEASE", "7s")
            .env("ONCEBOX_WORKER_MARGIN", "1s")
            .env("ONCEBOX_BROKER_CONFIRM_TIMEOUT", "5s");
        Process::start(command)
    };
    let mut killed = run(through(&world.amqp, valve.address()));
    submit(&world, "a", 1, 1).await;
    eventually("it works", 30, async || (left(&world).await == 0).then_some(())).await;
    let wire = Wire::of(&world).await;
    rest(&wire).await;
    valve.swallow_answers(true);
    submit(&world, "a", 2, 800).await;
    eventually("it has taken rows", 20, async || {
        let taken = world
            .count("select count(*) from oncebox.outbox where due_at > now() + interval '1 second'")
            .await;
        (taken > 0).then_some(())
    })
    .await;
    killed.kill();
    assert_eq!(left(&world).await, 799);
    let mut next = run(world.amqp.clone());
    eventually("another publishes them", 40, async || (left(&world).await == 0).then_some(()))
        .await;
    assert_eq!(next.stop(20), Some(0));
    assert_each_once_by_id(&wire.take("a", 3_000).await, 799);
}
