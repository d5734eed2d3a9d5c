//! What these modules need: submissions of a named actor, and the real command line.

use std::process::Command;

use oncebox::ingress::Submission;
use serde_json::{Value, json};

use crate::support::contracts::ContractText;
use crate::support::downstream::Downstream;
use crate::support::process::oncebox;
use crate::support::world::{Running, World};

pub(super) use crate::consumer::kit::{MARGIN, RETRY, Record, ends, record, until};

/// A contract for the service behind a URL.
pub(super) type Kind = fn(&str) -> ContractText;

/// Who submits.
pub(super) const AGENT: &str = "agent-7";

/// Retries that leave time to act between two attempts.
pub(super) const SLOW_RETRY: &str = "retry: {initial: 3s, max: 3s, jitter: 0}";

/// A world with one tool, and the ticket service behind it.
pub(super) async fn stage(contract: impl FnOnce(&str) -> ContractText) -> (World, Downstream) {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&contract(&downstream.url).text()).await;
    (world, downstream)
}

/// All roles, with the margin that goes with short approvals.
pub(super) fn roles(world: &World) -> Running {
    world.run_with("relay,worker,maintain", MARGIN, Default::default())
}

/// A ticket for `queue`, by [`AGENT`]. Each step's subject is another, so that none is a twin.
pub(super) fn asked(world: &World, tool: &str, step: &str, queue: &str) -> Submission {
    let arguments = json!({"queue_id": queue, "subject": step}).to_string();
    Submission { actor: Some(AGENT.into()), ..world.submission(tool, step, &arguments) }
}

pub(super) async fn ask(world: &World, tool: &str, step: &str, queue: &str) {
    world.submit(&asked(world, tool, step, queue)).await.unwrap();
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    /// Stdout.
    pub(super) shown: String,
    /// Stderr.
    pub(super) told: String,
}

impl Ended {
    /// The one JSON object on stdout.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(self.shown.trim()).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Runs the real binary while this test's roles go on.
pub(super) async fn cli(world: &World, words: &[&str]) -> Ended {
    let mut command: Command = oncebox(world, words);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended {
        code: output.status.code().unwrap(),
        shown: text(&output.stdout),
        told: text(&output.stderr),
    }
}

/// The same, and it has to end well.
pub(super) async fn done(world: &World, words: &[&str]) -> Ended {
    let ended = cli(world, words).await;
    assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
    ended
}

/// Gives [`AGENT`] a grant for `tool`; answers its id.
pub(super) async fn grant(world: &World, tool: &str, more: &[&str]) -> String {
    let words = ["grants", "add", "--tenant", "acme", "--actor", AGENT, "--tool", tool];
    let words: Vec<&str> = [&words[..], &["--by", "ann", "--json"], more].concat();
    done(world, &words).await.json()["grant_id"].as_str().unwrap().to_owned()
}

pub(super) async fn revoke(world: &World, grant: &str) {
    done(world, &["grants", "revoke", grant, "--by", "ann"]).await;
}

/// The whole key of a step.
pub(super) fn key(step: &str) -> String {
    format!("acme:test:run:{step}")
}

/// The fingerprint that `ops show` prints.
pub(super) async fn shown(world: &World, step: &str) -> String {
    let shown = done(world, &["ops", "show", &key(step), "--json"]).await.json();
    shown["record"]["request_fingerprint"].as_str().unwrap().to_owned()
}

/// Waits for the request for approval.
pub(super) async fn waits(world: &World, step: &str) -> Record {
    until(world, step, &format!("{step} asks for approval"), |record| {
        record.phase.as_deref() == Some("awaiting_approval")
    })
    .await
}

/// Approves what is shown, as ann.
pub(super) async fn approve(world: &World, step: &str) -> Ended {
    let fingerprint = shown(world, step).await;
    let words = ["ops", "approve", &key(step), "--fingerprint", &fingerprint, "--by", "ann"];
    done(world, &words).await
}

/// Withdraws, as ann.
pub(super) async fn withdraw(world: &World, step: &str) -> Ended {
    cli(world, &["ops", "withdraw", &key(step), "--by", "ann", "--reason", "not any more"]).await
}

/// Waits until a step's record has ended so.
pub(super) async fn ends_for(world: &World, step: &str, status: &str, reason: &str) -> Record {
    let record = ends(world, step, status).await;
    assert_eq!(record.reason.as_deref(), Some(reason), "{step}");
    record
}

/// How many tickets were asked for, whatever became of them.
pub(super) async fn requests(downstream: &Downstream) -> u64 {
    downstream.effects().await["requests"].as_u64().unwrap()
}

/// One fault for all tickets.
pub(super) async fn tickets(downstream: &Downstream, mut fault: Value) {
    fault["on"] = "tickets".into();
    downstream.control(fault).await;
}

/// The traces' events of a step, one string.
pub(super) async fn story(world: &World, step: &str) -> String {
    world.trace(step).await.join(" ")
}

/// How many effects a step's operation has at the downstream, by the key towards it.
pub(super) async fn effects_of(world: &World, downstream: &Downstream, step: &str) -> u64 {
    let key: Option<String> = sqlx::query_scalar(
        "select downstream_key from oncebox.operations where operation_key = $1",
    )
    .bind(key(step))
    .fetch_one(&mut world.connect().await)
    .await
    .unwrap();
    match key {
        Some(key) => downstream.effects_of(&key).await,
        None => 0,
    }
}
