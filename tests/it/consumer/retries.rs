//! What certainly was not done is tried again without counting, visibly and within bounds; what is
//! open ends as unknown; a refusal is final only when nothing unproved went before it.

use serde_json::{Value, json};
use sqlx::Row as _;

use super::kit;
use crate::support::downstream::{Downstream, tickets};
use crate::support::{eventually, world::World};
use oncebox::domain::outcome::Status;

/// A ticket service with a fault, roles that run, and one submitted step "s".
async fn with_fault(retry: &str, fault: Value) -> (World, Downstream) {
    let (world, downstream) = (World::new().await, Downstream::start());
    kit::contract(&world, &tickets(&downstream.url, retry)).await;
    downstream.control(fault).await;
    (world, downstream)
}

#[tokio::test]
async fn an_answer_that_says_later_is_honoured_and_does_not_count() {
    let fault = json!({"status": 429, "retry_after": "3", "times": 1});
    let (world, downstream) = with_fault(kit::RETRY, fault).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "s").await;
    let waits = kit::until(&world, "s", "it waits", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    assert_eq!(waits.reason.as_deref(), Some("not_now"));
    assert_eq!((waits.attempts, waits.sent, waits.owner), (0, false, None));
    let row = sqlx::query(
        "select extract(epoch from o.due_at - o.updated_at)::float8 as wait, \
           (select count(*) from oncebox.outbox x where x.operation_id = o.operation_id and x.due_at = o.due_at) as rows \
         from oncebox.operations o",
    )
    .fetch_one(&mut world.connect().await)
    .await
    .unwrap();
    assert!((2.5..3.5).contains(&row.get::<f64, _>("wait")), "Retry-After is honoured");
    assert_eq!(row.get::<i64, _>("rows"), 1, "the delay stands in the outbox");
    let applied = kit::ends(&world, "s", "applied").await;
    assert_eq!((applied.attempts, downstream.effects().await["requests"].as_u64()), (1, Some(2)));
    roles.stop().await;
}

#[tokio::test]
async fn a_downstream_that_does_not_know_us_pauses_its_tool_and_counts_against_nobody() {
    let (world, downstream) = with_fault(kit::RETRY, json!({"status": 401, "times": 1})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "s").await;
    let denied = kit::until(&world, "s", "it is denied", |record| {
        record.reason.as_deref() == Some("downstream_denied")
    })
    .await;
    assert_eq!((denied.attempts, denied.sent), (0, false));
    kit::submit_all(&world, "tickets.create", (0..40).map(|n| format!("s{n}"))).await;
    // Nothing arrives during the pause, and nothing but its end wakes what waits.
    eventually("all are applied after the pause", 60, async || {
        let applied = "select count(*) from oncebox.operations where status = 'applied'";
        (world.count(applied).await == 41).then_some(())
    })
    .await;
    let paused: f64 = sqlx::query_scalar(
        "select extract(epoch from \
           (select min(e.at) from oncebox.operation_events e where e.event = 'claimed' and e.event_id > d.event_id) - d.at)::float8 \
         from oncebox.operation_events d where d.event = 'retry_scheduled' order by d.event_id limit 1",
    )
    .fetch_one(&mut world.connect().await)
    .await
    .unwrap();
    assert!(paused > 20.0, "claimed again after {paused} s");
    assert_eq!(downstream.effects().await["requests"], 42);
    roles.stop().await;
}

#[tokio::test]
async fn an_operation_that_never_gets_through_is_given_up_and_nothing_was_done() {
    let (world, mut downstream) = (World::new().await, Downstream::start());
    let retry = "retry: {initial: 100ms, max: 300ms, give_up: 1s}";
    world.contract(&tickets(&downstream.url, retry)).await;
    downstream.process.kill();
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "s").await;
    let record = kit::ends(&world, "s", "failed_permanent").await;
    assert_eq!(record.reason.as_deref(), Some("attempts_exhausted"));
    assert_eq!((record.attempts, record.sent), (0, false));
    roles.stop().await;
}

