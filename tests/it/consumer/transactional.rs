//! A transactional tool's effect and its settlement are one transaction: both are there or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use oncebox::domain::attempt::{Effect, Receipt, Response};
use oncebox::runtime::RustTools;
use oncebox::tool::{Call, SettlingConnection, TransactionalRefusal, TransactionalTool};
use sqlx::Executor as _;

use super::kit;
use crate::support::cutter::Cutter;
use crate::support::{eventually, world::World};

/// Writes its argument into a table of its own; some arguments are not carried out.
#[derive(Default)]
struct Ledger {
    tries: AtomicU64,
}

#[async_trait]
impl TransactionalTool for Ledger {
    async fn apply(
        &self,
        call: &Call,
        connection: &mut SettlingConnection,
    ) -> Result<Effect, TransactionalRefusal> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        let n = kit::n(call);
        sqlx::query("insert into ledger (n) values ($1)")
            .bind(&n)
            .execute(&mut *connection)
            .await
            .unwrap();
        match n.as_str() {
            "panics" => panic!("as ordered, after its write"),
            "refuses" => return Err(TransactionalRefusal::Refused),
            "hides_an_error" => drop(connection.execute("select 1 / 0").await),
            "fails" => {
                connection
                    .execute("select 1 / 0")
                    .await
                    .map_err(|_| TransactionalRefusal::Retry)?;
            }
            "hangs" => std::future::pending().await,
            "sleeps" => {
                connection
                    .execute("select pg_sleep(60)")
                    .await
                    .map_err(|_| TransactionalRefusal::Retry)?;
            }
            "slow" => drop(connection.execute("select pg_sleep(1)").await),
            _ => {}
        }
        Ok(Effect { receipt: Receipt::new(format!("L-{n}")).unwrap(), response: Response::None })
    }
}

async fn stage(more: &str) -> (World, Arc<Ledger>, RustTools) {
    let world = World::new().await;
    let more = format!("{more}\nretry: {{initial: 100ms, max: 300ms}}");
    let (ledger, tools) = register(&world, &more).await;
    (world, ledger, tools)
}

async fn register(world: &World, more: &str) -> (Arc<Ledger>, RustTools) {
    kit::contract(world, &kit::rust_contract("ledger.write", "transactional", more)).await;
    world.connect().await.execute("create table ledger (n text not null)").await.unwrap();
    let ledger = Arc::new(Ledger::default());
    let tools =
        RustTools::default().with_transactional("ledger.write", "1", Arc::clone(&ledger) as _);
    (ledger, tools)
}

const EFFECTS: &str = "select count(*) from ledger";

#[tokio::test]
async fn effect_and_settlement_commit_together_and_nothing_is_marked_as_sent() {
    let (world, ledger, tools) = stage("concurrency: {process: 4}").await;
    kit::submit_all(&world, "ledger.write", (0..50).map(|n| format!("s{n}"))).await;
    // More than have a place at once, and nothing but the end of one wakes the next.
    let roles =
        [world.run_with("relay,worker", &[], tools.clone()), world.run_with("worker", &[], tools)];
    world.settled(20).await;
    assert_eq!(world.count(EFFECTS).await, 50);
    assert_eq!(world.count("select count(distinct n) from ledger").await, 50);
    assert_eq!(ledger.tries.load(Ordering::SeqCst), 50);
    let record = kit::record(&world, "s7").await;
    assert_eq!((record.status.as_str(), record.receipt.as_deref()), ("applied", Some("L-s7")));
    assert_eq!((record.sent, record.attempts), (false, 0));
    let trace = world.trace("s7").await;
    assert!(!trace.iter().any(|event| event == "sent"), "{trace:?}");
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test]
async fn what_a_tool_did_not_finish_leaves_nothing_and_touches_no_neighbour() {
    let (world, _ledger, tools) = stage("concurrency: {process: 32}").await;
    let steps = ["a", "panics", "b", "refuses", "c", "fails", "d", "hides_an_error", "e"];
    kit::submit_all(&world, "ledger.write", steps.iter().map(|&step| step.to_owned())).await;
    let roles = world.run_with("relay,worker", &[], tools);
    for good in steps.iter().filter(|step| step.len() == 1) {
        assert_eq!(kit::ends(&world, good, "applied").await.lost_claims, 0);
    }
    let refused = kit::ends(&world, "refuses", "failed_permanent").await;
    assert_eq!((refused.reason.as_deref(), refused.sent), (Some("refused"), false));
    let panicked = kit::until(&world, "panics", "it is parked", |record| {
        record.phase.as_deref() == Some("parked")
    })
    .await;
    assert_eq!(panicked.reason.as_deref(), Some("tool_panicked"));
    for step in ["fails", "hides_an_error"] {
        let record = kit::until(&world, step, "it is tried again", |record| record.epoch > 2).await;
        assert_eq!(
            (record.status.as_str(), record.attempts, record.sent),
            ("pending", 0, false),
            "{step}"
        );
    }
    assert_eq!(world.count(EFFECTS).await, 5, "only what was applied is there");
    roles.stop().await;
}

