//! Migrations are applied once, whoever races, while workers run, and leave nothing behind when they
//! are killed; a changed one is refused.

use std::time::Duration;

use oncebox::store::{self, DatabaseUrl, PublisherRole, StoreError};
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::refund;
use crate::support::downstream::{Downstream, tickets};
use crate::support::eventually;
use crate::support::process::{Process, built};
use crate::support::servers::Servers;
use crate::support::world::World;

/// `oncebox migrate` on `url`.
fn migrate_command(url: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(built("oncebox"));
    command.arg("migrate").env("DATABASE_URL", url).stdin(std::process::Stdio::null());
    command
}

async fn fingerprint_of_schema(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "select oid::text || proname || coalesce(proacl::text, '') || xmin::text from pg_proc where pronamespace = 'oncebox'::regnamespace \
         union all select oid::text || relname || coalesce(relacl::text, '') || relfilenode::text from pg_class where relnamespace = 'oncebox'::regnamespace \
         union all select version || checksum || applied_at::text from oncebox.schema_migrations order by 1",
    )
    .fetch_all(&mut world.connect().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn applied_again_nothing_happens() {
    let world = World::new().await;
    let before = fingerprint_of_schema(&world).await;
    let again = store::migrate(&DatabaseUrl::new(&world.database)).await.unwrap();
    assert!(again.versions.iter().all(|(_, _, applied)| !applied));
    assert!(!again.versions.is_empty());
    assert_eq!(again.publisher, PublisherRole::Ready);
    assert_eq!(fingerprint_of_schema(&world).await, before);
}

#[tokio::test]
async fn processes_race_for_many_databases_of_a_cluster_that_has_no_role_yet() {
    let servers = Servers::start().await;
    let admin = servers.variable("DATABASE_URL");
    let mut connection = PgConnection::connect(&admin).await.unwrap();
    let on = |name: &str| format!("{}/{name}", admin.rsplit_once('/').unwrap().0);
    // First as an owner who may not create roles.
    connection.execute("create role plain login").await.unwrap();
    connection.execute("create database plain owner plain").await.unwrap();
    let plain = on("plain").replace("postgres@", "plain@");
    let told = migrate_command(&plain).output().await.unwrap();
    let shown =
        String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    assert!(shown.contains(PublisherRole::STATEMENT), "{shown}");
    // Then eight at once for each of four databases, and each makes the role if it can.
    for name in ["d0", "d1", "d2", "d3"] {
        connection.execute(sqlx::AssertSqlSafe(format!("create database {name}"))).await.unwrap();
    }
    let all = (0..32).map(|n| migrate_command(&on(&format!("d{}", n % 4))).output());
    for told in futures::future::join_all(all).await {
        let told = told.unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }
    for name in ["d0", "d1", "d2", "d3"] {
        let mut database = PgConnection::connect(&on(name)).await.unwrap();
        let granted: bool = sqlx::query_scalar(
            "select bool_and(has_function_privilege('oncebox_publisher', oid, 'execute')) from pg_proc where proname = 'submit' and pronamespace = 'oncebox'::regnamespace",
        )
        .fetch_one(&mut database)
        .await
        .unwrap();
        assert!(granted, "{name}");
    }
    // Now that somebody made it, the plain owner gets on.
    let told = store::migrate(&DatabaseUrl::new(&plain)).await.unwrap();
    assert_eq!(told.publisher, PublisherRole::Ready);
}

#[tokio::test]
async fn workers_do_not_notice() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "twins: {hold: false}")).await;
    let roles = world.run("relay,worker,maintain");
    for n in 0..10 {
        world.submit(&refund(&world, &format!("s{n}"))).await.unwrap();
        store::migrate(&DatabaseUrl::new(&world.database)).await.unwrap();
    }
    world.settled(30).await;
    roles.stop().await;
    let applied =
        "select count(*) from oncebox.operations where status = 'applied' and attempts = 1";
    assert_eq!(world.count(applied).await, 10);
    assert_eq!(downstream.total().await, 10);
}

#[tokio::test]
async fn a_killed_one_leaves_no_lock() {
    let world = World::new().await;
    // Half done: the lock is held, as by a migrator in the middle of its work.
    let mut holder = world.connect().await;
    holder
        .execute("begin; select pg_advisory_xact_lock(hashtextextended('oncebox migrate', 0))")
        .await
        .unwrap();
    let mut command = std::process::Command::new(built("oncebox"));
    command
        .arg("migrate")
        .envs(world.variables())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let mut waiting = Process::start(command);
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
    eventually("the second migrator waits", 30, async || {
        (world.count(waits).await == 1).then_some(())
    })
    .await;
    // One is killed while it waits, the other while it holds.
    waiting.kill();
    drop(holder);
    let url = DatabaseUrl::new(&world.database);
    let done = tokio::time::timeout(Duration::from_secs(60), store::migrate(&url)).await;
    done.expect("does not hang").unwrap();
    let left = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())";
    eventually("no lock is left", 30, async || (world.count(left).await == 0).then_some(())).await;
}

#[tokio::test]
async fn a_changed_one_is_refused_and_changes_nothing() {
    let world = World::new().await;
    world
        .connect()
        .await
        .execute("update oncebox.schema_migrations set checksum = 'of another release' where version = 1")
        .await
        .unwrap();
    let before = fingerprint_of_schema(&world).await;
    let refused = store::migrate(&DatabaseUrl::new(&world.database)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unreadable(_)), "{refused:?}");
    assert!(refused.to_string().contains("applied migration differs"), "{refused}");
    assert_eq!(fingerprint_of_schema(&world).await, before);
}
