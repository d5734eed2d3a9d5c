//! An unknown operation is looked up by role maintain alone, on its schedule; a look-up may end it and
//! never sends it.

use serde_json::json;
use sqlx::Executor as _;

use super::stage::{Stage, THREE, times};
use crate::consumer::kit;
use crate::support::contracts::looked_up;
use crate::support::eventually;

/// Few look-ups and long waits after them, so that what is counted stays as it is.
const SLOW: &str = "retry: {initial: 10s, max: 20s, jitter: 0, attempts: 1}";

/// An operation that is unknown because nobody answered look-ups, with an effect or without one.
async fn unknown(stage: &Stage, step: &str, effect: bool) {
    if effect {
        stage.downstream.tickets().drop_answer(1).await;
    } else {
        stage.downstream.tickets().drop_connection(1).await;
    }
    stage.downstream.lookups().always(500).await;
    stage.submit(step).await;
    stage.ends(step, "unknown").await;
}

#[tokio::test]
async fn a_proved_absence_ends_it_and_only_a_person_opens_it_again() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.run("100ms");
    unknown(&stage, "s", false).await;
    stage.downstream.lookups().as_usual().await;
    let record = stage.ends_for("s", "failed_permanent", "proved_absent").await;
    assert!(!record.sent, "nothing was done, by proof");
    assert_eq!(stage.downstream.tickets().count().await, 1, "people were told; it is not sent");
    let told = stage.world.submit(&stage.submission("s")).await.unwrap();
    assert_eq!(serde_json::to_value(told.status).unwrap(), "failed_permanent");
    let (code, _, told) = stage.ops("retry s --reopen --by ann --reason wanted").await;
    assert_eq!(code, Some(0), "{told}");
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn an_absence_that_is_no_proof_yet_is_asked_about_again() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.run("3s");
    unknown(&stage, "s", false).await;
    stage.downstream.lookups().as_usual().await;
    let asked = stage.downstream.lookups().count().await;
    stage.downstream.lookups().arrived(asked + 1, 20).await;
    assert_eq!(kit::record(&stage.world, "s").await.status, "unknown");
    stage.ends_for("s", "failed_permanent", "proved_absent").await;
    let waited = stage.seconds("s", "committed", "reconciled").await;
    assert!(waited >= 3.0, "absent was believed after {waited} s");
    roles.stop().await;
}

#[tokio::test]
async fn an_absence_goes_to_a_person_where_the_contract_says_so() {
    let stage = Stage::with(|url| looked_up(url).absent_to_an_operator(), THREE).await;
    let roles = stage.run("100ms");
    unknown(&stage, "s", false).await;
    stage.downstream.lookups().as_usual().await;
    let record = stage.ends_for("s", "unknown", "absent_needs_decision").await;
    assert!(record.sent);
    stage.holds("s", "next_lookup_at is null").await;
    assert_eq!(stage.downstream.tickets().count().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_delivery_starts_nothing() {
    let stage = Stage::with(looked_up, THREE).await;
    let roles = stage.roles("relay,worker", "5m");
    unknown(&stage, "s", true).await;
    let asked = stage.downstream.lookups().count().await;
    let channel = kit::channel(&stage.world).await;
    let envelope = kit::envelope(&stage.world, "s").await;
    for seen in 2..5 {
        kit::publish(&stage.world, &channel, &stage.tool, &envelope).await;
        eventually("the delivery left its trace", 20, async || {
            (times(&stage.world.trace("s").await, "unknown") == seen).then_some(())
        })
        .await;
    }
    assert_eq!(stage.downstream.lookups().count().await, asked);
    assert_eq!(stage.downstream.effects().await["requests"], 1);
    roles.stop().await;
}

#[tokio::test]
async fn several_processes_ask_each_question_once() {
    let stage = Stage::with(looked_up, SLOW).await;
    let worker = stage.roles("relay,worker", "5m");
    stage.downstream.tickets().fault(json!({"drop_response": true})).await;
    stage.downstream.lookups().always(500).await;
    // Their look-ups wait for ten seconds: due now.
    let steps: Vec<String> = (0..30).map(|n| format!("s{n}")).collect();
    for step in &steps {
        stage.submit(step).await;
    }
    eventually("all wait for their look-up", 30, async || {
        let waiting = "select count(*) from oncebox.operations where phase = 'retry_scheduled'";
        (stage.world.count(waiting).await == 30).then_some(())
    })
    .await;
    stage.all("status = 'unknown', phase = null, next_lookup_at = clock_timestamp()").await;
    let _others = [stage.process("maintain", "5m"), stage.process("maintain", "5m")];
    let maintain = stage.roles("maintain", "5m");
    eventually("each was asked about", 30, async || {
        let asked = "select count(*) from oncebox.operations where lookups = 1";
        (stage.world.count(asked).await == 30).then_some(())
    })
    .await;
    assert_eq!(stage.downstream.lookups().count().await, 30);
    maintain.stop().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_process_that_dies_while_it_asks_gives_its_records_back() {
    let stage = Stage::with(looked_up, THREE).await;
    let worker = stage.roles("relay,worker", "5m");
    unknown(&stage, "s", true).await;
    stage.downstream.lookups().as_usual().await;
    stage.downstream.lookups().hold().await;
    let asked = stage.downstream.lookups().count().await;
    let mut first = stage.process("maintain", "5m");
    stage.downstream.lookups().arrived(asked + 1, 20).await;
    first.kill();
    stage.downstream.lookups().let_go().await;
    // It has nothing to give back: its time passes.
    let ahead =
        "next_lookup_at - clock_timestamp() between interval '1 second' and interval '1 minute'";
    assert_eq!(stage.column("s", ahead).await.as_deref(), Some("true"));
    stage.set("s", "next_lookup_at = clock_timestamp()").await;
    let maintain = stage.roles("maintain", "5m");
    assert_eq!(stage.ends("s", "applied").await.receipt.as_deref(), Some("T-1"));
    maintain.stop().await;
    worker.stop().await;
}

#[tokio::test]
async fn a_row_that_the_database_refuses_keeps_nobody_from_being_looked_up() {
    let stage = Stage::with(looked_up, THREE).await;
    let worker = stage.roles("relay,worker", "5m");
    let good: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    for step in good.iter().map(String::as_str).chain(["never"]) {
        unknown(&stage, step, true).await;
    }
    let refusing = "create function oncebox.test_refuse() returns trigger language plpgsql as $$ begin \
            if new.operation_key like '%:never' and new.status = 'applied' then \
              raise exception 'refused' using errcode = 'check_violation'; end if; return new; end $$; \
         create trigger test_refuse before update on oncebox.operations for each row execute function oncebox.test_refuse()";
    stage.world.connect().await.execute(sqlx::raw_sql(refusing)).await.unwrap();
    stage.downstream.lookups().as_usual().await;
    stage.all("next_lookup_at = clock_timestamp()").await;
    let maintain = stage.roles("maintain", "5m");
    for step in &good {
        stage.ends(step, "applied").await;
    }
    let never = stage.ends_for("never", "unknown", "store_failed").await;
    assert!(never.receipt.is_none());
    assert_eq!(stage.told("never", "committed").await.last(), Some(&json!({"receipt": "T-13"})));
    assert_eq!(stage.column("never", "next_lookup_at").await, None);
    maintain.stop().await;
    worker.stop().await;
}
