//! A queue that gives no answer to its declaration holds up no other tool's messages for longer than
//! it is asked, on a connection that stands; once it answers, its own go out too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use oncebox::relay::Relay;

use crate::support::eventually;
use crate::support::mute::{DECLARE, Mute};
use crate::support::wire::{Wire, host_of, settings_through, submit, tools, work_until_empty};
use crate::support::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_others_messages_go_out_over_one_connection() {
    let world = World::new().await;
    tools(&world, &["broken", "sound"]).await;
    let (wire, mute) = (Wire::of(&world).await, Mute::open(&host_of(&world.amqp)).await);
    mute.silence(&[DECLARE], &wire.queue("broken"));
    let mut relay = Relay::new(settings_through(&world, mute.address));
    for round in 1..=3 {
        submit(&world, "sound", round, round).await;
        submit(&world, "broken", round, round).await;
        eventually("the sound tool's message is there", 60, async || {
            relay.run_once().await.expect("a pass that does not fail");
            (wire.take("sound", 1).await.len() == 1).then_some(())
        })
        .await;
    }
    assert_eq!(mute.connections(), 1, "no connection was given up");
    mute.heal();
    work_until_empty(&world, &mut relay, 60).await;
    assert_eq!(wire.take("broken", 10).await.len(), 3);
}
