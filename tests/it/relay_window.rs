//! At most `window` messages of a queue lie ahead of its consumers; the backlog waits in PostgreSQL
//! and follows as they are taken.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use crate::support::eventually;
use crate::support::wire::{Wire, left, submit, tools};
use crate::support::world::World;
use oncebox::runtime::RustTools;

#[tokio::test(flavor = "multi_thread")]
async fn the_backlog_waits_in_postgresql_and_follows_as_messages_are_taken() {
    let world = World::new().await;
    tools(&world, &["a", "b"]).await;
    submit(&world, "a", 1, 500).await;
    let settings = [
        ("relay.window", "60"),
        ("relay.batch", "30"),
        ("relay.poll", "25s"),
        ("relay.publishers", "1"),
    ];
    let roles = world.run_with("relay", &settings, RustTools::default());
    let wire = Wire::of(&world).await;
    eventually("the window is full", 20, async || (wire.ready("a").await >= 50).then_some(()))
        .await;
    // Long enough for waits that double to have grown past what consumers could bear.
    let fullest = most_over(&wire, 3).await;
    assert!(fullest <= 60, "{fullest} messages lie ahead of the consumers");
    assert!(left(&world).await >= 440);
    submit(&world, "b", 1, 20).await;
    eventually("another queue is not hidden", 20, async || {
        (wire.ready("b").await == 20).then_some(())
    })
    .await;
    // The poll is 25 s, and there are some nine windows to go: only a relay that follows its
    // consumers is done in time.
    let mut taken = 0;
    eventually("the backlog followed", 60, async || {
        let ahead = wire.ready("a").await;
        assert!(ahead <= 60, "{ahead}");
        taken += wire.take("a", 60).await.len();
        (left(&world).await == 0 && taken == 500).then_some(())
    })
    .await;
    roles.stop().await;
}

async fn most_over(wire: &Wire, seconds: u64) -> u32 {
    let (began, mut most) = (std::time::Instant::now(), 0);
    while began.elapsed().as_secs() < seconds {
        most = most.max(wire.ready("a").await);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    most
}