#[tokio::test]
async fn an_effect_that_takes_too_long_is_undone_and_the_others_go_on() {
    let retry = "retry: {initial: 1m, max: 1m}";
    let world = World::new().await;
    let more = format!("concurrency: {{process: 32}}\n{retry}");
    let (ledger, tools) = register(&world, &more).await;
    let steps = ["a", "hangs", "b", "sleeps", "c"];
    kit::submit_all(&world, "ledger.write", steps.iter().map(|&step| step.to_owned())).await;
    let roles = world.run_with("relay,worker", &[], tools);
    for step in ["hangs", "sleeps"] {
        let record = kit::until(&world, step, "it waits for its next try", |record| {
            record.phase.as_deref() == Some("retry_scheduled")
        })
        .await;
        assert_eq!((record.reason.as_deref(), record.sent), (Some("not_sent"), false), "{step}");
    }
    for step in ["a", "b", "c"] {
        assert_eq!(kit::ends(&world, step, "applied").await.lost_claims, 0, "{step}");
    }
    assert_eq!(world.count(EFFECTS).await, 3);
    assert!(ledger.tries.load(Ordering::SeqCst) >= 5);
    roles.stop().await;
}

#[tokio::test]
async fn a_claim_that_changed_hands_before_the_transaction_has_no_effect() {
    let (world, ledger, tools) = stage("lease: 2s").await;
    let barrier = kit::stop_before(&world, "claimed").await;
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, tools);
    kit::submit(&world, "ledger.write", "s").await;
    kit::stands_there(&world).await;
    // Queues for the row behind the claim, and so comes before the effect's transaction.
    let mut thief = world.connect().await;
    let queued = tokio::spawn(async move {
        thief.execute("begin").await.unwrap();
        let steal = "update oncebox.operations set claim_epoch = claim_epoch + 1";
        thief.execute(steal).await.unwrap();
        thief
    });
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'update oncebox.operations set claim_epoch%'";
    eventually("the other one queues", 20, async || (world.count(waits).await == 1).then_some(()))
        .await;
    drop(barrier);
    let mut thief = queued.await.unwrap();
    assert_eq!(
        ledger.tries.load(Ordering::SeqCst),
        0,
        "the record is locked before the effect runs"
    );
    thief.execute("commit").await.unwrap();
    let record = kit::ends(&world, "s", "applied").await;
    assert_eq!(record.epoch, 3, "claimed, stolen, claimed again");
    assert_eq!((world.count(EFFECTS).await, ledger.tries.load(Ordering::SeqCst)), (1, 1));
    roles.stop().await;
}

#[tokio::test]
async fn a_backend_that_dies_under_the_effect_undoes_it_and_it_is_made_once() {
    let (world, ledger, tools) = stage("").await;
    let roles = world.run_with("relay,worker,maintain", &[], tools);
    kit::submit(&world, "ledger.write", "slow").await;
    eventually("the effect runs", 20, async || {
        (ledger.tries.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
        where datname = current_database() and application_name = 'oncebox worker transactions'";
    assert_eq!(world.count(end).await, 1);
    kit::ends(&world, "slow", "applied").await;
    assert_eq!((world.count(EFFECTS).await, ledger.tries.load(Ordering::SeqCst)), (1, 2));
    roles.stop().await;
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_in_the_record() {
    let (world, ledger, tools) = stage("").await;
    // The commit itself waits, so that its answer can be taken away.
    let waiting = "create function oncebox.test_commit() returns trigger language plpgsql as \
            $$ begin perform pg_advisory_xact_lock_shared(7); return null; end $$; \
        create constraint trigger test_commit after insert on ledger deferrable initially deferred \
            for each row execute function oncebox.test_commit()";
    let mut barrier = world.connect().await;
    barrier.execute(sqlx::raw_sql(waiting)).await.unwrap();
    barrier.execute("select pg_advisory_lock(7)").await.unwrap();
    let (valve, through) = Cutter::before(&world.database).await;
    let relay = world.run("relay,maintain");
    let worker = world.run_with("worker", &[("database.url", &through)], tools);
    kit::submit(&world, "ledger.write", "s").await;
    kit::stands_there(&world).await;
    valve.swallow_answers(true);
    drop(barrier);
    eventually("it is committed", 20, async || (world.count(EFFECTS).await == 1).then_some(()))
        .await;
    assert_eq!(kit::record(&world, "s").await.status, "applied");
    valve.swallow_answers(false);
    valve.cut();
    let told =
        "select count(*) from oncebox.operations where status = 'applied' and lease_until is null";
    assert_eq!(world.count(told).await, 1);
    // Another one through the same worker shows that it came to terms with the first.
    kit::submit(&world, "ledger.write", "t").await;
    kit::ends(&world, "t", "applied").await;
    assert_eq!((world.count(EFFECTS).await, ledger.tries.load(Ordering::SeqCst)), (2, 2));
    worker.stop().await;
    relay.stop().await;
}
