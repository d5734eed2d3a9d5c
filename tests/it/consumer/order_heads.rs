//! Whatever stops the head of an ordering key stops its own key only; whatever ends it lets the next
//! one go, and the downstream's journal has the effects in the order of their numbers.

use oncebox::ingress::Submission;
use serde_json::{Value, json};
use sqlx::Executor as _;

use super::kit;
use crate::support::contracts::{ContractText, blind, deduplicating, looked_up};
use crate::support::downstream::Downstream;
use crate::support::eventually;
use crate::support::process::oncebox;
use crate::support::world::World;

const RETRY: &str = "retry: {initial: 100ms, max: 300ms, jitter: 0}";

struct Stage {
    world: World,
    downstream: Downstream,
    journal: std::path::PathBuf,
    tool: &'static str,
}

impl Stage {
    async fn new(tool: &'static str, contract: impl FnOnce(&str) -> ContractText) -> Self {
        let world = World::new().await;
        let journal = world.contracts.join("effects.journal");
        let downstream = Downstream::start_with(&["--journal", journal.to_str().unwrap()]);
        world.contract(&contract(&downstream.url).more(RETRY).text()).await;
        Self { world, downstream, journal, tool }
    }

    /// Steps named `<ordering key>-<number>`, each with a request of its own.
    async fn submit(&self, step: &str) {
        self.submit_as(step, step, None).await;
    }

