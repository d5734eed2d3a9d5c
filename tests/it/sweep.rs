//! Losing every message in the broker loses no operation, and what is published again is bounded:
//! nothing is published that waits in the outbox, that is not due, or that another has just published.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::collections::BTreeSet;

use oncebox::domain::operation::Timestamp;
use oncebox::maintain::{Counts, Sweeper};
use oncebox::relay::{Relay, RelaySettings};
use oncebox::store::{self, DatabaseUrl};
use sqlx::Executor as _;

use crate::support::downstream::{Downstream, tickets};
use crate::support::eventually;
use crate::support::wire::{Wire, execute, left, settings, submit, tools, work_until_empty};
use crate::support::world::World;

fn sweeper(world: &World) -> Sweeper {
    Sweeper::new(&DatabaseUrl::new(&world.database), 5_000)
}

/// Operations whose messages are lost, `age` after the last one was written.
async fn lost(world: &World, count: i32, age: &'static str) {
    submit(world, "a", 1, count).await;
    execute(world, "delete from oncebox.outbox").await;
    aged(world, age).await;
}

async fn aged(world: &World, age: &'static str) {
    let sql = match age {
        "61 s" => "update oncebox.operations set queued_at = now() - interval '61 seconds'",
        "119 s" => "update oncebox.operations set queued_at = now() - interval '119 seconds'",
        "121 s" => "update oncebox.operations set queued_at = now() - interval '121 seconds'",
        "1 h" => "update oncebox.operations set queued_at = now() - interval '1 hour'",
        _ => unreachable!("{age}"),
    };
    execute(world, sql).await;
}

async fn swept(sweeper: &mut Sweeper) -> u64 {
    sweeper.run_once().await.unwrap().swept
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_every_message_in_the_broker_loses_no_operation() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    let tool = "tickets.create";
    for step in 0..20 {
        let arguments = format!(r#"{{"subject":"Refund {step}","body":"twice"}}"#);
        let submission = world.submission(tool, &step.to_string(), &arguments);
        world.submit(&submission).await.unwrap();
    }
    work_until_empty(&world, &mut relay, 20).await;
    assert_eq!(wire.purge(tool).await, 20);
    wire.delete_queue(tool).await;
    aged(&world, "61 s").await;
    let roles = world.run("relay,worker,maintain");
    world.settled(30).await;
    roles.stop().await;
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (20, 1));
    assert_eq!(
        world.count("select count(*) from oncebox.operations where status = 'applied'").await,
        20
    );
}

#[tokio::test]
async fn an_hours_backlog_is_never_multiplied() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let (wire, mut sweeper) = (Wire::of(&world).await, sweeper(&world));
    submit(&world, "a", 1, 3_000).await;
    execute(&world, "update oncebox.outbox set due_at = now() - interval '1 hour'").await;
    aged(&world, "1 h").await;
    for _ in 0..3 {
        assert_eq!(sweeper.run_once().await.unwrap(), Counts::default(), "it waits in the outbox");
    }
    // The broker comes back and consumers drain it, with a sweep between any two steps.
    let mut relay = Relay::new(RelaySettings { window: 200, batch: 100, ..settings(&world) });
    let mut seen = Vec::new();
    eventually("the backlog is drained", 90, async || {
        relay.run_once().await.unwrap();
        swept(&mut sweeper).await;
        seen.extend(wire.take("a", 150).await);
        (left(&world).await == 0 && wire.ready("a").await == 0).then_some(())
    })
    .await;
    let distinct: BTreeSet<_> = seen.iter().map(|message| message.operation).collect();
    assert_eq!(distinct.len(), 3_000);
    assert_eq!(seen.len(), 3_000, "nothing was published twice");
}

#[tokio::test]
async fn a_stopped_consumer_adds_at_most_what_the_broker_holds_once() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    submit(&world, "a", 1, 1_000).await;
    let mut relay = Relay::new(RelaySettings { window: 100, batch: 100, ..settings(&world) });
    for _ in 0..5 {
        relay.run_once().await.unwrap();
    }
    let held = u64::try_from(1_000 - left(&world).await).unwrap();
    assert!((1..=100).contains(&held), "{held}");
    aged(&world, "1 h").await;
    assert_eq!(swept(&mut sweeper).await, held);
    for _ in 0..3 {
        relay.run_once().await.unwrap();
        assert_eq!(swept(&mut sweeper).await, 0);
    }
    aged(&world, "1 h").await;
    assert_eq!(swept(&mut sweeper).await, 0, "they wait in the outbox now");
    assert_eq!(left(&world).await, 1_000);
}

