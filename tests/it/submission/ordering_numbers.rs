//! Numbers under one ordering key follow the commits, and within one call the caller's own order.

use oncebox::ingress::{Publisher, Submission};
use sqlx::Executor as _;

use super::{refund, world};
use crate::support::doors::Door;
use crate::support::eventually;
use crate::support::world::World;

fn ordered(world: &World, step: &str, key: &str) -> Submission {
    Submission { ordering_key: Some(key.into()), ..refund(world, step) }
}

async fn steps_in_order(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "select split_part(operation_key, ':', 4) from oncebox.operations order by order_number",
    )
    .fetch_all(&mut world.connect().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_list_keeps_its_order_whatever_the_keys_are() {
    let world = world().await;
    let steps: Vec<String> = (0..40).map(|n| format!("s{}", (n * 17) % 40)).collect();
    let list: Vec<_> = steps.iter().map(|step| ordered(&world, step, "o")).collect();
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    let told = Publisher::default().submit_many(&mut connection, &list).await.unwrap();
    connection.execute("commit").await.unwrap();
    assert!(told.iter().all(Result::is_ok));
    assert_eq!(steps_in_order(&world).await, steps);
}

#[tokio::test]
async fn the_second_takes_its_number_after_the_first_has_committed() {
    for door in Door::BOTH {
        let world = world().await;
        let mut first = world.connect().await;
        first.execute("begin").await.unwrap();
        door.ask(&mut first, &ordered(&world, "early", "o")).await.unwrap();
        let late = ordered(&world, "a-late", "o");
        let other = ordered(&world, "other", "p");
        let (told, ()) = tokio::join!(door.submit(&world, &late), async {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
            eventually("the second waits for the first", 20, async || {
                (world.count(waiting).await == 1).then_some(())
            })
            .await;
            door.submit(&world, &other).await.unwrap();
            first.execute("commit").await.unwrap();
        });
        told.unwrap();
        let mut steps = steps_in_order(&world).await;
        steps.retain(|step| step != "other");
        assert_eq!(steps, ["early", "a-late"], "{door:?}");
    }
}

#[tokio::test]
async fn a_wait_that_takes_too_long_is_an_error() {
    let world = world().await;
    let mut first = world.connect().await;
    first.execute("begin").await.unwrap();
    Door::Sql.ask(&mut first, &ordered(&world, "s1", "o")).await.unwrap();
    let (s2, s3) = (ordered(&world, "s2", "o"), ordered(&world, "s3", "o"));
    let (a, b) = tokio::join!(Door::Rust.submit(&world, &s2), Door::Sql.submit(&world, &s3));
    for refused in [a.unwrap_err(), b.unwrap_err()] {
        assert_eq!(refused.code.as_deref(), Some("55P03"), "{}", refused.text);
    }
    first.execute("commit").await.unwrap();
    assert_eq!(steps_in_order(&world).await, ["s1"]);
}

#[tokio::test]
async fn an_operator_who_reopens_puts_an_operation_behind_those_that_went_ahead() {
    let world = world().await;
    for step in ["first", "second"] {
        let submission =
            oncebox::ingress::Submission { ordering_key: Some("q".into()), ..refund(&world, step) };
        world.submit(&submission).await.unwrap();
    }
    let mut connection = world.connect().await;
    connection
        .execute("update oncebox.operations set status = 'failed_permanent', phase = null, reason = 'refused' where operation_key like '%:first'")
        .await
        .unwrap();
    let verb =
        ["ops", "retry", "acme:test:run:first", "--reopen", "--by", "ann", "--reason", "mended"];
    let done = crate::support::process::oncebox(&world, &verb).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let behind = "select (select order_number from oncebox.operations where operation_key like '%:first') \
                  - (select order_number from oncebox.operations where operation_key like '%:second')";
    assert!(world.count(behind).await > 0);
}
