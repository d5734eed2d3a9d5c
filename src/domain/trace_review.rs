//! Reviews one operation's trace: which step each transition is, and what does not fit together.
//!
//! A trace that jumps from *sent* to *applied* without a receipt belongs to a tool that cannot tell
//! an error from an unknown outcome. The rules here are those of [`super::claim`] and
//! [`super::settle`], told a second time from the outside: what they would never write is flagged.
//!
//! Relies on the order in which the transitions were appended. What a downstream did is no part of
//! it: only its receipts are.

mod flag;
mod walk;

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::contract::{Contract, Recoverability};
use super::lifecycle::State;
use super::operation::{Operation, Timestamp, Token};

pub use flag::{Flag, Kind};

/// One row of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Its name.
    pub event: String,
    /// The fencing token that it happened under, 0 for none.
    pub token: Token,
    /// What else it tells.
    pub detail: Option<Value>,
}

/// The step of an operation's way that a transition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// An action was proposed: the submission.
    Proposed,
    /// It was found valid, or allowed.
    Validated,
    /// A worker took it.
    Claimed,
    /// Its request may have left.
    Sent,
    /// Its outcome was recorded.
    Committed,
    /// The message was let go.
    Acknowledged,
    /// A duplicate was answered from the record.
    Replayed,
    /// An open outcome was found out.
    Reconciled,
}

/// What the contract allows after a lost answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whether and when it may be sent again.
    pub recoverability: Recoverability,
    /// A look-up can prove that there was no effect: it is authoritative.
    pub proves_absence: bool,
}

/// What a trace shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceReview {
    /// The step of each transition; `None` where nothing moved along, as in waiting.
    pub stages: Vec<Option<Stage>>,
    /// What does not fit together, and what is worth knowing, in the order of the trace.
    pub flags: Vec<Flag>,
}

impl TraceReview {
    /// Whether nothing contradicts itself.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.flags.iter().all(|flag| !flag.kind.is_red())
    }
}

/// Reviews the whole trace of `record`, oldest first. `allowed` is what its contract version says;
/// `None` when that cannot be read.
#[must_use]
pub fn review(record: &Operation, trace: &[Transition], allowed: Option<Allowed>) -> TraceReview {
    TraceReview {
        stages: trace.iter().map(stage).collect(),
        flags: walk::flags(record, trace, allowed),
    }
}

/// Whether an applied record lacks the proof that it needs: it was sent, and has no receipt, or no
/// transition says where that came from.
#[must_use]
pub fn lacks_proof<'a>(record: &Operation, events: impl Iterator<Item = &'a str>) -> bool {
    let (mut sent, mut proved) = (record.first_sent_at.is_some(), false);
    for event in events {
        sent |= event == "sent";
        proved |= matches!(event, "committed" | "reconciled" | "resolved");
    }
    record.state == State::Applied && sent && (record.effect_reference.is_none() || !proved)
}

impl Transition {
    /// A member of the detail.
    fn told(&self, name: &str) -> Option<&str> {
        self.detail.as_ref()?.get(name)?.as_str()
    }

    /// Whether the detail has this member set.
    fn says(&self, name: &str) -> bool {
        self.detail.as_ref().and_then(|detail| detail.get(name)?.as_bool()).unwrap_or(false)
    }
}

impl From<&Contract> for Allowed {
    fn from(contract: &Contract) -> Self {
        let proves_absence = contract.lookup().is_some_and(|lookup| lookup.authoritative);
        Self { recoverability: contract.recoverability(), proves_absence }
    }
}

/// An outcome that stayed open is no commit, whatever its transition is called.
fn stage(transition: &Transition) -> Option<Stage> {
    match transition.event.as_str() {
        "proposed" => Some(Stage::Proposed),
        "validated" | "authorized" | "approved" => Some(Stage::Validated),
        "claimed" => Some(Stage::Claimed),
        "sent" | "accepted" => Some(Stage::Sent),
        "committed" if transition.told("ambiguous").is_some() => None,
        "committed" | "settled" => Some(Stage::Committed),
        "acknowledged" => Some(Stage::Acknowledged),
        "replayed" => Some(Stage::Replayed),
        "reconciled" | "resolved" => Some(Stage::Reconciled),
        _ => None,
    }
}

impl Stage {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Validated => "validated",
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Committed => "committed",
            Self::Acknowledged => "acknowledged",
            Self::Replayed => "replayed",
            Self::Reconciled => "reconciled",
        }
    }
}
