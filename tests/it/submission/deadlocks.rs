//! Publishers with overlapping keys wait for each other and never deadlock, whatever order they list
//! them in.

use oncebox::ingress::{Publisher, Submission, SubmitError};
use sqlx::{Executor as _, PgConnection};

use super::{refund, world};

const KEYS: usize = 800;
const ROUNDS: usize = 40;

async fn publish(
    publisher: &Publisher,
    connection: &mut PgConnection,
    list: &[Submission],
) -> Result<usize, SubmitError> {
    connection.execute("begin").await.unwrap();
    let told = publisher.submit_many(connection, list).await;
    connection.execute(if told.is_ok() { "commit" } else { "rollback" }).await.unwrap();
    Ok(told?.into_iter().filter(Result::is_ok).count())
}

#[tokio::test]
async fn eight_hundred_keys_ascending_and_descending_forty_times() {
    let world = world().await;
    let publisher = Publisher::default();
    let (mut up, mut down) = (world.connect().await, world.connect().await);
    for round in 0..ROUNDS {
        let ascending: Vec<_> =
            (0..KEYS).map(|n| refund(&world, &format!("r{round}-{n:04}"))).collect();
        let descending: Vec<_> = ascending.iter().rev().cloned().collect();
        let (a, b) = tokio::join!(
            publish(&publisher, &mut up, &ascending),
            publish(&publisher, &mut down, &descending)
        );
        assert_eq!((a.unwrap(), b.unwrap()), (KEYS, KEYS), "round {round}");
        // The disk's share of this test belongs to the locks.
        up.execute("truncate oncebox.outbox, oncebox.operation_events").await.unwrap();
    }
    let stand = world.count("select count(*) from oncebox.operations").await;
    assert_eq!(stand, i64::try_from(KEYS * ROUNDS).unwrap());
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(world.count(deadlocks).await, 0);
}
