//! A worker without an operation's contract version leaves it to one that has it; when nobody has had
//! it for a minute it is parked, and goes on with the first worker that brings it.

use oncebox::ingress::Submission;
use sqlx::Executor as _;

use super::kit;
use crate::support::downstream::{Downstream, tickets};
use crate::support::{eventually, world::World};

/// Makes the waiting message due now, and the operation two minutes old.
async fn two_minutes_later(world: &World) {
    let mut connection = world.connect().await;
    let age = "update oncebox.operations set opened_at = opened_at - interval '2 minutes'; \
        update oncebox.outbox set due_at = clock_timestamp()";
    connection.execute(sqlx::raw_sql(age)).await.unwrap();
}

async fn put_off(world: &World) {
    let later = "select count(*) from oncebox.outbox where due_at > clock_timestamp() + interval '5 seconds'";
    eventually("its message is put off", 20, async || {
        (world.count(later).await == 1).then_some(())
    })
    .await;
    assert_eq!(kit::record(world, "s").await.phase.as_deref(), Some("queued"));
}

#[tokio::test]
async fn a_version_that_no_worker_has() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let (old, new) = (world.contracts.join("old"), world.contracts.join("new"));
    let contract = tickets(&downstream.url, "");
    kit::contract_in(&world, &old, &contract).await;
    kit::contract_in(&world, &new, &contract.replace("version: \"1\"", "version: \"2\"")).await;
    let only = |directory: &std::path::Path| directory.display().to_string();
    let old = world.run_with("relay,worker", &[("contracts", &only(&old))], Default::default());
    let submission = kit::submission(&world, "tickets.create", "s");
    let second = Submission { tool_version: Some("2".into()), ..submission };
    world.submit(&second).await.unwrap();
    put_off(&world).await;
    // Old enough, but a live worker has it: not parked.
    let seen = "insert into oncebox.workers (worker, tool_name, tool_version) values ('other', 'tickets.create', '2')";
    world.connect().await.execute(seen).await.unwrap();
    two_minutes_later(&world).await;
    put_off(&world).await;
    // Nobody has had it for a minute.
    let gone = "update oncebox.workers set seen_at = seen_at - interval '2 minutes' where worker = 'other'";
    world.connect().await.execute(gone).await.unwrap();
    two_minutes_later(&world).await;
    let parked =
        kit::until(&world, "s", "it is parked", |record| record.phase.as_deref() == Some("parked"))
            .await;
    assert_eq!(parked.reason.as_deref(), Some("contract_version_unknown"));
    assert_eq!(downstream.effects().await["requests"], 0);
    // Others of the old version go on beside it.
    kit::submit(&world, "tickets.create", "t").await;
    kit::ends(&world, "t", "applied").await;
    let new = world.run_with("worker", &[("contracts", &only(&new))], Default::default());
    kit::ends(&world, "s", "applied").await;
    assert_eq!(downstream.total().await, 2);
    old.stop().await;
    new.stop().await;
}