#[tokio::test]
async fn each_sweep_doubles_the_time_to_the_next() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    lost(&world, 3, "61 s").await;
    assert_eq!(swept(&mut sweeper).await, 3);
    execute(&world, "delete from oncebox.outbox").await;
    assert_eq!(swept(&mut sweeper).await, 0);
    aged(&world, "119 s").await;
    assert_eq!(swept(&mut sweeper).await, 0, "one minute doubled once has not passed");
    aged(&world, "121 s").await;
    assert_eq!(swept(&mut sweeper).await, 3);
    assert_eq!(world.count("select count(*) from oncebox.operations where sweeps = 2").await, 3);
    execute(&world, "delete from oncebox.outbox").await;
    aged(&world, "121 s").await;
    assert_eq!(swept(&mut sweeper).await, 0);
}

/// The event of an ending before the record was opened again.
#[tokio::test]
async fn a_result_event_that_waits_is_no_message_for_its_record() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    lost(&world, 4, "1 h").await;
    execute(
        &world,
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, due_at, event_routing, event_body) \
         select oncebox.new_id(), 'results', 'acme', operation_id, operation_key, now(), 'acme.a.rejected', '{}' \
         from oncebox.operations",
    )
    .await;
    for change in [
        "update oncebox.operations set phase = 'claimed', owner = 'w', lease_until = now() - interval '1 second' where operation_key like '%:2'",
        "update oncebox.operations set waiting_for_order = true, ordering_key = 'k', order_number = 1 where operation_key like '%:3'",
        "update oncebox.operations set phase = 'parked' where operation_key like '%:4'",
    ] {
        assert_eq!(execute(&world, change).await, 1);
    }
    let counts = sweeper.run_once().await.unwrap();
    assert_eq!((counts.swept, counts.expired, counts.waiters), (1, 1, 1), "{counts:?}");
    execute(&world, "delete from oncebox.outbox where queue <> 'results'").await;
    let now = world.count("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let mut connection = world.connect().await;
    let published = store::republish(&mut connection, Timestamp(now), 100).await.unwrap();
    assert_eq!(published, 2);
}

#[tokio::test]
async fn what_waits_for_something_else_is_not_swept() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    lost(&world, 9, "1 h").await;
    let twins = "update oncebox.operations set twin_digest = 'd', twin_released = operation_key like '%:2' \
                 where operation_key like '%:1' or operation_key like '%:2'";
    assert_eq!(execute(&world, twins).await, 2);
    for change in [
        "update oncebox.operations o set phase = 'held', due_at = now() + interval '1 hour', held_behind = p.operation_id \
         from oncebox.operations p where o.operation_key like '%:1' and p.operation_key like '%:2'",
        "update oncebox.operations set phase = 'awaiting_approval' where operation_key like '%:2'",
        "update oncebox.operations set phase = 'parked' where operation_key like '%:3'",
        "update oncebox.operations set waiting_for_order = true where operation_key like '%:4'",
        "update oncebox.operations set due_at = now() + interval '1 hour' where operation_key like '%:5'",
        "update oncebox.operations set status = 'applied', phase = null where operation_key like '%:6'",
        "update oncebox.operations set status = 'unknown', phase = null where operation_key like '%:7'",
        "update oncebox.operations set phase = 'sent', owner = 'w', lease_until = now() + interval '1 minute' where operation_key like '%:8'",
    ] {
        assert_eq!(execute(&world, change).await, 1);
    }
    for _ in 0..3 {
        sweeper.run_once().await.unwrap();
    }
    let swept: Vec<String> = sqlx::query_scalar("select operation_key from oncebox.outbox")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap();
    assert_eq!(swept, ["acme:test:a:9"]);
}

#[tokio::test]
async fn an_expired_lease_is_published_at_once_and_once() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    submit(&world, "a", 1, 2).await;
    execute(&world, "delete from oncebox.outbox").await;
    for (phase, claimed) in [
        (
            "claimed",
            "update oncebox.operations set phase = 'claimed', owner = 'w', lease_until = now() + interval '400 milliseconds' where operation_key like '%:1'",
        ),
        (
            "sent",
            "update oncebox.operations set phase = 'sent', owner = 'w', lease_until = now() + interval '400 milliseconds', first_sent_at = now() where operation_key like '%:2'",
        ),
    ] {
        assert_eq!(execute(&world, claimed).await, 1, "{phase}");
    }
    let mut published = 0;
    eventually("published at once", 20, async || {
        published += sweeper.run_once().await.unwrap().expired;
        (published == 2).then_some(())
    })
    .await;
    execute(&world, "delete from oncebox.outbox").await;
    for _ in 0..3 {
        assert_eq!(sweeper.run_once().await.unwrap(), Counts::default());
    }
    // That message was lost too.
    execute(
        &world,
        "update oncebox.operations set queued_at = now() - interval '121 seconds', lease_until = now() - interval '3 minutes'",
    )
    .await;
    assert_eq!(sweeper.run_once().await.unwrap().expired, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweepers_at_the_same_time_publish_once() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    lost(&world, 1_000, "1 h").await;
    execute(
        &world,
        "update oncebox.operations set phase = 'claimed', owner = 'w', lease_until = now() - interval '1 second' \
         where order_number is null and operation_key like '%5'",
    )
    .await;
    let mut sweeping = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let mut sweeper = sweeper(&world);
        sweeping.spawn(async move {
            let mut published = 0;
            for _ in 0..4 {
                let counts = sweeper.run_once().await.unwrap();
                published += counts.swept + counts.expired;
            }
            published
        });
    }
    let published: u64 = sweeping.join_all().await.into_iter().sum();
    assert_eq!((published, left(&world).await), (1_000, 1_000));
    assert_eq!(
        world.count("select count(*) from oncebox.operations where sweeps = 1").await,
        1_000
    );
}

