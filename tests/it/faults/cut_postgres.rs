//! Whichever chunk to or from PostgreSQL is lost, from whichever program: every committed submission
//! ends with one effect, and a transaction whose commit was never asked for leaves nothing.

use std::time::Duration;

use oncebox::domain::operation::Timestamp;
use oncebox::ingress::Submission;
use sqlx::Executor as _;
use sqlx::types::time::OffsetDateTime;

use super::stage::Stage;
use crate::support::cutter::{Cutter, Loss};
use crate::support::history::Knows;

const BOTH: [Loss; 2] = [Loss::Request, Loss::Answer];

#[tokio::test]
async fn an_application_cut_at_any_chunk_knows_less_but_nothing_false() {
    let stage = Stage::new().await;
    let roles = stage.run("relay,worker,maintain", &[]);
    let (cutter, through) = Cutter::before(&stage.world.database).await;
    for loss in BOTH {
        let mut n = 1;
        loop {
            cutter.lose(n, loss);
            let abandoned = stage.three(&format!("abandoned-{loss:?}-{n}"));
            let knows = stage.history.publish(&through, &abandoned).await;
            if !cutter.disarm() {
                assert_eq!(knows, Knows::Committed);
                break;
            }
            cutter.lose(n, loss);
            let repeated = stage.three(&format!("repeated-{loss:?}-{n}"));
            stage.history.publish(&through, &repeated).await;
            cutter.disarm();
            stage.history.publish_at_last(&through, &repeated).await;
            n += 1;
        }
        println!("{loss:?}: {} chunks lost", n - 1);
        assert!(n > 8, "the transaction had only {n} chunks");
    }
    let report = stage.end(vec![roles]).await;
    assert_eq!(report.by_ending.get("applied"), Some(&report.operations));
}

#[tokio::test]
async fn a_relay_cut_from_postgres_at_any_chunk_loses_nothing() {
    cut_role("relay", "worker,maintain").await;
}

#[tokio::test]
async fn a_worker_cut_from_postgres_at_any_chunk_makes_no_second_effect() {
    cut_role("worker", "relay,maintain").await;
}

async fn cut_role(role: &str, others: &str) {
    let stage = Stage::new().await;
    let (cutter, through) = Cutter::before(&stage.world.database).await;
    let role = stage.run(role, &[("database.url", &through)]);
    let others = stage.run(others, &[]);
    stage.lose_every_chunk(&cutter, &BOTH).await;
    let report = stage.end(vec![role, others]).await;
    assert_eq!(report.by_ending.get("applied"), Some(&report.operations));
}

#[tokio::test]
async fn a_sweep_cut_from_postgres_at_any_chunk_finds_what_is_lost_and_doubles_nothing() {
    let stage = Stage::new().await;
    let (cutter, through) = Cutter::before(&stage.world.database).await;
    let maintain = stage.run("maintain", &[("database.url", &through)]);
    let others = stage.run("relay,worker", &[]);
    for loss in BOTH {
        // One pass takes some twelve chunks; the passes behind it cost nothing.
        let mut lost = 0;
        for n in 1..=24 {
            let name = format!("{loss:?}-{n}");
            strand(&stage, &name).await;
            cutter.lose(n, loss);
            stage.settled(&name).await;
            lost += usize::from(cutter.disarm());
        }
        println!("{loss:?}: {lost} of 24 chunks lost");
        assert!(lost >= 8, "only {lost} chunks were lost");
    }
    let report = stage.end(vec![maintain, others]).await;
    assert_eq!(report.by_ending.get("applied"), Some(&report.operations));
}

/// Leaves behind what a broker that lost its messages and a worker that died leave: a queued mail and
/// a ticket that may have been sent, neither of them with a message anywhere.
async fn strand(stage: &Stage, name: &str) {
    let later = OffsetDateTime::now_utc() + Duration::from_secs(3600);
    let later = Timestamp(i64::try_from(later.unix_timestamp_nanos() / 1000).unwrap());
    let (queued, sent) = (format!("{name}-queued"), format!("{name}-sent"));
    for submission in [stage.mail(&queued), stage.ticket(&sent)] {
        let submission = Submission { not_before: Some(later), ..submission };
        let knows = stage.history.publish(&stage.world.database, &[submission]).await;
        assert_eq!(knows, Knows::Committed);
    }
    let mut connection = stage.world.connect().await;
    connection.execute("begin").await.unwrap();
    for (step, change) in [
        (&queued, "due_at = now(), queued_at = now() - interval '1 hour'"),
        (
            &sent,
            "due_at = now(), queued_at = now() - interval '1 hour', phase = 'sent', owner = 'gone:1', claim_epoch = 1, \
             attempts = 1, first_sent_at = now(), key_first_used_at = now(), lease_until = now() - interval '1 second', \
             downstream_key = operation_id::text, downstream_key_id = 't1'",
        ),
    ] {
        let key = format!("acme:test:run:{step}");
        let change = format!(
            "with found as (update oncebox.operations set {change} where operation_key = '{key}' returning operation_id, claim_epoch), \
             told as (insert into oncebox.operation_events (operation_id, event, claim_epoch) \
                select operation_id, event, claim_epoch from found, unnest(array['claimed', 'sent']) as event where claim_epoch > 0) \
             delete from oncebox.outbox where operation_key = '{key}'"
        );
        connection.execute(sqlx::AssertSqlSafe(change)).await.unwrap();
    }
    connection.execute("commit").await.unwrap();
}
