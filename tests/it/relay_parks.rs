//! A row that can never be put on the wire is parked with its operation and stops nobody.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use oncebox::relay::Relay;

use crate::support::wire::{Wire, execute, settings, submit, tools, work_until_empty};
use crate::support::world::World;

/// A row that no release of ours would write: a trace context larger than a frame.
async fn spoil(world: &World) {
    execute(world, "alter table oncebox.outbox drop constraint outbox_traceparent_check").await;
    let spoilt = execute(
        world,
        "update oncebox.outbox set traceparent = repeat('x', 200000) where operation_key = 'acme:test:a:10'",
    )
    .await;
    assert_eq!(spoilt, 1);
}

#[tokio::test]
async fn an_unpublishable_row_is_parked_and_its_neighbours_go_out() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let (wire, mut relay) = (Wire::of(&world).await, Relay::new(settings(&world)));
    submit(&world, "a", 1, 20).await;
    spoil(&world).await;
    let counts = relay.run_once().await.unwrap();
    assert_eq!((counts.confirmed, counts.parked), (19, 1));
    assert_eq!(wire.take("a", 100).await.len(), 19);
    assert_eq!(
        world
            .count(
                "select count(*) from oncebox.operations where operation_key = 'acme:test:a:10' \
                 and status = 'pending' and phase = 'parked' and reason = 'unpublishable'"
            )
            .await,
        1
    );
    work_until_empty(&world, &mut relay, 10).await;
    assert_eq!(
        world.count("select count(*) from oncebox.operation_events where event = 'parked'").await,
        1
    );
}

#[tokio::test]
async fn an_unpublishable_row_of_a_finished_operation_goes_and_changes_nothing() {
    let world = World::new().await;
    tools(&world, &["a"]).await;
    let mut relay = Relay::new(settings(&world));
    submit(&world, "a", 10, 10).await;
    spoil(&world).await;
    execute(&world, "update oncebox.operations set status = 'applied', phase = null").await;
    work_until_empty(&world, &mut relay, 20).await;
    assert_eq!(
        world.count("select count(*) from oncebox.operations where status = 'applied'").await,
        1
    );
}
