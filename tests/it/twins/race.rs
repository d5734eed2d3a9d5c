//! Two twins submitted at once, through any doors, and claimed at once by two workers: one makes its
//! effect, the other is held, and rejected when that one is applied, naming it.

use serde_json::json;
use sqlx::Executor as _;

use super::{Stage, key};
use crate::support::doors::Door;
use crate::support::eventually;

const ROUNDS: usize = 14;
const WAVES: usize = 4;

/// Submits both of each round at once, each on a connection of its own.
async fn submit_pairs(stage: &Stage, wave: usize, doors: (Door, Door)) {
    let rounds = (0..ROUNDS).map(async |round| {
        let subject = format!("w{wave}r{round}");
        let asking = |side: &str| stage.asking(&format!("{subject}{side}"), &subject);
        let (a, b) = (asking("a"), asking("b"));
        tokio::join!(stage.through(doors.0, &a), stage.through(doors.1, &b))
    });
    futures::future::join_all(rounds).await;
}

/// Waits until one of each round is under way and the other is held.
async fn one_under_way_one_held(stage: &Stage) {
    let one_each = "select count(*) from (select count(*) filter (where phase = 'sent') as sent, \
            count(*) filter (where phase = 'held') as held from oncebox.operations \
            where status = 'pending' group by arguments::text) r where r.sent = 1 and r.held = 1";
    eventually("one of each is under way and one is held", 30, async || {
        (stage.world.count(one_each).await == i64::try_from(ROUNDS).unwrap()).then_some(())
    })
    .await;
}

async fn rounds(doors: (Door, Door)) {
    let stage = Stage::new(|contract| contract).await;
    let workers = [stage.run_with("relay,worker"), stage.run_with("worker")];
    for wave in 0..WAVES {
        stage.pause(true).await;
        submit_pairs(&stage, wave, doors).await;
        one_under_way_one_held(&stage).await;
        assert_eq!(stage.downstream.total().await, u64::try_from(wave * ROUNDS).unwrap());
        stage.pause(false).await;
        stage.world.settled(30).await;
        assert_eq!(stage.downstream.total().await, u64::try_from((wave + 1) * ROUNDS).unwrap());
    }
    let all = i64::try_from(WAVES * ROUNDS).unwrap();
    let named = "select count(*) from oncebox.operations o join oncebox.operations t \
            on t.operation_key = oncebox.held_behind_key(o) and t.arguments::text = o.arguments::text \
        where o.status = 'rejected' and o.reason = 'suspected_twin' and t.status = 'applied'";
    assert_eq!(stage.world.count(named).await, all, "each names the one that was applied");
    let held =
        "select count(distinct operation_id) from oncebox.operation_events where event = 'held'";
    assert_eq!(stage.world.count(held).await, all);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_from_rust_one_makes_its_effect() {
    rounds((Door::Rust, Door::Rust)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_from_sql_one_makes_its_effect() {
    rounds((Door::Sql, Door::Sql)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_from_each_door_one_makes_its_effect() {
    rounds((Door::Rust, Door::Sql)).await;
}

/// A worker that claims both in one batch.
#[tokio::test]
async fn of_two_in_one_batch_the_older_one_makes_its_effect() {
    for door in Door::BOTH {
        let stage = Stage::new(|contract| contract).await;
        let mut application = stage.world.connect().await;
        application.execute("begin").await.unwrap();
        for step in ["a", "b", "c"] {
            door.ask(&mut application, &stage.asking(step, "s")).await.unwrap();
        }
        application.execute("commit").await.unwrap();
        let relay = stage.run_with("relay");
        eventually("all three are published", 20, async || {
            (stage.world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
        })
        .await;
        stage.pause(true).await;
        let worker = stage.run_with("worker");
        stage.held("b").await;
        stage.held("c").await;
        stage.phase("a", "sent").await;
        stage.pause(false).await;
        stage.ends("a", "applied").await;
        stage.rejected_for("b", "a").await;
        stage.rejected_for("c", "a").await;
        assert_eq!(stage.downstream.total().await, 1, "{door:?}");
        worker.stop().await;
        relay.stop().await;
    }
}

/// What the doors, `ops show` and the trace say of it, first while it is held and then at its end.
#[tokio::test(flavor = "multi_thread")]
async fn every_door_names_the_older_one() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    stage.submit_held("b").await;
    for status in ["in_flight", "rejected"] {
        for door in Door::BOTH {
            let told = stage.through(door, &stage.asking("b", "s")).await;
            assert_eq!(told["status"], status, "{door:?}");
            assert_eq!(told["reason"], "suspected_twin", "{door:?}");
            assert_eq!(told["next_action"], "inspect_operation", "{door:?}");
            assert_eq!(told["suspected_twin_of"], json!(key("a")), "{door:?} {status}");
            assert_eq!(told["safe_to_repeat"], status == "rejected", "{door:?}");
        }
        let shown = stage.does("ops show acme:test:run:b --json");
        assert_eq!(shown["envelope"]["suspected_twin_of"], json!(key("a")), "{status}");
        let older = crate::consumer::kit::record(&stage.world, "a").await.id.to_string();
        assert_eq!(shown["record"]["held_behind"], json!(older), "{status}");
        assert!(shown["next_step"].as_str().unwrap().contains(&older), "{shown}");
        stage.pause(false).await;
        stage.ends("b", "rejected").await;
    }
    let trace = stage.world.trace("b").await;
    let place = |event: &str| trace.iter().position(|found| found == event);
    assert!(place("held") < place("rejected"), "{trace:?}");
    assert!(place("held").is_some() && place("sent").is_none(), "{trace:?}");
    roles.stop().await;
}

/// Whoever is held is acked: its message comes again only when somebody has ended.
#[tokio::test]
async fn the_held_ones_message_is_acked() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    stage.submit_held("b").await;
    let held = "select count(*) from oncebox.operation_events where event = 'held'";
    let broker = oncebox::broker::Broker::connect(&stage.world.broker("look")).await.unwrap();
    // A requeued message would come again at once, and each time leave its row in the trace.
    for _ in 0..30 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!(stage.world.count(held).await, 1);
        assert_eq!(broker.ready_count(&stage.tool).await.unwrap(), 0);
    }
    assert_eq!(stage.world.count("select count(*) from oncebox.outbox").await, 0);
    stage.pause(false).await;
    stage.rejected_for("b", "a").await;
    roles.stop().await;
}
