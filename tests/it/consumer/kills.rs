//! A worker killed at any step costs no operation and makes no second effect: a tool that can be
//! asked again ends applied, a blind one ends applied or unknown, and unknown only when its request
//! may have left.

use super::dam::Dam;
use super::kit;
use crate::support::downstream::Downstream;
use crate::support::process::Process;
use crate::support::world::{Running, World};

const TICKETS: &str = "tickets.create";
const MAIL: &str = "mail.send";

/// A world with both tools, a relay and maintain; the workers come and go.
async fn stage() -> (World, Downstream, Running) {
    let (world, downstream) = (World::new().await, Downstream::start());
    kit::contract(&world, &kit::quick_tickets(&downstream)).await;
    kit::contract(&world, &kit::quick_mails(&downstream)).await;
    let roles = world.run_with("relay,maintain", kit::MARGIN, Default::default());
    (world, downstream, roles)
}

/// Submits `tool`'s step "s" to a first worker and answers when its call has arrived.
async fn called(world: &World, downstream: &Downstream, tool: &str) -> Process {
    let worker = kit::worker(world, "same");
    kit::submit(world, tool, "s").await;
    kit::arrived(downstream, 1).await;
    worker
}

/// A second worker of the same name brings it to `status`; then checks the effects.
async fn recovers(
    world: &World,
    downstream: &Downstream,
    status: &str,
    effects: u64,
) -> kit::Record {
    let second = kit::worker(world, "same");
    let record = kit::ends(world, "s", status).await;
    drop(second);
    assert_eq!(downstream.total().await, effects);
    assert_eq!(downstream.most_per_key().await, effects);
    record
}

#[tokio::test]
async fn before_the_claim() {
    for tool in [TICKETS, MAIL] {
        let (world, downstream, _roles) = stage().await;
        kit::submit(&world, tool, "s").await;
        let held = kit::hold_row(&world, "s").await;
        let mut first = kit::worker(&world, "same");
        let postponed = "select count(*) from oncebox.operations where claim_epoch > 0";
        // Delivered and found busy: the worker asks again every few milliseconds until it puts it off.
        crate::support::eventually("its message is out", 20, async || {
            (world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
        })
        .await;
        first.kill();
        drop(held);
        assert_eq!(world.count(postponed).await, 0);
        let record = recovers(&world, &downstream, "applied", 1).await;
        assert_eq!((record.attempts, record.lost_claims), (1, 0));
    }
}

#[tokio::test]
async fn with_the_request_on_its_way_that_never_arrives() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let dam = Dam::before(downstream.url.strip_prefix("http://").unwrap()).await;
    let through = format!("http://{}", dam.address);
    kit::contract(&world, &kit::quick_tickets(&downstream).replace(&downstream.url, &through))
        .await;
    let _roles = world.run_with("relay,maintain", kit::MARGIN, Default::default());
    dam.close();
    let mut first = kit::worker(&world, "same");
    kit::submit(&world, TICKETS, "s").await;
    kit::until(&world, "s", "it is marked as sent", |record| {
        record.phase.as_deref() == Some("sent")
    })
    .await;
    first.kill();
    dam.open();
    let record = recovers(&world, &downstream, "applied", 1).await;
    assert_eq!(record.attempts, 2);
}

#[tokio::test]
async fn while_the_downstream_has_not_acted_yet() {
    for (tool, status) in [(TICKETS, "applied"), (MAIL, "unknown")] {
        let (world, downstream, _roles) = stage().await;
        downstream.control(serde_json::json!({"pause": true})).await;
        let mut first = called(&world, &downstream, tool).await;
        first.kill();
        // The downstream goes on with what it was asked, though nobody waits for the answer.
        downstream.control(serde_json::json!({"pause": false})).await;
        let record = recovers(&world, &downstream, status, 1).await;
        if tool == MAIL {
            assert_eq!(record.reason.as_deref(), Some("worker_lost"));
        }
        let trace = world.trace("s").await;
        assert!(trace.iter().any(|event| event == "lease_lost"), "{trace:?}");
    }
}

#[tokio::test]
async fn after_the_effect_and_before_its_answer() {
    for (tool, status) in [(TICKETS, "applied"), (MAIL, "unknown")] {
        let (world, downstream, _roles) = stage().await;
        let late = serde_json::json!({"delay_ms_after_effect": 700, "times": 1});
        downstream.control(late).await;
        let mut first = called(&world, &downstream, tool).await;
        crate::support::eventually("the effect", 20, async || {
            (downstream.total().await == 1).then_some(())
        })
        .await;
        first.kill();
        recovers(&world, &downstream, status, 1).await;
    }
}

#[tokio::test]
async fn after_the_answer_and_before_the_settle() {
    for (tool, status) in [(TICKETS, "applied"), (MAIL, "unknown")] {
        let (world, downstream, _roles) = stage().await;
        let barrier = kit::stop_before(&world, "applied").await;
        let mut first = called(&world, &downstream, tool).await;
        kit::stands_there(&world).await;
        first.kill();
        drop(barrier);
        recovers(&world, &downstream, status, 1).await;
    }
}

#[tokio::test]
async fn after_the_settle_and_before_the_ack() {
    for tool in [TICKETS, MAIL] {
        let (world, downstream, _roles) = stage().await;
        let (login, host) = world.amqp.strip_prefix("amqp://").unwrap().split_once('@').unwrap();
        let (host, vhost) = host.split_once('/').unwrap();
        let dam = Dam::before(host).await;
        let through = format!("amqp://{login}@{}/{vhost}", dam.address);
        downstream.control(serde_json::json!({"pause": true})).await;
        let mut first = kit::roles(&world, "worker", &[("AMQP_URL", &through)]);
        kit::submit(&world, tool, "s").await;
        kit::arrived(&downstream, 1).await;
        dam.close();
        downstream.control(serde_json::json!({"pause": false})).await;
        kit::ends(&world, "s", "applied").await;
        first.kill();
        let second = kit::worker(&world, "same");
        crate::support::eventually("the message came again and was replayed", 20, async || {
            world.trace("s").await.iter().any(|event| event == "replayed").then_some(())
        })
        .await;
        drop(second);
        assert_eq!(downstream.effects().await["requests"], 1);
    }
}

#[tokio::test]
async fn a_blind_tools_worker_before_its_mark() {
    let (world, downstream, _roles) = stage().await;
    let barrier = kit::stop_before(&world, "sent").await;
    let mut first = kit::worker(&world, "same");
    kit::submit(&world, MAIL, "s").await;
    kit::stands_there(&world).await;
    first.kill();
    drop(barrier);
    let record = recovers(&world, &downstream, "applied", 1).await;
    assert_eq!(record.attempts, 1, "the first one never began");
}

#[tokio::test]
async fn an_operation_that_kills_its_worker_each_time_is_parked_after_five() {
    let (world, downstream, _roles) = stage().await;
    downstream.control(serde_json::json!({"pause": true})).await;
    kit::submit(&world, TICKETS, "s").await;
    for lost in 1..=5 {
        let mut worker = kit::worker(&world, "same");
        kit::arrived(&downstream, lost).await;
        worker.kill();
    }
    let last = kit::worker(&world, "same");
    let record =
        kit::until(&world, "s", "it is parked", |record| record.phase.as_deref() == Some("parked"))
            .await;
    assert_eq!(record.reason.as_deref(), Some("worker_lost"));
    assert_eq!(downstream.effects().await["requests"], 5);
    drop(last);
}