#[tokio::test]
async fn sends_whose_outcome_stays_open_end_as_unknown() {
    let retry = "retry: {initial: 50ms, max: 100ms, attempts: 3}";
    let (world, downstream) = with_fault(retry, json!({"drop_response": true})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "s").await;
    let record = kit::ends(&world, "s", "unknown").await;
    assert_eq!(record.reason.as_deref(), Some("attempts_exhausted"));
    assert_eq!((record.attempts, record.sent), (3, true));
    assert_eq!(downstream.effects().await["requests"], 3);
    assert_eq!(downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn nothing_is_sent_again_when_the_downstream_may_have_forgotten_the_key() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let contract = kit::quick_tickets(&downstream)
        .replace("window: 24h", "window: 2500ms")
        .replace(kit::QUICK, "lease: 2s\nretry: {initial: 3s, max: 3s, jitter: 0}");
    kit::contract(&world, &contract).await;
    downstream.control(json!({"drop_response": true, "times": 1})).await;
    let roles = world.run_with("relay,worker", kit::MARGIN, Default::default());
    kit::submit(&world, "tickets.create", "s").await;
    let record = kit::ends(&world, "s", "unknown").await;
    assert_eq!(record.reason.as_deref(), Some("window_closed"));
    assert_eq!(downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_refusal_is_final_and_a_second_submission_sees_that_it_is_stored() {
    let (world, downstream) = with_fault(kit::RETRY, json!({"status": 422, "times": 1})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "s").await;
    let record = kit::ends(&world, "s", "failed_permanent").await;
    assert_eq!((record.reason.as_deref(), record.sent), (Some("refused"), false));
    let again = world.submit(&kit::submission(&world, "tickets.create", "s")).await.unwrap();
    assert_eq!((again.status, again.reason), (Status::FailedPermanent, Some("refused")));
    assert!(!again.safe_to_repeat);
    // Another delivery is told the stored verdict, and nothing is sent.
    let channel = kit::channel(&world).await;
    kit::publish(&world, &channel, "tickets.create", &kit::envelope(&world, "s").await).await;
    eventually("the delivery left its trace", 20, async || {
        world.trace("s").await.iter().any(|event| event == "replayed").then_some(())
    })
    .await;
    assert_eq!(downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_refusal_after_an_unproved_attempt_proves_nothing() {
    let (world, downstream) =
        with_fault(kit::RETRY, json!({"drop_response": true, "times": 1})).await;
    downstream.control(json!({"status": 422, "times": 1})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "s").await;
    let record = kit::ends(&world, "s", "unknown").await;
    assert_eq!(record.reason.as_deref(), Some("refused_after_unproved"));
    assert_eq!((downstream.total().await, record.sent), (1, true));
    roles.stop().await;
}

#[tokio::test]
async fn each_retry_happens_near_its_own_time_whatever_else_waits() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let retry = "retry: {initial: 200ms, max: 30s, multiplier: 2, jitter: 0}";
    world.contract(&tickets(&downstream.url, retry)).await;
    downstream.control(json!({"status": 429, "retry_after": "600", "times": 1})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "waits_long").await;
    kit::until(&world, "waits_long", "it waits", |record| record.reason.is_some()).await;
    downstream.control(json!({"status": 429, "times": 5})).await;
    kit::submit(&world, "tickets.create", "s").await;
    kit::ends(&world, "s", "applied").await;
    let gaps: Vec<Option<f64>> = sqlx::query_scalar(
        "select extract(epoch from lead(e.at) over (order by e.event_id) - e.at)::float8 from oncebox.operation_events e \
         where e.operation_id = $1 and e.event = 'sent'",
    )
    .bind(kit::record(&world, "s").await.id)
    .fetch_all(&mut world.connect().await)
    .await
    .unwrap();
    let gaps: Vec<f64> = gaps.into_iter().flatten().collect();
    assert_eq!(gaps.len(), 5);
    for (gap, due) in gaps.iter().zip([0.2, 0.4, 0.8, 1.6, 3.2]) {
        assert!(*gap >= due && *gap < due + 2.0, "{gaps:?}");
    }
    let waiting = "select count(*) from oncebox.outbox where due_at > now() + interval '5 minutes'";
    assert_eq!(world.count(waiting).await, 1);
    roles.stop().await;
}