#[tokio::test]
async fn a_record_that_changes_under_the_sweep_is_left_alone() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    lost(&world, 2, "1 h").await;
    let mut worker = world.connect().await;
    worker.execute("begin").await.unwrap();
    worker
        .execute("update oncebox.operations set status = 'applied', phase = null where operation_key like '%:1'")
        .await
        .unwrap();
    assert_eq!(swept(&mut sweeper).await, 1, "a locked record is passed over, not waited for");
    worker.execute("commit").await.unwrap();
    assert_eq!(swept(&mut sweeper).await, 0);
    assert_eq!(
        world.count("select count(*) from oncebox.outbox where operation_key like '%:1'").await,
        0
    );
}

#[tokio::test]
async fn records_of_one_moment_that_fill_a_page_hide_none_behind_them() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    lost(&world, 30, "1 h").await;
    execute(
        &world,
        "update oncebox.operations set phase = 'parked' where operation_id in \
         (select operation_id from oncebox.operations order by operation_id limit 25)",
    )
    .await;
    let mut sweeper = Sweeper::new(&DatabaseUrl::new(&world.database), 10);
    let mut published = 0;
    for _ in 0..4 {
        published += swept(&mut sweeper).await;
    }
    assert_eq!(published, 5);
}

#[tokio::test]
async fn republish_does_all_of_it_at_once_and_ends() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    submit(&world, "a", 1, 25).await;
    execute(&world, "delete from oncebox.outbox where operation_key not like '%:1'").await;
    execute(
        &world,
        "update oncebox.operations set phase = 'sent', owner = 'w', lease_until = now() - interval '1 second' \
         where operation_key like '%:2'",
    )
    .await;
    let mut connection = world.connect().await;
    let now = world.count("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    let (mut published, mut rounds) = (0, 0);
    loop {
        let some = store::republish(&mut connection, Timestamp(now), 10).await.unwrap();
        published += some;
        rounds += 1;
        if some == 0 {
            break;
        }
        execute(&world, "delete from oncebox.outbox where operation_key not like '%:1'").await;
    }
    assert_eq!((published, rounds), (24, 4), "the one that waits in the outbox is left there");
}

#[tokio::test]
async fn a_waiter_goes_on_when_its_predecessor_has_ended_and_not_before() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut sweeper = sweeper(&world);
    for step in ["1", "2", "3"] {
        sqlx::query(
            "select oncebox.submit('acme', 'test', 'a', $1, 'a', '1', '{}', ordering_key => 'k')",
        )
        .bind(step)
        .execute(&mut world.connect().await)
        .await
        .unwrap();
    }
    execute(&world, "delete from oncebox.outbox").await;
    execute(
        &world,
        "update oncebox.operations set waiting_for_order = operation_key not like '%:1', queued_at = now() - interval '10 seconds'",
    )
    .await;
    let waiters = async |sweeper: &mut Sweeper| sweeper.run_once().await.unwrap().waiters;
    assert_eq!(waiters(&mut sweeper).await, 0, "the first is pending");
    execute(&world, "update oncebox.operations set status = 'unknown', phase = null where operation_key like '%:1'").await;
    assert_eq!(waiters(&mut sweeper).await, 0, "unknown is not ended");
    execute(
        &world,
        "update oncebox.operations set order_released = true where operation_key like '%:1'",
    )
    .await;
    assert_eq!(waiters(&mut sweeper).await, 1, "released: the second goes, the third does not");
    assert_eq!(waiters(&mut sweeper).await, 0);
    let next: Vec<String> = sqlx::query_scalar("select operation_key from oncebox.outbox")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap();
    assert_eq!(next, ["acme:test:a:2"]);
}
