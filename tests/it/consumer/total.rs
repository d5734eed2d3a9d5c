//! However many processes work for a tool whose contract says `concurrency.total`, no more of its
//! effects run at once; other tools do not notice, and a dead worker's places come back. A provider's
//! job is asked for all the same.

use std::time::{Duration, Instant};

use sqlx::{Executor as _, PgConnection};

use super::kit;
use crate::support::contracts::deduplicating;
use crate::support::downstream::{Downstream, mails};
use crate::support::eventually;
use crate::support::world::World;

const TICKETS: &str = "tickets.create";
const MAIL: &str = "mail.send";

const BOUND: &str = "concurrency: {process: 16, total: 3}";

/// Tickets of which three may run at once, with leases of two seconds, and mails without a bound.
async fn stage() -> (World, Downstream) {
    let (world, downstream) = (World::new().await, Downstream::start());
    let tickets = format!("{}\n{BOUND}\n", kit::quick_tickets(&downstream));
    kit::contract(&world, &tickets).await;
    kit::contract(&world, &mails(&downstream.url, kit::RETRY)).await;
    (world, downstream)
}

async fn applied(world: &World, tool: &str) -> i64 {
    sqlx::query_scalar(
        "select count(*) from oncebox.operations where status = 'applied' and tool_name = $1",
    )
    .bind(tool)
    .fetch_one(&mut world.connect().await)
    .await
    .unwrap()
}

async fn all_applied(world: &World, tool: &str, count: i64) {
    eventually(&format!("{count} of {tool} are applied"), 40, async || {
        (applied(world, tool).await == count).then_some(())
    })
    .await;
}

fn steps(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |n| format!("{prefix}{n}"))
}

#[tokio::test]
async fn three_workers_run_three_at_once_and_keep_all_three_places_busy() {
    let (world, downstream) = stage().await;
    downstream.control(serde_json::json!({"on": "tickets", "delay_ms_before_effect": 100})).await;
    let roles = world.run_with("relay,maintain", kit::MARGIN, Default::default());
    let workers: Vec<_> = ["a", "b", "c"].iter().map(|name| kit::worker(&world, name)).collect();
    // Once all of them serve, so that their start is not measured.
    kit::submit(&world, MAIL, "first").await;
    all_applied(&world, MAIL, 1).await;
    let live = "select count(distinct w.worker) from oncebox.workers w";
    eventually("all workers serve", 20, async || (world.count(live).await == 3).then_some(()))
        .await;

    kit::submit_all(&world, TICKETS, steps("t", 60)).await;
    let began = Instant::now();
    kit::submit_all(&world, MAIL, steps("m", 20)).await;
    all_applied(&world, MAIL, 21).await;
    let others = began.elapsed();
    let still_busy = applied(&world, TICKETS).await;
    all_applied(&world, TICKETS, 60).await;
    let took = began.elapsed();

    // Two seconds are what the effects themselves take, three at a time.
    assert!(took < Duration::from_secs(6), "60 tickets took {took:?}");
    assert!(others < took && still_busy < 60, "mails {others:?}, tickets {took:?}");
    let effects = downstream.effects().await;
    assert_eq!(effects["most_at_once"]["tickets"], 3, "{effects}");
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (81, 1));
    let again = "select count(*) from oncebox.operations where lost_claims > 0 or attempts > 1 or deferrals > 0";
    assert_eq!(world.count(again).await, 0);
    drop(workers);
    roles.stop().await;
}

#[tokio::test]
async fn a_killed_workers_places_are_free_when_its_leases_have_ended() {
    let (world, downstream) = stage().await;
    let roles = world.run_with("relay,maintain", kit::MARGIN, Default::default());
    downstream.control(serde_json::json!({"pause": true})).await;
    let mut first = kit::worker(&world, "a");
    kit::submit_all(&world, TICKETS, steps("t", 9)).await;
    kit::arrived(&downstream, 3).await;
    first.kill();
    downstream.control(serde_json::json!({"pause": false})).await;
    let _second = kit::worker(&world, "b");
    // While the dead one's leases live, nobody starts.
    let taken = "select count(*) from oncebox.operations o where o.claim_epoch > 0 and 3 = ( \
        select count(*) from oncebox.operations d where d.owner like 'a:%' and d.lease_until > clock_timestamp())";
    eventually("the dead worker's leases end", 20, async || {
        assert!(world.count(taken).await <= 3, "others start while its leases live");
        let dead = "select count(*) from oncebox.operations where owner like 'a:%' and lease_until > clock_timestamp()";
        (world.count(dead).await == 0).then_some(())
    })
    .await;
    all_applied(&world, TICKETS, 9).await;
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (9, 1));
    let effects = downstream.effects().await;
    assert_eq!(effects["most_at_once"]["tickets"], 3, "{effects}");
    roles.stop().await;
}

