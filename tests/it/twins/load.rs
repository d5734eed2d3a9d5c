//! Many twins at once cost no more than as many operations: no deadlock, no scan, no reading of all for
//! each.

use std::time::Duration;

use oncebox::domain::claim::Twins;
use oncebox::domain::operation::Timestamp;
use oncebox::domain::verbs::{self, Finding, Person};
use oncebox::ingress::Publisher;
use oncebox::store::{self, DatabaseUrl, Link, TwinAsk};
use sqlx::{Connection as _, Executor as _, PgConnection};
use uuid::Uuid;

use super::Stage;
use crate::consumer::kit;
use crate::support::world::World;

/// Five hundred of five digests in any order, in batches of any size, at four workers: processes of
/// their own, each with connections of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_deadlock_with_four_workers() {
    let stage = Stage::new(|contract| contract.more("concurrency: {process: 50}")).await;
    stage.downstream.control(serde_json::json!({ "status": 422, "every": 4 })).await;
    let _workers: Vec<_> = (0..4)
        .map(|n| {
            kit::roles(
                &stage.world,
                "worker",
                &[("ONCEBOX_WORKER_NAME", ["w0", "w1", "w2", "w3"][n])],
            )
        })
        .collect();
    let roles = stage.run_with("relay,maintain");
    let submitters = (0..5).map(async |submitter: usize| {
        let mut application = stage.world.connect().await;
        for batch in 0..10 {
            let all: Vec<_> = (0..10)
                .map(|n| {
                    let subject = format!("s{}", Uuid::new_v4().as_u128() % 5);
                    stage.asking(&format!("{submitter}-{batch}-{n}"), &subject)
                })
                .collect();
            application.execute("begin").await.unwrap();
            Publisher::default().submit_many(&mut application, &all).await.unwrap();
            application.execute("commit").await.unwrap();
        }
        application.close().await.unwrap();
    });
    futures::future::join_all(submitters).await;
    stage.world.settled(120).await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(stage.world.count(deadlocks).await, 0);
    assert_eq!(stage.world.count("select count(*) from oncebox.operations").await, 500);
    assert_eq!(stage.world.count("select count(*) from oncebox.twins").await, 0, "all are gone");
    assert_eq!(stage.downstream.most_per_key().await, 1);
    roles.stop().await;
}

/// Records as a busy deployment leaves them, written past the doors: `count` of digest `digest` (with
/// the number behind it if `apart`), in this status and phase, a second apart, the last one now.
async fn records(
    connection: &mut PgConnection,
    count: i32,
    digest: &str,
    apart: bool,
    status: &str,
    phase: Option<&str>,
) {
    sqlx::query(
        "insert into oncebox.operations (operation_id, tenant_id, environment, operation_key, tool_name, tool_version, \
            status, phase, reason, due_at, opened_at, queued_at, created_at, updated_at, twin_digest, held_behind) \
         select oncebox.new_id(), 'acme', 'test', 'acme:test:' || $2 || coalesce($5, $4) || ':' || n, 'tickets.keyed', '1', \
            $4, $5, case when $5 = 'held' then 'suspected_twin' end, \
            now() + interval '1 day', t.at, t.at, t.at, t.at, $2 || case when $3 then n::text else '' end, \
            case when $5 = 'held' then gen_random_uuid() end \
         from generate_series(1, $1) n cross join lateral (select now() - make_interval(secs => $1 - n) as at) t",
    )
    .bind(count)
    .bind(digest)
    .bind(apart)
    .bind(status)
    .bind(phase)
    .execute(connection)
    .await
    .unwrap();
}

