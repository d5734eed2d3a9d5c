//! The outcome envelope: what a caller learns, the same JSON at every door.

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::lifecycle::State;
use super::operation::{Operation, Timestamp};
use super::reason::Reason;

/// Longest wait that a caller is asked for, in seconds.
const LONGEST_WAIT_SECONDS: u64 = 3600;

/// What may be told of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The effect exists, as this operation's own answer.
    Applied,
    /// The effect exists already; this submission made no other.
    Replayed,
    /// Not decided yet.
    InFlight,
    /// No effect by this request.
    Rejected,
    /// The effect may exist.
    Unknown,
    /// No effect, for good.
    FailedPermanent,
    /// The key is a tombstone.
    ExpiredOperation,
}

/// What the caller may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NextAction {
    /// Nothing.
    None,
    /// Ask again for the status, by the same key.
    Poll,
    /// Ask a person for approval.
    AskForApproval,
    /// Look at the operation that stands under this key, or before it.
    InspectOperation,
    /// Find out from the system of record; do not send again.
    Reconcile,
    /// A new operation, after a person's or the workflow's new decision only.
    NewOperation,
}

/// Whose question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A second submission of the same request.
    BySubmission,
    /// A look at the record.
    ByLook,
}

/// The envelope.
#[derive(Debug, Serialize)]
pub struct Envelope {
    /// What happened.
    pub status: Status,
    /// The record; absent when none was made.
    pub operation_id: Option<Uuid>,
    /// The business action's key.
    pub operation_key: Option<String>,
    /// The downstream's reference for the effect.
    pub effect_reference: Option<String>,
    /// The kept part of the downstream's answer, digit for digit.
    pub response: Option<Box<RawValue>>,
    /// Whether the same request under the same key may be repeated.
    pub safe_to_repeat: bool,
    /// What to do next.
    pub next_action: NextAction,
    /// When to look again, in seconds.
    pub retry_after_seconds: Option<u64>,
    /// A stable code; `docs/errors/` has a page for each.
    pub reason: Option<&'static str>,
    /// The tool.
    pub tool: Option<String>,
    /// The contract version that the record is read under.
    pub tool_version: Option<String>,
    /// The older key that a suspected twin is held behind; `distinct_from` takes it when a second
    /// effect is meant.
    pub suspected_twin_of: Option<String>,
}

impl Envelope {
    /// What `operation` says to whoever may see it.
    #[must_use]
    pub fn of(operation: &Operation, asked: Asked, now: Timestamp) -> Self {
        let (status, safe_to_repeat, next_action) = verdict(operation, asked);
        let wait = operation.state.is_pending().then(|| seconds_until(operation.due_at, now));
        Self {
            status,
            operation_id: Some(operation.id),
            operation_key: Some(operation.key.clone()),
            effect_reference: operation.effect_reference.clone(),
            response: operation.response.clone().and_then(|text| RawValue::from_string(text).ok()),
            safe_to_repeat,
            next_action,
            retry_after_seconds: wait,
            reason: operation.reason.map(Reason::code),
            tool: Some(operation.tool.clone()),
            tool_version: Some(operation.tool_version.clone()),
            suspected_twin_of: None,
        }
    }

    /// The key stands for another request. Echoes the record's version, never its values.
    #[must_use]
    pub fn mismatch(operation: &Operation) -> Self {
        Self {
            status: Status::Rejected,
            operation_id: Some(operation.id),
            operation_key: Some(operation.key.clone()),
            effect_reference: None,
            response: None,
            safe_to_repeat: false,
            next_action: NextAction::InspectOperation,
            retry_after_seconds: None,
            reason: Some(Reason::KeyReused.code()),
            tool: Some(operation.tool.clone()),
            tool_version: Some(operation.tool_version.clone()),
            suspected_twin_of: None,
        }
    }