#[tokio::test]
async fn nobody_waits_for_another_workers_count() {
    let (world, downstream) = stage().await;
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, Default::default());
    kit::submit(&world, MAIL, "first").await;
    kit::ends(&world, "first", "applied").await;
    let counting = counted_by_another(&world).await;
    kit::submit_all(&world, TICKETS, steps("t", 5)).await;
    let began = Instant::now();
    kit::submit(&world, MAIL, "second").await;
    kit::ends(&world, "second", "applied").await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(applied(&world, TICKETS).await, 0);
    drop(counting);
    all_applied(&world, TICKETS, 5).await;
    assert_eq!(downstream.most_per_key().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_message_that_finds_no_place_for_long_is_put_off_and_acked() {
    let (world, _downstream) = stage().await;
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, Default::default());
    let counting = counted_by_another(&world).await;
    kit::submit_all(&world, TICKETS, steps("t", 5)).await;
    let rows = "select count(*) from oncebox.outbox";
    eventually("all are in the worker's hands", 20, async || {
        (world.count(rows).await == 0).then_some(())
    })
    .await;
    let later =
        "select count(distinct x.operation_id) from oncebox.outbox x where x.due_at > now()";
    eventually("all are put off", 45, async || (world.count(later).await == 5).then_some(())).await;
    drop(counting);
    all_applied(&world, TICKETS, 5).await;
    let again = "select count(*) from oncebox.operations where attempts > 1 or deferrals > 0";
    assert_eq!(world.count(again).await, 0);
    roles.stop().await;
}

#[tokio::test]
async fn a_job_is_polled_while_there_is_no_place_for_those_who_came_first() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let contract = deduplicating(&downstream.url).name(TICKETS).jobs("3s", "1m");
    let bound = "concurrency: {process: 8, total: 4}\ntwins: {hold: false}";
    kit::contract(&world, &contract.timeout("900ms").more(bound).more(kit::QUICK).text()).await;
    downstream.jobs().run_until_told().await;
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, Default::default());
    let submit = async |step: &str| {
        let arguments = r#"{"queue_id":"q","subject":"s"}"#;
        world.submit(&world.submission(TICKETS, step, arguments)).await.unwrap();
    };
    submit("first").await;
    kit::until(&world, "first", "it is a job", |record| {
        record.phase.as_deref() == Some("accepted")
    })
    .await;
    let counting = counted_by_another(&world).await;
    for step in steps("t", 5) {
        submit(&step).await;
    }
    let rows = "select count(*) from oncebox.outbox x join oncebox.operations o using (operation_id) where o.phase = 'queued'";
    eventually("the others are in the worker's hands", 20, async || {
        (world.count(rows).await == 0).then_some(())
    })
    .await;
    downstream.jobs().finish("J-1").await;
    let began = Instant::now();
    kit::ends(&world, "first", "applied").await;
    // Before the others are put off, which half a minute's wait for a place would be.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((downstream.jobs().count().await, applied(&world, TICKETS).await), (1, 1));
    downstream.jobs().take(Duration::ZERO).await;
    drop(counting);
    all_applied(&world, TICKETS, 6).await;
    assert_eq!(downstream.most_per_key().await, 1);
    roles.stop().await;
}

/// Holds what a worker holds from its count to its commit, until the answer is dropped.
async fn counted_by_another(world: &World) -> PgConnection {
    let mut counting = world.connect().await;
    counting.execute("begin").await.unwrap();
    let held = "select pg_advisory_xact_lock(hashtextextended('live claims' || chr(1) || 'tickets.create', 0))";
    counting.execute(held).await.unwrap();
    counting
}
