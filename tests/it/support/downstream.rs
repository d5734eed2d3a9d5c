//! The fake downstream: the ticket service, a process of its own that counts its effects itself.

mod asking;
mod calls;
mod checks;
mod jobs;
mod lookups;
mod policy;

pub(crate) use asking::Answer;

use std::process::Command;

use serde_json::Value;

use super::process::{Process, built};

/// A running ticket service.
pub(crate) struct Downstream {
    /// `http://127.0.0.1:PORT`
    pub(crate) url: String,
    pub(crate) process: Process,
}

impl Downstream {
    /// One that deduplicates on the `Idempotency-Key` of tickets (mails never).
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with more arguments (`--no-dedup`).
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let mut command = Command::new(built("ticket_service"));
        command.args(["--listen", "127.0.0.1:0"]).args(arguments);
        let (process, line) = Process::start_and_read(command);
        let url = line.trim().strip_prefix("listening on ").expect("its first line").to_owned();
        Self { url, process }
    }

    /// Sets a fault or gives an order: one JSON object of the service's `/control`.
    pub(crate) async fn control(&self, fault: Value) {
        let answer = self.ask("POST", "/control", &[], &fault.to_string()).await;
        assert_eq!(answer.status, 200, "control answered: {}", answer.body);
    }

    /// Clears faults, settings and pauses, and closes what hangs; effects stay.
    pub(crate) async fn reset(&self) {
        assert_eq!(self.ask("POST", "/reset", &[], "").await.status, 200);
    }

    /// What it counted: `{total, by_key, requests, most_at_once: {tickets, mail}}`.
    pub(crate) async fn effects(&self) -> Value {
        self.get("/effects").await
    }

    /// How many effects it made in all.
    pub(crate) async fn total(&self) -> u64 {
        self.effects().await["total"].as_u64().unwrap()
    }

    /// Waits until it has made its first effect.
    pub(crate) async fn effect(&self, seconds: u64) {
        super::eventually("the effect", seconds, async || (self.total().await > 0).then_some(()))
            .await;
    }

    /// How many effects one key has.
    pub(crate) async fn effects_of(&self, key: &str) -> u64 {
        self.effects().await["by_key"][key].as_u64().unwrap_or(0)
    }

    /// The most effects that one key has.
    pub(crate) async fn most_per_key(&self) -> u64 {
        let effects = self.effects().await;
        effects["by_key"].as_object().unwrap().values().filter_map(Value::as_u64).max().unwrap_or(0)
    }
}

/// A contract for the service's tickets, which deduplicates; `more` is added at the end.
pub(crate) fn tickets(url: &str, more: &str) -> String {
    format!(
        r#"
name: tickets.create
version: "1"
purpose: Create one support ticket for one workflow step.
use_when: [a new issue is to be recorded]
do_not_use_when: [the user wants to send the same message again]
operation_key:
  created_by: workflow step
  reused_by: every retry of that step
  new_key_when: the user asks for a second ticket
  scope: [tenant, environment, workflow_id, step_id]
effect_class: key_based
repeat_side_effects: none
arguments:
  type: object
  additionalProperties: false
  required: [subject]
  properties:
    subject: {{type: string}}
    body: {{type: string}}
fingerprint: {{fields: [/subject, /body]}}
downstream:
  http:
    method: POST
    url: "{url}/tickets"
    headers: {{Idempotency-Key: "{{idempotency_key}}"}}
    body: {{queue: support, subject: "{{/subject}}", body: "{{/body}}"}}
    timeout: 2s
    applied: [200, 201]
    refused: [400, 404, 422]
    not_now: [429]
    receipt: /ticket_id
    response: [/ticket_id, /status]
  idempotency: {{window: 24h}}
owner: {{reconciliation: support, respond_within: 4h, next_review: 2027-03-01}}
{more}
"#
    )
}

/// A contract for the service's mails, which deduplicates nothing and can be looked up nowhere. Not
/// `irreversible`: each request would then wait for an approval.
pub(crate) fn mails(url: &str, more: &str) -> String {
    format!(
        r#"
name: mail.send
version: "1"
purpose: Send one message to one address.
use_when: [a message is to be sent]
do_not_use_when: [it is not known whether it was sent]
operation_key:
  created_by: workflow step
  reused_by: every retry of that step
  new_key_when: the user asks for a second message
  scope: [tenant, environment, workflow_id, step_id]
effect_class: key_based
repeat_side_effects: [mail]
arguments:
  type: object
  additionalProperties: false
  required: [to, subject]
  properties:
    to: {{type: string}}
    subject: {{type: string}}
fingerprint: {{fields: [/to, /subject]}}
downstream:
  http:
    method: POST
    url: "{url}/mail"
    headers: {{X-Reference: "{{operation_id}}"}}
    body: {{to: "{{/to}}", subject: "{{/subject}}", body: text}}
    timeout: 2s
    applied: [200]
    refused: [400, 422]
    not_now: [429]
    receipt: /message_id
    response: [/message_id]
owner: {{reconciliation: support, respond_within: 4h, next_review: 2027-03-01}}
{more}
"#
    )
}
