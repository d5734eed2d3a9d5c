//! Whichever chunk to or from RabbitMQ is lost: every committed submission ends with one effect, and
//! every message is acked in the end.

use super::stage::Stage;
use crate::support::cutter::{Cutter, Loss};

#[tokio::test]
async fn a_relay_cut_from_the_broker_at_any_chunk_loses_no_message() {
    cut_role("relay", "worker,maintain").await;
}

#[tokio::test]
async fn a_worker_cut_from_the_broker_at_any_chunk_makes_no_second_effect() {
    cut_role("worker", "relay,maintain").await;
}

async fn cut_role(role: &str, others: &str) {
    let stage = Stage::new().await;
    let (cutter, through) = Cutter::before(&stage.world.amqp).await;
    let role = stage.run(role, &[("broker.url", &through)]);
    let others = stage.run(others, &[]);
    stage.lose_every_chunk(&cutter, &[Loss::Request, Loss::Answer, Loss::FromServer]).await;
    let report = stage.end(vec![role, others]).await;
    assert_eq!(report.by_ending.get("applied"), Some(&report.operations));
}