    /// Refused at the door: there is no record.
    #[must_use]
    pub fn refused(
        key: Option<String>,
        tool: Option<String>,
        tool_version: Option<String>,
        reason: Reason,
    ) -> Self {
        Self {
            status: Status::Rejected,
            operation_id: None,
            operation_key: key,
            effect_reference: None,
            response: None,
            safe_to_repeat: true,
            next_action: NextAction::None,
            retry_after_seconds: None,
            reason: Some(reason.code()),
            tool,
            tool_version,
            suspected_twin_of: None,
        }
    }

    /// The same, naming the older key that a suspected twin is held behind.
    #[must_use]
    pub fn behind(mut self, older_key: Option<String>) -> Self {
        self.suspected_twin_of = older_key;
        self
    }

    /// Whether it tells what only those are told who may see the result.
    #[must_use]
    pub fn tells_result(&self) -> bool {
        self.response.is_some()
            || self.effect_reference.is_some()
            || self.suspected_twin_of.is_some()
    }

    /// The same for an actor who may not see the result, which is told as the reason where the record
    /// has none.
    #[must_use]
    pub fn withheld(mut self) -> Self {
        self.response = None;
        self.effect_reference = None;
        self.suspected_twin_of = None;
        self.reason = self.reason.or(Some(Reason::NotAuthorized.code()));
        self
    }

    /// The same without the stored response, for doors that do not check the asking actor.
    #[must_use]
    pub fn without_response(mut self) -> Self {
        self.response = None;
        self
    }
}

/// What a listener is told when an operation comes to an ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultEvent {
    /// `<tenant>.<tool>.<status>`. A tenant holds no dot; a tool's name may.
    pub routing_key: String,
    /// The envelope without `response`, as JSON text.
    pub body: String,
}

impl ResultEvent {
    /// The event of the ending that `operation` has come to.
    ///
    /// # Errors
    /// Never in practice: an envelope has no member that JSON cannot say.
    pub fn of(operation: &Operation) -> Result<Self, serde_json::Error> {
        // An ending waits for nothing, so that the time is of no account.
        let now = operation.updated_at;
        let envelope = Envelope::of(operation, Asked::ByLook, now).without_response();
        let (status, _) = operation.state.columns();
        let routing_key = format!("{}.{}.{status}", operation.tenant, operation.tool);
        Ok(Self { routing_key, body: serde_json::to_string(&envelope)? })
    }
}

fn verdict(operation: &Operation, asked: Asked) -> (Status, bool, NextAction) {
    match operation.state {
        State::AwaitingApproval => (Status::InFlight, false, NextAction::AskForApproval),
        State::Held => (Status::InFlight, false, NextAction::InspectOperation),
        State::Queued
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled
        | State::Parked => (Status::InFlight, false, NextAction::Poll),
        State::Applied => match asked {
            Asked::BySubmission => (Status::Replayed, true, NextAction::None),
            Asked::ByLook => (Status::Applied, true, NextAction::None),
        },
        State::Unknown => (Status::Unknown, false, NextAction::Reconcile),
        State::FailedPermanent => (Status::FailedPermanent, false, NextAction::NewOperation),
        State::Expired => (Status::ExpiredOperation, false, NextAction::NewOperation),
        State::Rejected if operation.may_have_been_sent() => {
            (Status::Rejected, false, NextAction::InspectOperation)
        }
        State::Rejected => (Status::Rejected, true, after_rejection(operation.reason)),
    }
}

fn after_rejection(reason: Option<Reason>) -> NextAction {
    if matches!(reason, Some(Reason::ApprovalExpired | Reason::ApprovalTimedOut)) {
        NextAction::AskForApproval
    } else if reason == Some(Reason::SuspectedTwin) {
        NextAction::InspectOperation
    } else {
        NextAction::None
    }
}

fn seconds_until(due: Timestamp, now: Timestamp) -> u64 {
    let wait = due.since(now);
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).clamp(1, LONGEST_WAIT_SECONDS)
}
