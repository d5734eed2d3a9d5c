//! Killed with SIGKILL at any step of its work, a process leaves nothing that the others cannot end:
//! one effect, or for a tool that can prove nothing an honest `unknown`.

use std::time::Duration;

use super::stage::Stage;
use crate::support::cutter::{Cutter, Loss};
use crate::support::history_check::Report;

/// A message that comes back from more dead consumers than the queue's delivery limit is put aside.
const KILLED_IN_A_ROW: usize = 6;

#[tokio::test]
async fn a_worker_killed_at_any_step_leaves_one_effect_or_an_honest_unknown() {
    let report = killed_at_every_step("worker", "relay").await;
    let applied = report.by_ending.get("applied").copied().unwrap_or_default();
    let unknown = report.by_ending.get("unknown worker_lost").copied().unwrap_or_default();
    assert_eq!(applied + unknown, report.operations);
    assert!(unknown > 0, "no worker was killed between the mark and the settle of a mail");
    assert!(report.lost_claims > 0, "no worker was killed while it held a claim");
}

#[tokio::test]
async fn a_relay_killed_at_any_step_loses_no_message() {
    let report = killed_at_every_step("relay", "worker").await;
    assert_eq!(report.by_ending.get("applied"), Some(&report.operations));
}

/// Each process is frozen at its n-th chunk to PostgreSQL, before the server has it or before its
/// answer is there, and killed in that state. Maintain comes last: what it published again meanwhile
/// would be claimed and killed with its worker again and again, and be parked for that.
async fn killed_at_every_step(role: &str, other: &str) -> Report {
    let stage = Stage::new().await;
    let (cutter, through) = Cutter::before(&stage.world.database).await;
    let other = stage.run(other, &[]);
    let steps = count_steps(&stage, &cutter, role, &through).await;
    for loss in [Loss::FrozenRequest, Loss::FrozenAnswer] {
        let mut killed = 0;
        for n in 1..=steps {
            let three = stage.three(&format!("{loss:?}-{n}"));
            stage.history.publish_at_last(&stage.world.database, &three).await;
            cutter.lose(n, loss);
            let mut process = stage.process(role, &[("DATABASE_URL", &through)]);
            killed += usize::from(cutter.has_fired(Duration::from_secs(3)).await);
            process.kill();
            cutter.disarm();
            if n % KILLED_IN_A_ROW == 0 {
                let good = stage.run(role, &[]);
                stage.nobody_waits().await;
                good.stop().await;
            }
        }
        println!("{role}, {loss:?}: {killed} of {steps} killed in the middle");
        assert!(killed * 3 >= steps, "only {killed} of {steps} were killed in the middle");
    }
    let last = stage.run(&format!("{role},maintain"), &[]);
    stage.end(vec![last, other]).await
}

/// Chunks from the start of a process to the end of its first operations.
async fn count_steps(stage: &Stage, cutter: &Cutter, role: &str, through: &str) -> usize {
    let mut process = stage.process(role, &[("DATABASE_URL", through)]);
    stage.round("count").await;
    let (steps, _) = cutter.chunks();
    assert!(process.runs());
    process.kill();
    // An idle relay polls on, the more the longer the others take.
    steps.min(80)
}
