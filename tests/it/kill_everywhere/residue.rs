//! What no lease and no look-up can prevent: a request that is still on its way when everything that
//! the stall margin allows for is over. Up to that margin there is one effect.
//!
//! The worker is frozen right after its last check with the first byte on its way: for everybody else
//! that is the same as frozen right before it. A proxy keeps the request back, so that the test says
//! when it arrives.

use crate::support::eventually;
use crate::support::process::Process;
use crate::support::world::Running;

use super::check;
use super::families::{Case, Family};
use super::sluice::{Gate, Method, Sluice};
use super::stage::Stage;
use crate::support::wire::host_of;

/// Of the request for the effect; a look-up begins otherwise.
const POST: Method = *b"POST";

const CASE: Case = Case::fresh(Family::LookedUp);

const APPLIED: &str = "select count(*) from oncebox.operations where status = 'applied'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_within_the_stall_margin_is_the_one_effect() {
    let frozen = Frozen::on_its_way("8s").await;
    frozen.told("absent_too_early").await;
    assert_eq!(frozen.stage.downstream.total().await, 0, "nothing is sent before the margin ends");
    frozen.way.forth(Gate::Open);
    frozen.worker.signal("CONT");
    let stage = frozen.settled().await;
    let wrong = check::records(&stage, &[CASE], |_| &["applied"]).await;
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(stage.downstream.tickets().count().await, 1, "it was never sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_residue_is_a_request_that_arrives_after_the_stall_margin_as_a_second_effect() {
    let frozen = Frozen::on_its_way("500ms").await;
    // The proof of absence is right when it is given: this is the first effect.
    frozen.stage.until("it was sent again", 1, APPLIED).await;
    assert_eq!(frozen.stage.downstream.total().await, 1);
    // The frozen worker finds its time over, gives its request up and changes nothing.
    frozen.worker.signal("CONT");
    frozen.noted("lease_lost", 2).await;
    frozen.way.forth(Gate::Open);
    eventually("the late request has arrived", 20, async || {
        (frozen.stage.downstream.total().await == 2).then_some(())
    })
    .await;
    let stage = frozen.settled().await;
    // One key, two effects, and a record that tells how: each step of it was true when it was written.
    assert_eq!(stage.downstream.most_per_key().await, 2);
    let trace = stage.world.trace(&CASE.step()).await;
    let place = |name: &str| trace.iter().position(|event| event == name).expect("in the trace");
    let last = |name: &str| trace.iter().rposition(|event| event == name).expect("in the trace");
    assert!(place("sent") < place("lease_lost"), "{trace:?}");
    assert!(place("lease_lost") < place("reconciled"), "{trace:?}");
    assert!(place("reconciled") < last("sent") && last("sent") < place("settled"), "{trace:?}");
    let receipt = check::receipt(&stage.world, CASE).await;
    let stored =
        "select count(*) from oncebox.operations where status = 'applied' and effect_reference = ";
    assert_eq!(stage.count(format!("{stored}'{}'", receipt.unwrap())).await, 1, "the first one's");
}

/// A frozen worker whose request is on its way, and others that have taken over.
struct Frozen {
    stage: Stage,
    way: Sluice,
    worker: Process,
    others: Vec<Running>,
}

impl Frozen {
    async fn on_its_way(stall_margin: &'static str) -> Self {
        let stage = Stage::with(stall_margin).await;
        let way = Sluice::before(&host_of(&stage.downstream.url)).await;
        let url = format!("http://{}", way.address());
        stage.contract(CASE.family, &CASE.family.usual(&url).text()).await;
        let mut others = vec![stage.run("relay,maintain")];
        way.forth(Gate::HeldFrom(POST));
        let worker = stage.process("worker", None);
        stage.submit(&[CASE]).await;
        eventually("the request is on its way", 40, async || (way.held().0 == 1).then_some(()))
            .await;
        worker.signal("STOP");
        way.forth(Gate::Standing);
        others.push(stage.run("worker"));
        stage.taken_over().await;
        Self { stage, way, worker, others }
    }

    /// Waits until the trace tells this reason for another wait.
    async fn told(&self, why: &str) {
        let told = format!(
            "select count(distinct operation_id) from oncebox.operation_events where detail->>'why' = '{why}'"
        );
        self.stage.until(why, 1, &told).await;
    }

    /// Waits until the trace has so many of these events.
    async fn noted(&self, event: &str, times: usize) {
        let noted =
            format!("select count(*) from oncebox.operation_events where event = '{event}'");
        self.stage.until(event, times, &noted).await;
    }

    /// Everybody stops; the one operation is applied.
    async fn settled(self) -> Stage {
        let Self { stage, worker, others, .. } = self;
        stage.until("it is applied", 1, APPLIED).await;
        let wrong = stage.stop(&[CASE.family], vec![worker], others).await;
        assert!(wrong.is_empty(), "{wrong:?}");
        stage
    }
}
