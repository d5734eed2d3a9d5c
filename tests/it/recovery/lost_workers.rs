//! A worker that dies costs no operation: what it sent is looked up, what it did not send is sent.

use serde_json::json;

use super::stage::{RETRY, Stage, times};
use crate::consumer::kit;
use crate::support::contracts::{deduplicating, looked_up};

/// The article's scenario "Process crashes after downstream success but before local completion":
/// recovery finds the downstream's receipt, no blind second effect.
#[tokio::test]
async fn process_crashes_after_downstream_success_but_before_local_completion() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.roles("relay,maintain", "5m");
    let barrier = kit::stop_before(&stage.world, "applied").await;
    let mut first = stage.process("worker", "5m");
    stage.submit("s").await;
    kit::stands_there(&stage.world).await;
    first.kill();
    drop(barrier);
    assert_eq!(stage.downstream.total().await, 1);
    let _second = stage.process("worker", "5m");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "lease_lost"), times(&trace, "reconciled")), (1, 1), "{trace:?}");
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn killed_before_the_effect_it_is_made_once_no_request_can_be_under_way() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.roles("relay,maintain", "1s");
    stage.downstream.tickets().hang(1).await;
    let mut first = stage.process("worker", "1s");
    stage.submit("s").await;
    stage.downstream.tickets().arrived(1, 20).await;
    first.kill();
    let lost = stage.column("s", "lease_until").await;
    let _second = stage.process("worker", "1s");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-1")));
    // Its owner could send up to its lease, the service could act up to the time-out and the margin.
    let waited: f64 = sqlx::query_scalar(
        "select extract(epoch from e.at - $1::timestamptz)::float8 from oncebox.operation_events e where e.event = 'reconciled'",
    )
    .bind(lost)
    .fetch_one(&mut stage.world.connect().await)
    .await
    .unwrap();
    assert!(waited >= 1.9, "absent was believed {waited} s after the lease");
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// The article's fault "Process crash after pending claim": recovery discovers ownership and outcome,
/// no record stays pending without an owner.
#[tokio::test]
async fn process_crash_after_pending_claim() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.roles("relay,maintain", "5m");
    let barrier = kit::stop_before(&stage.world, "sent").await;
    let mut first = stage.process("worker", "5m");
    stage.submit("s").await;
    kit::stands_there(&stage.world).await;
    first.kill();
    drop(barrier);
    let claimed = kit::record(&stage.world, "s").await;
    assert_eq!((claimed.phase.as_deref(), claimed.sent), (Some("claimed"), false));
    assert!(claimed.owner.is_some());
    let _second = stage.process("worker", "5m");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    // Nothing was marked as sent, so nobody had to be asked.
    assert_eq!(stage.downstream.lookups().count().await, 0);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn killed_while_it_asks_the_question_is_asked_again() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.roles("relay,maintain", "5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().hold().await;
    let mut first = stage.process("worker", "5m");
    stage.submit("s").await;
    stage.downstream.lookups().arrived(1, 20).await;
    first.kill();
    stage.downstream.lookups().let_go().await;
    let _second = stage.process("worker", "5m");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn past_the_downstreams_window_it_is_looked_up_instead_of_sent_again() {
    let contract = |url: &str| deduplicating(url).window("2500ms").also_looked_up();
    let stage = Stage::with(contract, RETRY).await;
    let roles = stage.run("5m");
    // By the end of the time-out, a second send could end outside of the window.
    stage.downstream.tickets().fault(json!({"delay_ms_after_effect": 3000, "times": 1})).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(times(&stage.world.trace("s").await, "reconciled"), 1);
    assert_eq!(stage.downstream.lookups().count().await, 1);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}
