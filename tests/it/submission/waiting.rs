//! A submission waits for another's uncommitted insert of its key, for a bounded time, and answers
//! only what is certain: what was committed, or that it is the first itself.

use std::time::Duration;

use oncebox::ingress::Submission;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::task::JoinHandle;

use super::{OTHER, asking, refund, world};
use crate::support::doors::{Door, Refusal, everything};
use crate::support::eventually;
use crate::support::world::World;

/// Begins at `isolation` and takes a snapshot, as an application that has already read something.
async fn begin(world: &World, isolation: &'static str) -> PgConnection {
    let mut connection = world.connect().await;
    connection
        .execute(sqlx::AssertSqlSafe(format!("begin isolation level {isolation}")))
        .await
        .unwrap();
    connection.execute("select count(*) from oncebox.operations").await.unwrap();
    connection
}

/// Asks on `connection` in the background.
fn asks(
    door: Door,
    mut connection: PgConnection,
    submission: Submission,
) -> JoinHandle<(PgConnection, Result<Value, Refusal>)> {
    tokio::spawn(async move {
        let answer = door.ask(&mut connection, &submission).await;
        (connection, answer)
    })
}

/// Waits until one session of this database waits for a lock.
async fn somebody_waits(world: &World) {
    eventually("a session waits for the first insert", 20, async || {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        (world.count(waiting).await == 1).then_some(())
    })
    .await;
}

async fn commit(mut connection: PgConnection) {
    connection.execute("commit").await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn after_the_first_commits_the_second_gets_its_answer() {
    for (first, second) in [(Door::Rust, Door::Sql), (Door::Sql, Door::Rust)] {
        let world = world().await;
        let mut one = begin(&world, "read committed").await;
        let began = first.ask(&mut one, &refund(&world, "s1")).await.unwrap();
        let same = asks(second, begin(&world, "read committed").await, refund(&world, "s1"));
        somebody_waits(&world).await;
        assert!(!same.is_finished());
        one.execute("commit").await.unwrap();
        let (connection, told) = same.await.unwrap();
        let told = told.unwrap();
        assert_eq!(
            (&told["status"], &told["operation_id"]),
            (&"in_flight".into(), &began["operation_id"])
        );
        commit(connection).await;
        assert_eq!(world.count("select count(*) from oncebox.outbox").await, 1);
    }
}

#[tokio::test]
async fn another_request_waits_too_and_is_then_rejected() {
    for door in Door::BOTH {
        let world = world().await;
        let mut one = begin(&world, "read committed").await;
        door.ask(&mut one, &refund(&world, "s1")).await.unwrap();
        let other = asks(door, begin(&world, "read committed").await, asking(&world, "s1", OTHER));
        somebody_waits(&world).await;
        one.execute("commit").await.unwrap();
        let (connection, told) = other.await.unwrap();
        assert_eq!(
            told.unwrap()["reason"],
            "operation_key_reused_with_different_request",
            "{door:?}"
        );
        commit(connection).await;
    }
}

#[tokio::test]
async fn after_the_first_rolls_back_the_second_is_the_first() {
    for (first, second) in [(Door::Rust, Door::Sql), (Door::Sql, Door::Rust)] {
        let world = world().await;
        let mut one = begin(&world, "read committed").await;
        let began = first.ask(&mut one, &refund(&world, "s1")).await.unwrap();
        let other =
            asks(second, begin(&world, "read committed").await, asking(&world, "s1", OTHER));
        somebody_waits(&world).await;
        one.execute("rollback").await.unwrap();
        let (connection, told) = other.await.unwrap();
        let told = told.unwrap();
        assert_eq!(told["status"], "in_flight");
        assert_ne!(told["operation_id"], began["operation_id"]);
        commit(connection).await;
        assert_eq!(world.count("select count(*) from oncebox.operations").await, 1);
        assert_eq!(world.count("select count(*) from oncebox.outbox").await, 1);
    }
}

#[tokio::test]
async fn when_the_first_takes_too_long_the_error_is_raised_and_nothing_is_answered() {
    let world = world().await;
    let mut one = begin(&world, "read committed").await;
    Door::Rust.ask(&mut one, &refund(&world, "s1")).await.unwrap();
    let both = Door::BOTH.map(|door| {
        let world = &world;
        async move {
            let mut mine = begin(world, "read committed").await;
            let refused = door.ask(&mut mine, &refund(world, "s1")).await.unwrap_err();
            assert_eq!(refused.code.as_deref(), Some("55P03"), "{door:?}: {}", refused.text);
            // The caller's transaction can only be rolled back, so no answer can be committed.
            mine.execute("select 1").await.unwrap_err();
        }
    });
    tokio::time::timeout(Duration::from_secs(60), futures::future::join_all(both)).await.unwrap();
    one.execute("commit").await.unwrap();
    let told = Door::Sql.submit(&world, &refund(&world, "s1")).await.unwrap();
    assert_eq!(told["status"], "in_flight", "repeated, it is answered");
}

#[tokio::test]
async fn a_stricter_snapshot_gets_an_error_where_it_cannot_see_the_first_and_never_a_second_record()
{
    for isolation in ["repeatable read", "serializable"] {
        for door in Door::BOTH {
            let world = world().await;
            let mut late = begin(&world, isolation).await;
            door.submit(&world, &refund(&world, "s1")).await.unwrap();
            let before = everything(&world).await;
            let refused = door.ask(&mut late, &refund(&world, "s1")).await.unwrap_err();
            assert_eq!(
                refused.code.as_deref(),
                Some("40001"),
                "{door:?} {isolation}: {}",
                refused.text
            );
            late.execute("rollback").await.unwrap();
            assert_eq!(everything(&world).await, before);
            let mut fresh = begin(&world, isolation).await;
            let told = door.ask(&mut fresh, &refund(&world, "s1")).await.unwrap();
            assert_eq!(told["status"], "in_flight", "{door:?} {isolation}");
            let new = door.ask(&mut fresh, &refund(&world, "s2")).await.unwrap();
            assert_eq!(new["status"], "in_flight");
            commit(fresh).await;
            assert_eq!(world.count("select count(*) from oncebox.operations").await, 2);
        }
    }
}

#[tokio::test]
async fn a_stricter_snapshot_that_waited_gets_an_error_too() {
    for door in Door::BOTH {
        let world = world().await;
        let mut one = begin(&world, "read committed").await;
        door.ask(&mut one, &refund(&world, "s1")).await.unwrap();
        let second = asks(door, begin(&world, "repeatable read").await, refund(&world, "s1"));
        somebody_waits(&world).await;
        one.execute("commit").await.unwrap();
        let (_, refused) = second.await.unwrap();
        assert_eq!(refused.unwrap_err().code.as_deref(), Some("40001"), "{door:?}");
    }
}
