//! The same call under a new key is held while an older one is open: one effect, unless the
//! application or an operator says that a second one is meant.

mod cycles;
mod distinct;
mod endings;
mod forever;
mod load;
mod off;
mod race;
mod release;
mod sameness;
mod within;

use std::process::Output;

use oncebox::ingress::Submission;
use oncebox::runtime::RustTools;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::consumer::kit;
use crate::support::contracts::{ContractText, deduplicating};
use crate::support::doors::{Door, column};
use crate::support::downstream::Downstream;
use crate::support::eventually;
use crate::support::process::oncebox;
use crate::support::world::{Running, World};

/// Longer than any wait in these tests: whoever is called stays under way until a test lets it go on.
const PATIENT: &str = "20s";

/// Quick retries.
const RETRY: &str = "retry: {initial: 100ms, max: 300ms, jitter: 0}";

/// Lets bob use the tool.
const GRANT: &str = "insert into oncebox.grants (grant_id, tenant_id, actor, tool_name, granted_by) \
    values (gen_random_uuid(), 'acme', 'bob', 'tickets.keyed', 'ann')";

/// A deployment with a tool that holds twins, and the downstream that counts its effects.
struct Stage {
    world: World,
    downstream: Downstream,
    tool: String,
}

impl Stage {
    /// With the tickets that deduplicate, changed; they hold twins by default.
    async fn new(change: impl FnOnce(ContractText) -> ContractText) -> Self {
        let stage = Self::bare().await;
        let contract =
            change(deduplicating(&stage.downstream.url).timeout(PATIENT).more(RETRY)).text();
        stage.world.contract(&contract).await;
        stage.activate(&contract).await;
        stage
    }

    /// Without any contract.
    async fn bare() -> Self {
        let (world, downstream) = (World::new().await, Downstream::start());
        Self { world, downstream, tool: "tickets.keyed".to_owned() }
    }

    async fn activate(&self, contract: &str) {
        let version = contract.lines().find_map(|line| line.strip_prefix("version: ")).unwrap();
        sqlx::query("update oncebox.contracts set is_current = tool_version = $1")
            .bind(version.trim_matches('"'))
            .execute(&mut self.world.connect().await)
            .await
            .unwrap();
    }

    /// Everything that makes operations go on, in this process.
    fn run(&self) -> Running {
        self.world.run("relay,worker,maintain")
    }

    fn run_with(&self, roles: &str) -> Running {
        self.world.run_with(roles, &[], RustTools::default())
    }

    fn asking(&self, step: &str, subject: &str) -> Submission {
        let arguments = format!(r#"{{"queue_id":"q","subject":"{subject}"}}"#);
        self.world.submission(&self.tool, step, &arguments)
    }

    /// Submits the one request that most of these tests are about.
    async fn submit(&self, step: &str) -> Value {
        self.through(Door::Rust, &self.asking(step, "s")).await
    }

    async fn through(&self, door: Door, submission: &Submission) -> Value {
        door.submit(&self.world, submission).await.unwrap()
    }

    /// Keeps everybody who is called under way, or lets them go on.
    async fn pause(&self, hold: bool) {
        self.downstream.control(json!({ "pause": hold })).await;
    }

    /// The next call gets this status and makes no effect.
    async fn refuse(&self, status: u16) {
        self.downstream.control(json!({ "status": status, "times": 1 })).await;
    }

    async fn phase(&self, step: &str, phase: &str) -> kit::Record {
        let what = format!("{step} is {phase}");
        kit::until(&self.world, step, &what, |record| record.phase.as_deref() == Some(phase)).await
    }

    async fn held(&self, step: &str) {
        let record = self.phase(step, "held").await;
        assert_eq!(record.reason.as_deref(), Some("suspected_twin"));
    }

    async fn ends(&self, step: &str, status: &str) -> kit::Record {
        kit::ends(&self.world, step, status).await
    }

    /// Waits until `step` is rejected as the twin of `older`, which every door says.
    async fn rejected_for(&self, step: &str, older: &str) {
        let record = self.ends(step, "rejected").await;
        assert_eq!(record.reason.as_deref(), Some("suspected_twin"), "{step}");
        assert!(!record.sent && record.attempts == 0, "{record:?}");
        assert_eq!(self.behind(step).await.as_deref(), Some(key(older).as_str()), "{step}");
    }

    /// The key that `step` is or was held behind.
    async fn behind(&self, step: &str) -> Option<String> {
        column(&self.world, step, "oncebox.held_behind_key(o)").await
    }

    /// Somebody under way: submitted, called, and not answered until the pause ends.
    async fn under_way(&self, step: &str) {
        let before = self.downstream.effects().await["requests"].as_u64().unwrap();
        self.pause(true).await;
        self.submit(step).await;
        kit::arrived(&self.downstream, before + 1).await;
    }

    /// Submits and waits until it is held.
    async fn submit_held(&self, step: &str) {
        self.submit(step).await;
        self.held(step).await;
    }

    /// Submits what stays away until [`Stage::deliver`].
    async fn keep(&self, door: Door, submission: &Submission) {
        let mut application = self.world.connect().await;
        application.execute("begin").await.unwrap();
        door.ask(&mut application, submission).await.unwrap();
        sqlx::query("update oncebox.outbox set due_at = now() + interval '1 hour' where operation_key like '%:' || $1")
            .bind(&submission.step_id)
            .execute(&mut application)
            .await
            .unwrap();
        application.execute("commit").await.unwrap();
    }

    /// Its message goes out now.
    async fn deliver(&self, step: &str) {
        let moved =
            sqlx::query("update oncebox.outbox set due_at = now() where operation_key = $1")
                .bind(key(step))
                .execute(&mut self.world.connect().await)
                .await
                .unwrap();
        assert_eq!(moved.rows_affected(), 1, "{step} has a message");
    }

    async fn execute(&self, sql: &'static str) {
        self.world.connect().await.execute(sql).await.unwrap();
    }

    /// Waits until nothing is on its way: no message in the outbox or the queue, no claim.
    async fn quiet(&self) {
        let broker = oncebox::broker::Broker::connect(&self.world.broker("look")).await.unwrap();
        let moving = "select (select count(*) from oncebox.outbox) \
            + (select count(*) from oncebox.operations where lease_until is not null)";
        let mut times = 0;
        eventually("nothing is on its way", 20, async || {
            let still = self.world.count(moving).await == 0
                && broker.ready_count(&self.tool).await.unwrap_or(1) == 0;
            times = if still { times + 1 } else { 0 };
            (times == 5).then_some(())
        })
        .await;
        broker.close().await;
    }

    /// The real binary, as an operator runs it.
    fn command(&self, line: &str) -> (Output, Value) {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = oncebox(&self.world, &arguments).output().unwrap();
        let shown = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output, shown)
    }

    /// A command that must succeed, with its JSON.
    fn does(&self, line: &str) -> Value {
        let (output, shown) = self.command(line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {told}");
        shown
    }
}

fn key(step: &str) -> String {
    format!("acme:test:run:{step}")
}
