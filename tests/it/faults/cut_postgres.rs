//! Whichever chunk to or from PostgreSQL is lost, from whichever program: every committed submission
//! ends with one effect, and a transaction whose commit was never asked for leaves nothing.

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