/// How many rows of `operations` this transaction has read.
async fn read(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "select (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables \
         where schemaname = 'oncebox' and relname = 'operations'",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

/// One record of `digest` asks for its twins: what it is told, and how many rows were read for that.
/// Nothing of it stays.
async fn asks(world: &World, digest: &str, within: Duration) -> (Twins, i64) {
    let mut connection = world.connect().await;
    connection.execute("begin; set local enable_seqscan = off").await.unwrap();
    records(&mut connection, 1, "asks", false, "pending", Some("queued")).await;
    let operation: Uuid = sqlx::query_scalar(
        "update oncebox.operations set twin_digest = $1 where twin_digest = 'asks' returning operation_id",
    )
    .bind(digest)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let before = read(&mut connection).await;
    let ask = TwinAsk {
        operation,
        digest: digest.to_owned(),
        opened_at: Timestamp(i64::MAX / 2),
        within,
    };
    let found = store::twins(&mut connection, &[ask], &[]).await.unwrap();
    (found[&operation], read(&mut connection).await - before)
}

/// Above what a handful of index look-ups read, far below the thousands that are there.
const FEW: i64 = 40;

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_reads_few_rows_however_many_there_are() {
    let world = World::new().await;
    let mut connection = world.connect().await;
    records(&mut connection, 60_000, "cold", true, "applied", None).await;
    records(&mut connection, 30_000, "open", true, "pending", Some("held")).await;
    records(&mut connection, 10_000, "hot", false, "pending", Some("held")).await;
    records(&mut connection, 10_000, "hot", false, "applied", None).await;
    records(&mut connection, 10_000, "hot", false, "failed_permanent", None).await;
    records(&mut connection, 10_000, "past", false, "applied", None).await;
    let old = "update oncebox.operations set updated_at = updated_at - interval '1 day' where status <> 'pending'; \
        analyze oncebox.operations";
    connection.execute(old).await.unwrap();
    for within in [Duration::ZERO, Duration::from_secs(3600)] {
        let (twins, rows) = asks(&world, "cold7", within).await;
        assert!(twins == Twins::Free && rows < FEW, "{twins:?} {rows}");
        let (twins, rows) = asks(&world, "hot", within).await;
        assert!(matches!(twins, Twins::Behind(_)) && rows < FEW, "{twins:?} {rows}");
        let (twins, rows) = asks(&world, "past", within).await;
        assert!(twins == Twins::Free && rows < FEW, "{twins:?} {rows}");
    }
    let long = Duration::from_secs(72 * 3600);
    let (twins, rows) = asks(&world, "past", long).await;
    assert!(matches!(twins, Twins::Applied(_)) && rows < FEW, "{twins:?} {rows}");
}

/// One of ten thousand ends: one is woken, or a hundred and maintain finds the rest.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_wakes_few() {
    let stage = Stage::bare().await;
    let world = &stage.world;
    let mut connection = world.connect().await;
    records(&mut connection, 10_000, "hot", false, "pending", Some("held")).await;
    records(&mut connection, 1, "hot", false, "unknown", None).await;
    let went = "update oncebox.operations set twin_released = true, first_sent_at = now() - interval '1 day', \
        attempts_over_at = now() - interval '1 day', opened_at = now() - interval '1 day' where status = 'unknown'; \
        analyze oncebox.operations";
    connection.execute(went).await.unwrap();
    let by = Person { name: "ann".into(), reason: "seen".into() };
    let receipt = oncebox::domain::attempt::Receipt::new("T-1").unwrap();
    let mut link = Link::new(&DatabaseUrl::new(&world.database), "test", Duration::from_secs(30));
    let published = async |link: &mut Link| {
        link.transaction(async |connection| store::publish_dated(connection, 0.0, 5000).await)
            .await
            .unwrap()
    };
    assert_eq!(published(&mut link).await, 0, "nobody's turn");
    for (finding, woken) in [(Finding::NotApplied, 1), (Finding::Applied(receipt), 100)] {
        let mut rolled_back = world.connect().await;
        rolled_back.execute("begin; set local enable_seqscan = off").await.unwrap();
        let id: Uuid = sqlx::query_scalar(
            "select operation_id from oncebox.operations where status = 'unknown'",
        )
        .fetch_one(&mut rolled_back)
        .await
        .unwrap();
        let locked = store::lock_all(&mut rolled_back, &[id]).await.unwrap();
        let step =
            verbs::resolve(&locked[0].operation, &finding, Duration::ZERO, locked[0].now, &by)
                .unwrap();
        let before = read(&mut rolled_back).await;
        store::write(&mut rolled_back, &[&step]).await.unwrap();
        let rows = read(&mut rolled_back).await - before;
        let messages: i64 = sqlx::query_scalar("select count(*) from oncebox.outbox")
            .fetch_one(&mut rolled_back)
            .await
            .unwrap();
        assert_eq!(messages, woken, "{finding:?}");
        assert!(rows < FEW + woken, "{finding:?}: {rows}");
        if woken == 1 {
            rolled_back.execute("rollback").await.unwrap();
        } else {
            rolled_back.execute("commit").await.unwrap();
        }
    }
    // Each only once for some time, whatever becomes of it.
    let rest: u64 =
        [published(&mut link).await, published(&mut link).await, published(&mut link).await]
            .iter()
            .sum();
    assert_eq!(rest, 9900);
}
