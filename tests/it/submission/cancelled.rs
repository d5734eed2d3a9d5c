//! A cancelled transaction leaves no connection inside it, and what was reported as written is
//! written.

use std::collections::HashSet;
use std::time::Duration;

use oncebox::store::{DatabaseUrl, Link, StoreError};
use sqlx::Executor as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::eventually;
use crate::support::world::World;

/// What one direction of the slow road takes for each chunk.
const DELAY: Duration = Duration::from_millis(5);

/// A road to `target` that takes its time, so that a future can be dropped between any two steps.
async fn slow_road(target: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&target).await else { continue };
            client.set_nodelay(true).ok();
            server.set_nodelay(true).ok();
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async {
                tokio::select! {
                    () = carry(from_client, to_server) => {}
                    () = carry(from_server, to_client) => {}
                }
            });
        }
    });
    address
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(DELAY).await;
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// The same database by another road.
fn by(world: &World, address: &str) -> (String, DatabaseUrl) {
    let (login, place) = world.database.split_once('@').unwrap();
    let (target, database) = place.split_once('/').unwrap();
    (target.to_owned(), DatabaseUrl::new(format!("{login}@{address}/{database}")))
}

async fn write(link: &mut Link, number: i32) -> Result<(), StoreError> {
    link.transaction(async move |connection| {
        sqlx::query("insert into written values ($1)").bind(number).execute(connection).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn five_hundred_transactions_dropped_at_any_moment_leave_nothing_open_and_lie_about_nothing()
{
    let world = World::new().await;
    world.connect().await.execute("create table written (number int primary key)").await.unwrap();
    let (target, _) = by(&world, "");
    let (_, url) = by(&world, &slow_road(target).await);
    let loops = (0..4).map(|lane| {
        let url = url.clone();
        async move {
            let mut link = Link::new(&url, "slow", Duration::from_secs(20));
            let (mut reported, mut refused) = (HashSet::new(), HashSet::new());
            for turn in 0..125 {
                let number = lane * 1000 + turn;
                // Every moment of a connect, a begin, a write and a commit has its turn.
                let patience = Duration::from_millis(u64::try_from(turn * 13 % 120).unwrap());
                match tokio::time::timeout(patience, write(&mut link, number)).await {
                    Ok(Ok(())) => drop(reported.insert(number)),
                    Ok(Err(error)) if error.nothing_written() => drop(refused.insert(number)),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            // It heals by itself.
            write(&mut link, lane * 1000 + 999).await.unwrap();
            reported.insert(lane * 1000 + 999);
            (reported, refused)
        }
    });
    let all = futures::future::join_all(loops).await;
    let open = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null";
    eventually("no session stays in a transaction", 20, async || {
        (world.count(open).await == 0).then_some(())
    })
    .await;
    let written: HashSet<i32> = sqlx::query_scalar::<_, i32>("select number from written")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap()
        .into_iter()
        .collect();
    let reported: HashSet<i32> =
        all.iter().flat_map(|(reported, _)| reported.iter().copied()).collect();
    assert!(reported.len() > 20, "some got through: {}", reported.len());
    assert!(reported.len() < 450, "some were cut off: {}", reported.len());
    assert!(
        reported.is_subset(&written),
        "reported and not there: {:?}",
        reported.difference(&written)
    );
    assert!(all.iter().all(|(_, refused)| refused.is_disjoint(&written)));
}

#[tokio::test]
async fn a_commit_of_a_transaction_that_failed_is_no_success() {
    let world = World::new().await;
    world.connect().await.execute("create table written (number int primary key)").await.unwrap();
    let mut link = Link::new(&DatabaseUrl::new(&world.database), "test", Duration::from_secs(20));
    let told = link
        .transaction(async |connection| {
            sqlx::query("insert into written values (1)").execute(&mut *connection).await?;
            // Somebody forgets to look at an error.
            sqlx::query("insert into written values (1)").execute(&mut *connection).await.ok();
            Ok(())
        })
        .await;
    let error = told.unwrap_err();
    assert!(error.nothing_written());
    assert_eq!(error.sqlstate().as_deref(), Some("25P02"));
    assert_eq!(world.count("select count(*) from written").await, 0);
    write(&mut link, 2).await.unwrap();
}

#[tokio::test]
async fn a_refusal_at_the_commit_is_certain_and_a_session_that_ends_with_it_is_not() {
    let world = World::new().await;
    let mut admin = world.connect().await;
    admin
        .execute(
            "create table written (number int primary key, twin int unique deferrable initially deferred)",
        )
        .await
        .unwrap();
    let mut link = Link::new(&DatabaseUrl::new(&world.database), "test", Duration::from_secs(20));
    let refused = link
        .transaction(async |connection| {
            connection.execute("insert into written values (1, 1), (2, 1)").await?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert!(refused.nothing_written());
    assert_eq!(refused.sqlstate().as_deref(), Some("23505"));
    // Ended by an administrator while it waits to commit: it may have been written for all we know.
    let ended = link
        .transaction(async |connection| {
            let pid: i32 =
                sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *connection).await?;
            connection.execute("insert into written values (3, 3)").await?;
            sqlx::query("select pg_terminate_backend($1, 5000)")
                .bind(pid)
                .execute(&mut admin)
                .await?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert!(!ended.nothing_written(), "{ended:?}");
    write_three(&mut link).await;
}

async fn write_three(link: &mut Link) {
    link.transaction(async |connection| {
        connection.execute("insert into written values (4, 4)").await?;
        Ok(())
    })
    .await
    .unwrap();
}
