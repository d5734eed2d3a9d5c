//! A provider's job is asked for at the contract's pace, by the record's `due_at`, until it ends.

use std::time::Duration;

use serde_json::json;

use crate::consumer::kit;
use crate::recovery::stage::{RETRY, Stage, times};
use crate::support::contracts::{blind, deduplicating, looked_up};
use crate::support::eventually;

/// The article's scenario "Downstream returns a delayed job": in flight, polled by the operation, the
/// job's receipt and the transitions in the trace; and its fault of the same name: the provider's job id
/// is stored, no duplicate submission.
#[tokio::test]
async fn downstream_returns_a_delayed_job() {
    for kind in [deduplicating, looked_up, blind] {
        let stage = Stage::with(|url| kind(url).jobs("300ms", "30s"), RETRY).await;
        let roles = stage.run("5m");
        stage.downstream.jobs().run_until_told().await;
        stage.submit("s").await;
        let record = stage.comes_to("s", "accepted").await;
        assert_eq!(record.reason.as_deref(), Some("provider_job"));
        assert_eq!(stage.column("s", "provider_job").await.as_deref(), Some("J-1"));
        assert!(record.owner.is_none(), "nobody holds it while the provider works");
        let told = stage.world.submit(&stage.submission("s")).await.unwrap();
        let told = serde_json::to_value(told).unwrap();
        assert_eq!((&told["status"], &told["next_action"]), (&json!("in_flight"), &json!("poll")));
        assert_eq!(told["safe_to_repeat"], false);
        stage.downstream.polls().arrived(3, 20).await;
        stage.downstream.jobs().finish("J-1").await;
        let record = stage.ends("s", "applied").await;
        assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
        let trace = stage.world.trace("s").await;
        let place = |event: &str| trace.iter().position(|name| name == event).unwrap();
        assert!(place("sent") < place("accepted") && place("accepted") < place("polled"));
        assert!(place("polled") < place("settled"), "{trace:?}");
        assert_eq!(stage.told("s", "accepted").await, [json!({"job": "J-1"})]);
        assert_eq!(times(&trace, "polled") as u64, stage.downstream.polls().count().await);
        let counted = stage.downstream.effects().await;
        assert_eq!((&counted["total"], &counted["requests"]), (&1.into(), &1.into()));
        roles.stop().await;
    }
}

#[tokio::test]
async fn it_is_asked_at_the_contracts_pace() {
    let stage = Stage::with(|url| blind(url).jobs("1s", "30s"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().take(Duration::from_millis(2500)).await;
    stage.submit("s").await;
    stage.ends("s", "applied").await;
    let gaps: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from at - lag(at) over (order by event_id))::float8 from oncebox.operation_events \
         where event in ('accepted', 'polled') order by event_id offset 1",
    )
    .fetch_all(&mut stage.world.connect().await)
    .await
    .unwrap();
    assert_eq!(gaps.len(), 3, "asked after 1, 2 and 3 s: {gaps:?}");
    assert!(gaps.iter().all(|gap| (1.0..2.5).contains(gap)), "{gaps:?}");
    roles.stop().await;
}

#[tokio::test]
async fn a_direct_answer_needs_no_question() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().take(Duration::ZERO).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    assert_eq!(stage.column("s", "provider_job").await, None);
    assert_eq!(stage.downstream.polls().count().await, 0);
    roles.stop().await;
}

#[tokio::test]
async fn an_answer_that_shows_no_end_is_asked_for_again() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().take(Duration::from_millis(100)).await;
    let faults = [
        ("error", json!({"status": 500})),
        ("gone", json!({"status": 404})),
        ("busy", json!({"status": 429})),
        ("no_entry", json!({"status": 403})),
        ("hangs", json!({"hang": true})),
        // Twice, because a question on a kept connection that breaks is asked anew at once.
        ("closed", json!({"drop_before_effect": true, "times": 2})),
        ("no_answer", json!({"drop_response": true, "times": 2})),
        ("no_json", json!({"garbage": "body"})),
        ("no_receipt", json!({"garbage": "receipt"})),
    ];
    for (step, fault) in faults {
        let mut rule = fault;
        if rule["times"].is_null() {
            rule["times"] = 1.into();
        }
        stage.downstream.polls().fault(rule).await;
        stage.submit(step).await;
        let record = stage.ends(step, "applied").await;
        assert_eq!((record.attempts, record.lost_claims), (1, 0), "{step}");
        let polled = times(&stage.world.trace(step).await, "polled");
        assert!(polled >= 2, "{step}: asked {polled} times");
    }
    let counted = stage.downstream.effects().await;
    assert_eq!((&counted["total"], &counted["requests"]), (&9.into(), &9.into()));
    roles.stop().await;
}

#[tokio::test]
async fn two_questions_at_once_do_no_harm() {
    let stage = Stage::with(|url| blind(url).jobs("300ms", "30s"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().run_until_told().await;
    // Longer than the pace: the next question is asked while this one is not answered.
    stage.submit("s").await;
    stage.comes_to("s", "accepted").await;
    stage.downstream.polls().hold().await;
    let asked = stage.downstream.polls().count().await;
    stage.downstream.polls().arrived(asked + 2, 20).await;
    stage.downstream.jobs().finish("J-1").await;
    stage.downstream.polls().let_go().await;
    let record = stage.ends("s", "applied").await;
    eventually("both are acknowledged", 20, async || {
        let none = "select count(*) from oncebox.outbox";
        (stage.world.count(none).await == 0).then_some(())
    })
    .await;
    roles.stop().await;
    let after = kit::record(&stage.world, "s").await;
    assert_eq!((after.epoch, after.receipt), (record.epoch, record.receipt));
    let trace = stage.world.trace("s").await;
    assert_eq!(times(&trace, "settled"), 1, "{trace:?}");
    assert_eq!((times(&trace, "conflict"), times(&trace, "lease_lost")), (0, 0), "{trace:?}");
}

#[tokio::test]
async fn a_delivery_before_its_time_asks_nothing() {
    let stage = Stage::with(|url| blind(url).jobs("1m", "30m"), RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.jobs().run_until_told().await;
    stage.submit("s").await;
    stage.comes_to("s", "accepted").await;
    let channel = kit::channel(&stage.world).await;
    let envelope = kit::envelope(&stage.world, "s").await;
    kit::publish(&stage.world, &channel, &stage.tool, &envelope).await;
    eventually("the delivery left its trace", 20, async || {
        (times(&stage.world.trace("s").await, "in_flight") == 1).then_some(())
    })
    .await;
    assert_eq!(stage.downstream.polls().count().await, 0);
    // A person may be more impatient than the contract.
    let (code, _, told) = stage.ops("retry s --by ann --reason now").await;
    assert_eq!(code, Some(0), "{told}");
    stage.downstream.polls().arrived(1, 20).await;
    let record = kit::record(&stage.world, "s").await;
    assert_eq!(record.phase.as_deref(), Some("accepted"));
    assert_eq!(record.reason.as_deref(), Some("provider_job"));
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}
