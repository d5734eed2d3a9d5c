//! An application that repeats a submission and then sits in its transaction slows no worker, no
//! sweep and no other publisher: a submission locks no record that exists.

use oncebox::domain::outcome::Status;
use oncebox::ingress::Submission;
use oncebox::store;
use sqlx::Executor as _;

use super::{OTHER, REFUND, asking, refund, world};
use crate::support::doors::{Door, column};
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;

#[tokio::test]
async fn the_very_operation_is_claimed_made_and_settled_meanwhile() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    world.submit(&refund(&world, "s1")).await.unwrap();
    let (mut by_rust, mut by_sql) = (world.connect().await, world.connect().await);
    for (door, application) in [(Door::Rust, &mut by_rust), (Door::Sql, &mut by_sql)] {
        application.execute("begin").await.unwrap();
        for arguments in [REFUND, OTHER] {
            door.ask(application, &asking(&world, "s1", arguments)).await.unwrap();
        }
    }
    let roles = world.run("relay,worker,maintain");
    world.settled(30).await;
    roles.stop().await;
    assert_eq!(downstream.total().await, 1);
    assert_eq!(world.status("s1").await.0, "applied");
    let busy = "select count(*) from oncebox.operations where deferrals > 0 or lost_claims > 0";
    assert_eq!(world.count(busy).await, 0, "the claim never found it busy");
    // Under read committed the sitting application is told the truth of now.
    let told = Door::Rust.ask(&mut by_rust, &refund(&world, "s1")).await.unwrap();
    assert_eq!(told["status"], "replayed");
    by_sql.execute("commit").await.unwrap();
    by_rust.execute("commit").await.unwrap();
}

#[tokio::test]
async fn the_sweep_publishes_it_meanwhile() {
    for door in Door::BOTH {
        let world = world().await;
        door.submit(&world, &refund(&world, "s1")).await.unwrap();
        let mut sweeper = world.connect().await;
        sweeper
            .execute("delete from oncebox.outbox; update oncebox.operations set queued_at = now() - interval '1 hour'")
            .await
            .unwrap();
        let mut application = world.connect().await;
        application.execute("begin").await.unwrap();
        door.ask(&mut application, &refund(&world, "s1")).await.unwrap();
        let swept = store::sweep(&mut sweeper, None, 100).await.unwrap();
        assert_eq!(swept.published, 1, "{door:?}");
        application.execute("commit").await.unwrap();
    }
}

#[tokio::test]
async fn no_row_lock_and_no_advisory_lock_is_left_on_what_exists() {
    for door in Door::BOTH {
        let world = world().await;
        let ordered = Submission { ordering_key: Some("o".into()), ..refund(&world, "s1") };
        door.submit(&world, &ordered).await.unwrap();
        let mut application = world.connect().await;
        application.execute("begin").await.unwrap();
        door.ask(&mut application, &ordered).await.unwrap();
        // The strongest row lock is free at once.
        world
            .connect()
            .await
            .execute("select from oncebox.operations for update nowait")
            .await
            .unwrap_or_else(|error| panic!("{door:?}: {error}"));
        let held = "select count(*) from pg_locks l where l.granted and l.pid <> pg_backend_pid() \
             and l.database = (select oid from pg_database where datname = current_database()) \
             and (l.locktype in ('tuple', 'advisory') \
                  or (l.locktype = 'relation' and l.mode not in ('AccessShareLock', 'RowExclusiveLock')))";
        assert_eq!(world.count(held).await, 0, "{door:?}");
        // Others go on under the same ordering key.
        let next = Submission { ordering_key: Some("o".into()), ..refund(&world, "s2") };
        door.submit(&world, &next).await.unwrap();
        application.execute("commit").await.unwrap();
        assert_eq!(column(&world, "s2", "ordering_key").await.as_deref(), Some("o"));
    }
}

#[tokio::test]
async fn many_repeaters_do_not_wait_for_each_other() {
    let world = world().await;
    world.submit(&refund(&world, "s1")).await.unwrap();
    let mut sitting = Vec::new();
    for n in 0..20 {
        let mut application = world.connect().await;
        application.execute("begin; set local lock_timeout = '1ms'").await.unwrap();
        Door::BOTH[n % 2].ask(&mut application, &refund(&world, "s1")).await.unwrap();
        sitting.push(application);
    }
    assert_eq!(world.submit(&refund(&world, "s1")).await.unwrap().status, Status::InFlight);
}
