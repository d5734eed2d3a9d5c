//! Nobody is held for ever: after a day a held one is rejected, and a wake-up that was lost is found.

use serde_json::json;

use super::Stage;
use crate::support::doors::column;
use crate::support::eventually;

/// What a test cannot wait for: the held ones have been held for a day and a minute.
const A_DAY_LATER: &str = "update oncebox.operations set due_at = due_at - interval '24 hours 1 minute', \
    queued_at = queued_at - interval '24 hours' where phase = 'held'";

/// Their last message is old enough for maintain.
const OLD: &str = "update oncebox.operations set queued_at = queued_at - interval '1 minute' where phase = 'held'";

#[tokio::test(flavor = "multi_thread")]
async fn after_a_day_it_is_rejected_though_the_older_one_has_not_ended() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    for step in ["b", "c"] {
        stage.submit_held(step).await;
        let wait = "due_at - clock_timestamp() between interval '23 hours 59 minutes' and interval '24 hours'";
        assert_eq!(column(&stage.world, step, wait).await.as_deref(), Some("true"));
    }
    stage.execute(A_DAY_LATER).await;
    stage.rejected_for("b", "a").await;
    stage.rejected_for("c", "a").await;
    assert_eq!(stage.world.status("a").await.1, "sent");
    stage.pause(false).await;
    stage.ends("a", "applied").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// The older one ended while the outbox lost what it wrote: maintain asks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_wake_up_is_found() {
    for (status, ends) in [(201, "rejected"), (422, "applied")] {
        let stage = Stage::new(|contract| contract).await;
        let worker = stage.run_with("worker");
        let relay = stage.run_with("relay");
        stage.under_way("a").await;
        stage.submit_held("b").await;
        stage.submit_held("c").await;
        relay.stop().await;
        if status == 422 {
            stage.refuse(status).await;
        }
        stage.pause(false).await;
        let ended = if status == 422 { "failed_permanent" } else { "applied" };
        stage.ends("a", ended).await;
        assert!(stage.world.count("select count(*) from oncebox.outbox").await > 0, "woken");
        stage.execute("delete from oncebox.outbox").await;
        stage.execute(OLD).await;
        let rest = stage.run_with("relay,maintain");
        stage.ends("b", ends).await;
        stage.rejected_for("c", if status == 422 { "b" } else { "a" }).await;
        assert_eq!(stage.downstream.total().await, 1);
        rest.stop().await;
        worker.stop().await;
    }
}

/// Without maintain: whoever is held while the older one ends is woken by that end, however close the
/// two come together.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_up_is_lost_by_no_race() {
    let stage = Stage::new(|contract| contract).await;
    stage.downstream.control(json!({ "status": 422, "every": 2 })).await;
    let roles = [stage.run_with("relay,worker"), stage.run_with("worker")];
    for wave in 0..8 {
        let submitters = (0..40).map(async |number| {
            let submission =
                stage.asking(&format!("{wave}-{number}"), &format!("s{}", number % 10));
            stage.through(crate::support::doors::Door::BOTH[number % 2], &submission).await;
        });
        futures::future::join_all(submitters).await;
        stage.world.settled(20).await;
    }
    for role in roles {
        role.stop().await;
    }
}

/// Hundreds behind one: each end wakes the next only, and the one that is applied wakes them all once.
#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_are_few() {
    const MANY: i64 = 250;
    const REFUSED: i64 = 20;
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("first").await;
    let mut application = stage.world.connect().await;
    let all: Vec<_> = (0..MANY).map(|n| stage.asking(&format!("s{n}"), "s")).collect();
    sqlx::Executor::execute(&mut application, "begin").await.unwrap();
    oncebox::ingress::Publisher::default().submit_many(&mut application, &all).await.unwrap();
    sqlx::Executor::execute(&mut application, "commit").await.unwrap();
    eventually("all others are held", 60, async || {
        let held = "select count(*) from oncebox.operations where phase = 'held'";
        (stage.world.count(held).await == MANY).then_some(())
    })
    .await;
    stage.downstream.control(json!({ "status": 422, "times": REFUSED })).await;
    stage.execute(OLD).await;
    let before = stage.world.count("select count(*) from oncebox.operation_events").await;
    stage.pause(false).await;
    stage.world.settled(120).await;
    assert_eq!(stage.downstream.total().await, 1);
    let rejected = "select count(*) from oncebox.operations where reason = 'suspected_twin' and status = 'rejected'";
    assert_eq!(stage.world.count(rejected).await, MANY - REFUSED);
    // A delivery that changes nothing leaves a row of the trace too.
    let woken = "select count(*) from oncebox.operation_events where event in ('held', 'replayed')";
    let in_vain = stage.world.count(woken).await - MANY;
    assert!(in_vain < MANY, "{in_vain} wake-ups in vain; {before} rows before");
    roles.stop().await;
}
