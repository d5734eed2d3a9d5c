//! Killed, paused or cut off at any step of an operation's path, whatever the downstream can tell:
//! one effect a key or none, a true label, a whole trace.
//!
//! Production code has no hook for this. Each step is an exchange of a process with PostgreSQL, with
//! the broker or with the downstream, and the world holds that exchange ([`hold`]): a commit waits in
//! the server, a frame on its way, a call at the door. Then the process is killed, stopped or cut off
//! ([`faults`]), what it had asked for is done or is not, and others go on. `steps` is the table.

mod check;
mod families;
mod faults;
mod hold;
mod residue;
mod scenario;
mod sluice;
mod stage;
mod steps;
mod walk;

use faults::Fault;
use steps::Step;

/// Every fault at one step, side by side: each waits for a lease most of the time.
async fn everywhere(step: &Step) {
    let scenarios = Fault::ALL.map(|fault| async move {
        let name = format!("{} / {fault}", step.name);
        let wrong = scenario::play(step, fault).await;
        wrong.into_iter().map(|what| format!("{name} / {what}")).collect::<Vec<_>>()
    });
    let wrong: Vec<String> = futures::future::join_all(scenarios).await.concat();
    assert!(wrong.is_empty(), "broken promises:\n{}", wrong.join("\n"));
}

/// One test a step: its name here is its name in the table.
macro_rules! each_step {
    ($($step:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $step() {
            everywhere(&steps::find(stringify!($step))).await;
        }
    )*

        #[test]
        fn every_step_has_its_test() {
            let tested = [$(stringify!($step)),*];
            let steps = steps::all();
            assert!(steps.iter().all(|step| tested.contains(&step.name)));
            assert_eq!(steps.len(), tested.len());
        }
    };
}

each_step! {
    claim, authorize, sent, effect, settle, ack, publish, confirm, remove, accept, poll, look_up,
    look_up_of_an_unknown, resolve_applied, resolve_not_applied,
}
