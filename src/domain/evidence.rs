//! What was found out about an effect without making one: by a look-up, by a provider's job.

use super::attempt::{Effect, Unconfirmed};

/// What a question showed. Only [`Evidence::Found`] and [`Evidence::Unconfirmed`] prove an effect;
/// whether an absence proves anything is the decision's part, which knows when it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// The effect exists.
    Found(Effect),
    /// The effect exists, but the contract's postcondition does not say so.
    Unconfirmed(Effect, Unconfirmed),
    /// The downstream says that there is no effect.
    Absent,
    /// The provider's job has ended without an effect.
    JobFailed,
    /// The provider's job has not ended.
    JobRuns,
    /// No answer, or one that says nothing.
    CannotTell(Blank),
}

impl Evidence {
    /// The same with nothing kept of the answer; `None` when it keeps nothing.
    #[must_use]
    pub fn without_response(&self) -> Option<Self> {
        match self {
            Self::Found(effect) => Some(Self::Found(effect.without_response())),
            Self::Unconfirmed(effect, why) => {
                Some(Self::Unconfirmed(effect.without_response(), *why))
            }
            Self::Absent | Self::JobFailed | Self::JobRuns | Self::CannotTell(_) => None,
        }
    }
}

/// Why a question was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blank {
    /// Nobody was reached, or nobody answered in time.
    Unreachable,
    /// The answer could not be read, or has a status that the contract does not name.
    Unclear,
    /// It says that the effect is there, without its receipt.
    NoReceipt,
    /// The service does not let this deployment in.
    Denied,
    /// The question could not be built: a secret, a job or a receipt is missing.
    Unbuildable,
    /// The tool has no such question.
    NoQuestion,
    /// The tool's code panicked.
    Panicked,
}

/// What a check of the target's state came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// It holds.
    Holds,
    /// It does not hold.
    Fails,
    /// It could not be asked.
    Unreachable,
}

/// What whoever decides about permissions says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// The actor may.
    Allowed,
    /// The actor may not.
    Denied,
    /// It could not be asked. Never an allow.
    Unreachable,
}

impl Blank {
    /// The stable code that traces carry.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Unclear => "answer_unclear",
            Self::NoReceipt => "no_receipt",
            Self::Denied => "downstream_denied",
            Self::Unbuildable => "unbuildable_request",
            Self::NoQuestion => "no_question",
            Self::Panicked => "tool_panicked",
        }
    }
}
