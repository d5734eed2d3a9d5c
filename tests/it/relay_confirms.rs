//! Nothing leaves the outbox before the broker's own confirm for it, whatever happens to the queue,
//! the exchange, the connection or the relay; and then it does leave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::collections::BTreeSet;

use oncebox::relay::{Relay, RelayError};

use crate::support::cutter::Cutter;
use crate::support::eventually;
use crate::support::wire::{
    Seen, Wire, host_of, left, settings, settings_through, submit, tools, work_until_empty,
};
use crate::support::world::World;

/// Every operation arrived, and copies carry the message id of the first.
pub(crate) fn assert_each_once_by_id(seen: &[Seen], operations: usize) {
    let distinct: BTreeSet<&Seen> = seen.iter().collect();
    let found: BTreeSet<_> = seen.iter().map(|message| message.operation).collect();
    assert_eq!(found.len(), operations, "operations that arrived");
    assert_eq!(distinct.len(), operations, "a copy has the message id of its row");
}

async fn errors(world: &World) -> i64 {
    world.count("select count(*) from oncebox.outbox where last_error is not null").await
}

#[tokio::test]
async fn an_unroutable_message_stays_until_it_can_be_routed() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    submit(&world, "a", 1, 1).await;
    work_until_empty(&world, &mut relay, 20).await;
    wire.unbind("a").await;
    submit(&world, "a", 2, 11).await;
    let counts = relay.run_once().await.unwrap();
    assert_eq!(
        (counts.confirmed, counts.given_back),
        (0, 10),
        "acked by the broker, yet not stored"
    );
    assert_eq!(left(&world).await, 10);
    assert_eq!(
        world.count("select count(*) from oncebox.outbox where last_error = 'unroutable' and attempts = 1").await,
        10
    );
    work_until_empty(&world, &mut relay, 30).await;
    assert_each_once_by_id(&wire.take("a", 100).await, 11);
}

#[tokio::test]
async fn a_deleted_queue_comes_back_with_the_messages_that_missed_it() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    submit(&world, "a", 1, 1).await;
    work_until_empty(&world, &mut relay, 20).await;
    wire.delete_queue("a").await;
    submit(&world, "a", 2, 11).await;
    work_until_empty(&world, &mut relay, 30).await;
    assert_each_once_by_id(&wire.take("a", 100).await, 10);
}

#[tokio::test]
async fn what_a_full_queue_refuses_stays_and_holds_up_no_other_queue() {
    let world = World::new().await;
    tools(&world, &["a", "b"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    relay.run_once().await.unwrap();
    wire.delete_queue("a").await;
    wire.declare_small("a", 2).await;
    let mut relay = Relay::new(settings(&world));
    submit(&world, "a", 1, 40).await;
    submit(&world, "b", 1, 40).await;
    let counts = relay.run_once().await.expect("a queue that differs is used as it is");
    assert!(counts.given_back > 0, "{counts:?}");
    assert_eq!(world.count("select count(*) from oncebox.outbox where queue = 'b'").await, 0);
    let refused =
        world.count("select count(*) from oncebox.outbox where last_error = 'nacked'").await;
    assert_eq!(refused, left(&world).await);
    let mut seen = Vec::new();
    eventually("all were taken when there was room", 60, async || {
        relay.run_once().await.ok();
        seen.extend(wire.take("a", 100).await);
        (left(&world).await == 0).then_some(())
    })
    .await;
    seen.extend(wire.take("a", 100).await);
    assert_each_once_by_id(&seen, 40);
    assert_each_once_by_id(&wire.take("b", 100).await, 40);
}

#[tokio::test]
async fn a_deleted_exchange_marks_nothing_as_published() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    submit(&world, "a", 1, 1).await;
    work_until_empty(&world, &mut relay, 20).await;
    wire.delete_exchange().await;
    submit(&world, "a", 2, 101).await;
    let counts = relay.run_once().await.unwrap();
    assert_eq!((counts.taken, counts.confirmed, left(&world).await), (100, 0, 100));
    work_until_empty(&world, &mut relay, 30).await;
    assert_each_once_by_id(&wire.take("a", 200).await, 101);
}

#[tokio::test]
async fn confirms_that_never_come_leave_every_row_and_end_in_bounded_time() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let cutter = Cutter::open(&host_of(&world.amqp)).await;
    let (wire, mut relay) =
        (Wire::of(&world).await, Relay::new(settings_through(&world, cutter.address())));
    submit(&world, "a", 1, 1).await;
    work_until_empty(&world, &mut relay, 20).await;
    for (round, cut) in [(1, true), (2, false)] {
        cutter.swallow_answers(true);
        submit(&world, "a", round * 20, round * 20 + 19).await;
        let counts = relay.run_once().await.unwrap();
        assert_eq!((counts.confirmed, counts.given_back), (0, 20), "round {round}");
        assert_eq!((left(&world).await, errors(&world).await), (20, 20), "round {round}");
        if cut {
            cutter.cut();
        } else {
            // Half-open: the next pass finds a connection that gives no answer.
            let error = relay.run_once().await.unwrap_err();
            assert!(matches!(error, RelayError::Broker(_)), "{error}");
        }
        assert_eq!(left(&world).await, 20, "round {round}");
        cutter.swallow_answers(false);
        work_until_empty(&world, &mut relay, 30).await;
    }
    assert_each_once_by_id(&wire.take("a", 1_000).await, 41);
}

#[tokio::test]
async fn a_tool_whose_queue_cannot_be_declared_keeps_nobody_from_being_published() {
    let world = World::new().await;
    // `dead` is the drain's own queue; the other is no name for a queue at all.
    tools(&world, &["a", "dead"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    submit(&world, "dead", 1, 3).await;
    submit(&world, "a", 1, 20).await;
    crate::support::wire::execute(
        &world,
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, due_at) \
         select oncebox.new_id(), 'No such queue!', 'acme', gen_random_uuid(), 'acme:test:w:' || n, clock_timestamp() \
         from generate_series(1, 3) n",
    )
    .await;
    eventually("the good ones are out, the others wait with a reason", 40, async || {
        relay.run_once().await.ok();
        let waits = world
            .count("select count(*) from oncebox.outbox where last_error = 'unroutable' and queue <> 'a'")
            .await;
        (left(&world).await == 6 && waits == 6).then_some(())
    })
    .await;
    assert_each_once_by_id(&wire.take("a", 100).await, 20);
}
