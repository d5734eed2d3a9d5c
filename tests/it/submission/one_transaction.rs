//! Business rows, operation record and outbox row commit together or leave nothing, at both doors.

use sqlx::Executor as _;

use super::{asking, refund, world};
use crate::support::doors::{Door, everything};
use crate::support::world::World;

async fn with_orders() -> World {
    let world = world().await;
    world.connect().await.execute("create table orders (id int primary key)").await.unwrap();
    world
}

async fn rows(world: &World) -> [i64; 4] {
    [
        world.count("select count(*) from orders").await,
        world.count("select count(*) from oncebox.operations").await,
        world.count("select count(*) from oncebox.outbox").await,
        world.count("select count(*) from oncebox.operation_events").await,
    ]
}

#[tokio::test]
async fn a_commit_leaves_the_business_row_the_record_and_its_message() {
    for door in Door::BOTH {
        let world = with_orders().await;
        let mut application = world.connect().await;
        application.execute("begin; insert into orders values (1)").await.unwrap();
        let told = door.ask(&mut application, &refund(&world, "s1")).await.unwrap();
        assert_eq!(rows(&world).await, [0, 0, 0, 0], "{door:?}: nothing is seen before the commit");
        application.execute("commit").await.unwrap();
        let [orders, operations, messages, events] = rows(&world).await;
        assert_eq!((orders, operations, messages), (1, 1, 1), "{door:?}");
        assert!(events >= 1);
        assert_eq!(told["status"], "in_flight");
        let named = world
            .count("select count(*) from oncebox.outbox x join oncebox.operations o using (operation_id, operation_key, tenant_id)")
            .await;
        assert_eq!(named, 1, "the message names its record");
    }
}

#[tokio::test]
async fn a_rollback_leaves_nothing() {
    for door in Door::BOTH {
        let world = with_orders().await;
        let mut application = world.connect().await;
        application.execute("begin; insert into orders values (1)").await.unwrap();
        door.ask(&mut application, &refund(&world, "s1")).await.unwrap();
        application.execute("rollback").await.unwrap();
        assert_eq!(rows(&world).await, [0, 0, 0, 0], "{door:?}");
    }
}

#[tokio::test]
async fn a_rollback_to_a_savepoint_takes_the_submission_and_nothing_else() {
    for door in Door::BOTH {
        let world = with_orders().await;
        let mut application = world.connect().await;
        application.execute("begin; insert into orders values (1)").await.unwrap();
        door.ask(&mut application, &refund(&world, "kept")).await.unwrap();
        application.execute("savepoint here").await.unwrap();
        door.ask(&mut application, &refund(&world, "undone")).await.unwrap();
        application.execute("rollback to savepoint here; commit").await.unwrap();
        let [orders, operations, messages, _] = rows(&world).await;
        assert_eq!((orders, operations, messages), (1, 1, 1), "{door:?}");
        assert_eq!(world.status("kept").await.0, "pending");
    }
}

#[tokio::test]
async fn a_connection_that_dies_before_its_commit_leaves_nothing() {
    for door in Door::BOTH {
        let world = with_orders().await;
        let mut application = world.connect().await;
        application.execute("begin; insert into orders values (1)").await.unwrap();
        door.ask(&mut application, &refund(&world, "s1")).await.unwrap();
        drop(application);
        // The key is free again once the server has noticed: the next one is the first.
        let told = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        assert_eq!(told["status"], "in_flight");
        assert_eq!(rows(&world).await[..3], [0, 1, 1], "{door:?}");
    }
}

#[tokio::test]
async fn a_refusal_by_the_sql_function_fails_the_business_rows_with_it() {
    let world = with_orders().await;
    let mut application = world.connect().await;
    application.execute("begin; insert into orders values (1)").await.unwrap();
    let mut nameless = refund(&world, "s1");
    nameless.tenant = "Not A Name".into();
    Door::Sql.ask(&mut application, &nameless).await.unwrap_err();
    application.execute("commit").await.unwrap();
    assert_eq!(rows(&world).await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_refusal_by_the_rust_api_leaves_the_transaction_to_the_application() {
    let world = with_orders().await;
    let mut application = world.connect().await;
    application.execute("begin; insert into orders values (1)").await.unwrap();
    let unfit = asking(&world, "s1", r#"{"subject":7}"#);
    Door::Rust.ask(&mut application, &unfit).await.unwrap_err();
    application.execute("commit").await.unwrap();
    assert_eq!(rows(&world).await, [1, 0, 0, 0]);
    assert!(everything(&world).await.is_empty());
}

/// What notifies cannot be prepared (PostgreSQL, PREPARE TRANSACTION): a deployment that prepares
/// its transactions switches the notification off, and relays poll.
#[tokio::test]
async fn a_prepared_transaction_publishes_where_the_notification_is_switched_off() {
    let world = with_orders().await;
    let allowed =
        "select setting::bigint from pg_settings where name = 'max_prepared_transactions'";
    if world.count(allowed).await == 0 {
        println!("not run: this server prepares no transactions (max_prepared_transactions = 0)");
        return;
    }
    let mut relay = world.connect().await;
    relay.execute("select pg_advisory_lock(31365095596650360)").await.unwrap();
    let mut application = world.connect().await;
    application
        .execute("update oncebox.settings set value = 'off' where name = 'wake_by_notify'")
        .await
        .unwrap();
    application.execute("begin").await.unwrap();
    Door::Sql.ask(&mut application, &refund(&world, "s1")).await.unwrap();
    application.execute("prepare transaction 'two_phases'").await.unwrap();
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 0);
    application.execute("commit prepared 'two_phases'").await.unwrap();
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 1);
}
