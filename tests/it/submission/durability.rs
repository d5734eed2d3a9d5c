//! What was answered survives a crash of the server: submissions, reopenings and the workers' writes
//! commit durably, whatever the database's or the role's default says.

use std::time::Duration;

use oncebox::domain::lifecycle::State;
use oncebox::domain::reason::Reason;
use oncebox::store::{DatabaseUrl, Link};
use sqlx::{Executor as _, PgConnection};

use super::{refund, world};
use crate::support::doors::{Door, force};
use crate::support::world::World;

async fn with_default(level: &str) -> World {
    let world = world().await;
    let lax = format!(
        "do $$ begin execute format('alter database %I set synchronous_commit = {level}', current_database()); end $$"
    );
    world.connect().await.execute(sqlx::AssertSqlSafe(lax)).await.unwrap();
    world
}

async fn level(connection: &mut PgConnection) -> String {
    sqlx::query_scalar("select current_setting('synchronous_commit')")
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_submission_commits_with_on_or_stronger() {
    for (default, effective) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        let world = with_default(default).await;
        for door in Door::BOTH {
            let mut application = world.connect().await;
            assert_eq!(level(&mut application).await, default);
            application.execute("begin").await.unwrap();
            let step = format!("{door:?}");
            door.ask(&mut application, &refund(&world, &step)).await.unwrap();
            assert_eq!(level(&mut application).await, effective, "{door:?}");
            application.execute("commit").await.unwrap();
            assert_eq!(level(&mut application).await, default, "the session keeps its own");
        }
    }
}

#[tokio::test]
async fn so_does_one_inside_a_savepoint_and_a_reopening() {
    let world = with_default("off").await;
    for door in Door::BOTH {
        let mut application = world.connect().await;
        let step = format!("{door:?}");
        application.execute("begin; savepoint a").await.unwrap();
        door.ask(&mut application, &refund(&world, &step)).await.unwrap();
        application.execute("release savepoint a").await.unwrap();
        assert_eq!(level(&mut application).await, "on", "{door:?}");
        application.execute("commit").await.unwrap();
        force(&world, &step, State::Rejected, Some(Reason::NotAuthorized), false).await;
        application.execute("begin").await.unwrap();
        let told = door.ask(&mut application, &refund(&world, &step)).await.unwrap();
        assert_eq!(told["status"], "in_flight");
        assert_eq!(level(&mut application).await, "on", "{door:?}");
        application.execute("commit").await.unwrap();
    }
}

#[tokio::test]
async fn claims_marks_and_settles_do_too() {
    for (default, effective) in
        [("off", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
    {
        let world = with_default(default).await;
        let url = DatabaseUrl::new(&world.database);
        let mut link = Link::new(&url, "test", Duration::from_secs(30));
        for _ in 0..2 {
            let seen =
                link.transaction(async |connection| Ok(level(connection).await)).await.unwrap();
            assert_eq!(seen, effective);
        }
    }
}
