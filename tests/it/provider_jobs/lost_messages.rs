//! A poll whose message is lost is published again by role maintain, at once and once.

use std::time::Duration;

use lapin::options::QueuePurgeOptions;

use crate::consumer::kit;
use crate::recovery::stage::{RETRY, Stage, times};
use crate::support::contracts::blind;
use crate::support::eventually;

#[tokio::test]
async fn a_purged_queue_costs_no_poll() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "1m"), RETRY).await;
    let others = stage.roles("relay", "5m");
    stage.downstream.jobs().take(Duration::from_secs(1)).await;
    let mut worker = stage.process("worker", "5m");
    stage.submit("s").await;
    stage.comes_to("s", "accepted").await;
    worker.kill();
    // Its message goes to the broker, and is lost there.
    let queue = format!("{}oncebox.{}", stage.world.prefix, stage.tool);
    let channel = kit::channel(&stage.world).await;
    eventually("the message is in the queue and lost", 20, async || {
        let purged = channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await;
        let left = stage.world.count("select count(*) from oncebox.outbox").await;
        (purged.unwrap() > 0 || left == 0).then_some(())
    })
    .await;
    eventually("nothing is left of it", 20, async || {
        channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await.unwrap();
        (stage.world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
    })
    .await;
    let _worker = stage.process("worker", "5m");
    let maintain = stage.roles("maintain", "5m");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    maintain.stop().await;
    others.stop().await;
}

#[tokio::test]
async fn a_poll_that_is_overdue_for_want_of_a_worker_is_published_once() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "1m"), RETRY).await;
    let others = stage.roles("relay", "5m");
    stage.downstream.jobs().run_until_told().await;
    let mut worker = stage.process("worker", "5m");
    stage.submit("s").await;
    stage.comes_to("s", "accepted").await;
    worker.kill();
    let queue = format!("{}oncebox.{}", stage.world.prefix, stage.tool);
    let channel = kit::channel(&stage.world).await;
    eventually("the poll is overdue", 20, async || {
        let overdue =
            "select count(*) from oncebox.operations where due_at < now() - interval '6 seconds'";
        (stage.world.count(overdue).await == 1).then_some(())
    })
    .await;
    channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await.unwrap();
    let maintain = stage.roles("maintain", "5m");
    stage.holds("s", "sweeps = 1").await;
    // Published once, however often maintain looks: the next one only after a minute.
    let passes = Duration::from_secs(2);
    tokio::time::sleep(passes).await;
    let waiting = channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await;
    assert_eq!((waiting.unwrap(), stage.column("s", "sweeps").await.as_deref()), (1, Some("1")));
    // `oncebox republish` needs no such patience.
    let (code, _, told) = stage.oncebox("republish").await;
    assert_eq!(code, Some(0), "{told}");
    let _worker = stage.process("worker", "5m");
    stage.downstream.polls().arrived(2, 20).await;
    stage.downstream.jobs().finish("J-1").await;
    stage.ends("s", "applied").await;
    let polled = times(&stage.world.trace("s").await, "polled") as u64;
    assert_eq!(polled, stage.downstream.polls().count().await);
    maintain.stop().await;
    others.stop().await;
}

#[tokio::test]
async fn a_worker_killed_while_it_asks_costs_no_poll() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "1m"), RETRY).await;
    let others = stage.roles("relay,maintain", "5m");
    stage.downstream.jobs().run_until_told().await;
    stage.downstream.polls().hold().await;
    let mut worker = stage.process("worker", "5m");
    stage.submit("s").await;
    stage.downstream.polls().arrived(1, 20).await;
    worker.kill();
    stage.downstream.polls().let_go().await;
    let _worker = stage.process("worker", "5m");
    stage.downstream.polls().arrived(3, 20).await;
    stage.downstream.jobs().finish("J-1").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.lost_claims), (1, 0), "a poll holds no lease");
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    others.stop().await;
}