    async fn submit_as(&self, step: &str, subject: &str, actor: Option<&str>) {
        let (ordering_key, _) = step.split_once('-').unwrap();
        let queue = if subject.ends_with("-approve") { "approve" } else { "q" };
        let arguments = format!(r#"{{"queue_id":"{queue}","subject":"{subject}"}}"#);
        let submission = Submission {
            ordering_key: Some(ordering_key.to_owned()),
            actor: actor.map(str::to_owned),
            ..self.world.submission(self.tool, step, &arguments)
        };
        self.world.submit(&submission).await.unwrap();
    }

    /// The subjects of the effects, in the order in which the downstream made them.
    fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.journal).unwrap();
        let subject = |line: &str| {
            let effect: Value = serde_json::from_str(line).unwrap();
            effect["request"]["subject"].as_str().unwrap().to_owned()
        };
        text.lines().map(subject).collect()
    }

    async fn phase(&self, step: &str, phase: &str) {
        let what = format!("{step} is {phase}");
        kit::until(&self.world, step, &what, |record| record.phase.as_deref() == Some(phase)).await;
    }

    async fn applied(&self, steps: &[&str]) {
        for step in steps {
            kit::ends(&self.world, step, "applied").await;
        }
    }

    /// Waits until exactly these wait for their turn.
    async fn waiting(&self, count: i64) {
        let waiting =
            "select count(*) from oncebox.operations where waiting_for_order and phase = 'queued'";
        eventually(&format!("{count} wait"), 20, async || {
            (self.world.count(waiting).await == count).then_some(())
        })
        .await;
    }

    /// The head `k-0` is stuck, `k-1` and `k-2` wait for it, and another key passes.
    async fn stuck(&self) {
        for step in ["k-1", "k-2", "j-0", "j-1"] {
            self.submit(step).await;
        }
        self.applied(&["j-0", "j-1"]).await;
        self.waiting(2).await;
        assert_eq!(self.effects(), ["j-0", "j-1"]);
    }

    fn does(&self, line: &str) {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = oncebox(&self.world, &arguments).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    async fn execute(&self, sql: &'static str) {
        self.world.connect().await.execute(sql).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_until_it_is_resolved_or_released() {
    for verb in [
        "resolve acme:test:run:k-0 --applied T-9 --by ann --reason seen",
        "release acme:test:run:k-0 --by ann",
    ] {
        let stage = Stage::new("tickets.blind", blind).await;
        let roles = stage.world.run("relay,worker,maintain");
        stage.downstream.control(json!({ "drop_before_effect": true, "times": 1 })).await;
        stage.submit("k-0").await;
        kit::ends(&stage.world, "k-0", "unknown").await;
        stage.stuck().await;
        stage.does(&format!("ops {verb}"));
        stage.applied(&["k-1", "k-2"]).await;
        assert_eq!(stage.effects(), ["j-0", "j-1", "k-1", "k-2"]);
        roles.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn held_as_a_twin_until_its_twin_ends() {
    let stage = Stage::new("tickets.keyed", |url| deduplicating(url).timeout("20s")).await;
    let roles = stage.world.run("relay,worker,maintain");
    let only = json!({ "delay_ms_before_effect": 4000, "times": 1 });
    stage.downstream.control(only).await;
    stage.submit_as("x-0", "same", None).await;
    stage.phase("x-0", "sent").await;
    stage.submit_as("k-0", "same", None).await;
    stage.phase("k-0", "held").await;
    stage.stuck().await;
    stage.applied(&["x-0", "k-1", "k-2"]).await;
    kit::ends(&stage.world, "k-0", "rejected").await;
    assert_eq!(stage.effects(), ["j-0", "j-1", "same", "k-1", "k-2"]);
    roles.stop().await;
}

/// The release of a held head is for the head itself: it goes, and the rest behind it.
#[tokio::test(flavor = "multi_thread")]
async fn held_as_a_twin_until_it_is_released() {
    let stage = Stage::new("tickets.blind", blind).await;
    let roles = stage.world.run("relay,worker,maintain");
    stage.downstream.control(json!({ "drop_before_effect": true, "times": 1 })).await;
    stage.submit_as("x-0", "same", None).await;
    kit::ends(&stage.world, "x-0", "unknown").await;
    stage.submit_as("k-0", "same", None).await;
    stage.phase("k-0", "held").await;
    stage.stuck().await;
    stage.does("ops release acme:test:run:k-0 --by ann");
    stage.applied(&["k-0", "k-1", "k-2"]).await;
    assert_eq!(stage.effects(), ["j-0", "j-1", "same", "k-1", "k-2"]);
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_approval_until_it_is_given_up_or_released() {
    for release in [true, false] {
        let stage =
            Stage::new("tickets.keyed", |url| deduplicating(url).approved("approve", "1h", "1h"))
                .await;
        let roles = stage.world.run("relay,worker,maintain");
        stage.submit_as("k-0", "k-approve", Some("bob")).await;
        stage.phase("k-0", "awaiting_approval").await;
        stage.stuck().await;
        if release {
            stage.does("ops release acme:test:run:k-0 --by ann");
        } else {
            // Nobody answered in time.
            stage
                .execute("update oncebox.operations set due_at = now() - interval '10 seconds', queued_at = now() - interval '10 minutes' where phase = 'awaiting_approval'")
                .await;
            let record = kit::ends(&stage.world, "k-0", "rejected").await;
            assert_eq!(record.reason.as_deref(), Some("approval_timed_out"));
        }
        stage.applied(&["k-1", "k-2"]).await;
        assert_eq!(stage.effects(), ["j-0", "j-1", "k-1", "k-2"]);
        roles.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_until_it_is_retried_or_released() {
    for verb in ["retry", "release"] {
        let stage = Stage::new("tickets.keyed", deduplicating).await;
        stage.submit("k-0").await;
        stage
            .execute("update oncebox.operations set phase = 'parked', reason = 'worker_lost'; delete from oncebox.outbox")
            .await;
        let roles = stage.world.run("relay,worker,maintain");
        stage.stuck().await;
        stage.does(&format!("ops {verb} acme:test:run:k-0 --by ann --reason repaired"));
        stage.applied(&["k-1", "k-2"]).await;
        if verb == "retry" {
            assert_eq!(stage.effects(), ["j-0", "j-1", "k-0", "k-1", "k-2"]);
        } else {
            assert_eq!(stage.effects(), ["j-0", "j-1", "k-1", "k-2"]);
            assert_eq!(stage.world.status("k-0").await.1, "parked");
        }
        roles.stop().await;
    }
}

/// Its answer was lost: it is looked up, found, and only then the next one goes.
#[tokio::test(flavor = "multi_thread")]
async fn looked_up_until_it_is_found() {
    let stage = Stage::new("tickets.found", |url| looked_up(url).visible_after("2s")).await;
    let roles = stage.world.run("relay,worker,maintain");
    stage.downstream.control(json!({ "visible_after_ms": 1500 })).await;
    stage.downstream.control(json!({ "drop_response": true, "times": 1 })).await;
    for number in 0..3 {
        stage.submit(&format!("k-{number}")).await;
    }
    stage.applied(&["k-0", "k-1", "k-2"]).await;
    assert_eq!(stage.effects(), ["k-0", "k-1", "k-2"], "each once");
    let found = "select count(*) from oncebox.operation_events where event = 'reconciled'";
    assert_eq!(stage.world.count(found).await, 1);
    roles.stop().await;
}

/// The provider owns a job: its end is the head's end.
#[tokio::test(flavor = "multi_thread")]
async fn a_providers_job_until_it_ends() {
    let stage = Stage::new("tickets.keyed", |url| deduplicating(url).jobs("200ms", "1h")).await;
    let roles = stage.world.run("relay,worker,maintain");
    stage.downstream.control(json!({ "jobs": { "take_ms": null } })).await;
    stage.submit("k-0").await;
    stage.phase("k-0", "accepted").await;
    stage.downstream.control(json!({ "jobs": { "take_ms": 100 } })).await;
    for step in ["k-1", "k-2", "j-0"] {
        stage.submit(step).await;
    }
    stage.applied(&["j-0"]).await;
    stage.waiting(2).await;
    let job: String = sqlx::query_scalar("select provider_job from oncebox.operations where phase = 'accepted' and ordering_key = 'k'")
        .fetch_one(&mut stage.world.connect().await)
        .await
        .unwrap();
    stage.downstream.control(json!({ "end_job": { "id": job, "end": "done" } })).await;
    stage.applied(&["k-0", "k-1", "k-2"]).await;
    assert_eq!(stage.effects(), ["j-0", "k-0", "k-1", "k-2"]);
    roles.stop().await;
}

/// A head that failed and is opened again goes behind those that went ahead meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn opened_again_it_goes_behind_the_others() {
    let stage = Stage::new("tickets.keyed", |url| deduplicating(url).timeout("20s")).await;
    let roles = stage.world.run("relay,worker,maintain");
    stage.downstream.control(json!({ "status": 422, "times": 1 })).await;
    stage.submit("k-0").await;
    kit::ends(&stage.world, "k-0", "failed_permanent").await;
    stage.downstream.control(json!({ "pause": true })).await;
    stage.submit("k-1").await;
    stage.phase("k-1", "sent").await;
    stage.submit("k-2").await;
    stage.waiting(1).await;
    stage.does("ops retry acme:test:run:k-0 --reopen --by ann --reason repaired");
    stage.waiting(2).await;
    stage.downstream.control(json!({ "pause": false })).await;
    stage.applied(&["k-1", "k-2", "k-0"]).await;
    assert_eq!(stage.effects(), ["k-1", "k-2", "k-0"]);
    roles.stop().await;
}

/// Several workers, lost answers, put-offs: the journal has each once, in order.
#[tokio::test(flavor = "multi_thread")]
async fn the_journal_has_them_in_order_through_retries_and_several_workers() {
    const KEYS: usize = 4;
    const EACH: usize = 12;
    let stage = Stage::new("tickets.keyed", deduplicating).await;
    stage.downstream.control(json!({ "drop_response": true, "every": 5 })).await;
    stage.downstream.control(json!({ "status": 429, "every": 4 })).await;
    stage.downstream.control(json!({ "drop_before_effect": true, "every": 7 })).await;
    let roles = ["relay,worker", "worker", "worker"].map(|roles| stage.world.run(roles));
    let submitters = (0..KEYS).map(async |key| {
        for number in 0..EACH {
            stage.submit(&format!("k{key}-{number}")).await;
        }
    });
    futures::future::join_all(submitters).await;
    stage.world.settled(60).await;
    let effects = stage.effects();
    for key in 0..KEYS {
        let of_key: Vec<&String> =
            effects.iter().filter(|subject| subject.starts_with(&format!("k{key}-"))).collect();
        let expected: Vec<String> = (0..EACH).map(|number| format!("k{key}-{number}")).collect();
        assert_eq!(of_key, expected.iter().collect::<Vec<_>>());
    }
    for role in roles {
        role.stop().await;
    }
}
