//! What an attempt learned: a type, not a guess.
//!
//! Between "certainly nothing was done" ([`Learned::NotSent`], [`Learned::NotNow`],
//! [`Learned::Denied`], [`Learned::Refused`]) and "certainly done" ([`Learned::Applied`]) lies
//! everything else, and all of it is [`Learned::Ambiguous`]: a time-out is never success and never
//! failure. [`Learned::Accepted`] stands beside them: a provider owns a job, and the job will tell.

use std::fmt;
use std::time::Duration;

use super::reason::Reason;

/// Longest receipt that is kept, in bytes. A longer one is no receipt: its answer was ambiguous.
pub const MAX_RECEIPT_BYTES: usize = 1024;

/// Longest response that is kept for replays, in bytes of JSON text.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// The downstream's own reference for the effect: 1 to 1,024 bytes of text without NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt(String);

impl Receipt {
    /// Takes `text` as a receipt, or `None` if it cannot be stored as one.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let fits = !text.is_empty() && text.len() <= MAX_RECEIPT_BYTES && !text.contains('\0');
        fits.then_some(Self(text))
    }

    /// The receipt's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What of the downstream's answer is kept for replays.
#[derive(Clone, PartialEq, Eq)]
pub enum Response {
    /// The contract names no member to keep.
    None,
    /// The named members as JSON text of at most [`MAX_RESPONSE_BYTES`].
    Kept(String),
    /// There was something to keep, but it cannot be stored; the record says `response_dropped`.
    Dropped,
}

impl Response {
    /// Keeps `text`, or marks it as dropped when it is too long or no JSON that every database takes.
    #[must_use]
    pub fn keep(text: String) -> Self {
        let is_json = || serde_json::from_str::<serde_json::Value>(&text).is_ok();
        if text.len() <= MAX_RESPONSE_BYTES && !text.contains('\0') && is_json() {
            Self::Kept(text)
        } else {
            Self::Dropped
        }
    }
}

/// Never shows the response itself.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Kept(text) => write!(f, "Kept({} bytes)", text.len()),
            Self::Dropped => f.write_str("Dropped"),
        }
    }
}

/// Proof that the effect exists, with what a replay hands out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The downstream's reference.
    pub receipt: Receipt,
    /// The kept part of the answer.
    pub response: Response,
}

impl Effect {
    /// The same proof with nothing kept of the answer.
    #[must_use]
    pub fn without_response(&self) -> Self {
        Self { response: Response::Dropped, ..self.clone() }
    }
}

/// The provider's name for the job that it owns: 1 to 1,024 bytes of text without NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job(String);

impl Job {
    /// Takes `text` as a job's id, or `None` if it cannot be stored as one.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        Receipt::new(text).map(|Receipt(text)| Self(text))
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an effect that is proved is not called applied: the contract's postcondition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconfirmed {
    /// It was asked and does not hold.
    Failed,
    /// It could not be asked.
    Unreachable,
}

/// Why an operation may not be sent now. Nothing was sent because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The actor may not, or not any more.
    NotAuthorized,
    /// A person said no.
    ApprovalDenied,
    /// The approval was taken back before the effect.
    ApprovalWithdrawn,
    /// The approval passed its time.
    ApprovalExpired,
    /// The target is not as the contract demands.
    PreconditionFailed,
}

/// Why nothing left this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// No connection could be made.
    Unreachable,
    /// The lease, less its margin, had passed before the first byte.
    LeaseTooShort,
    /// The claim was taken over, or its sent mark could not be written.
    ClaimLost,
    /// The request could not be built from these arguments.
    Unbuildable,
    /// A secret that the contract refers to is missing.
    SecretMissing,
    /// The worker is shutting down.
    Draining,
    /// It may not be sent.
    Forbidden(Denial),
    /// Whoever decides whether it may be sent could not be asked. Never an allow.
    PolicyUnreachable,
    /// The precondition could not be asked.
    PreconditionUnreachable,
    /// The tool said so itself.
    Tool,
}

/// Why the outcome cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguity {
    /// No answer within the time-out.
    TimedOut,
    /// The connection broke after bytes had left.
    Broken,
    /// The answer could not be read: malformed, cut short or too large.
    Unreadable,
    /// A redirect: followed never, since it may have come after the effect.
    Redirect,
    /// A status that the contract has in no list.
    UnlistedStatus,
    /// A status that means "applied", without its receipt.
    NoReceipt,
    /// A status that means "accepted", without its job.
    NoJob,
    /// The tool's code panicked after its gate was opened.
    Panicked,
    /// The worker died, or lost its lease, after the sent mark.
    WorkerLost,
    /// The tool said so itself.
    Tool,
}

/// What an attempt learned about the effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Learned {
    /// Nothing left this process.
    NotSent(NotSent),
    /// The contract says that this answer means that nothing was done, for now.
    NotNow {
        /// How long the downstream asked us to wait.
        retry_after: Option<Duration>,
    },
    /// 401 or 403: nothing was done, and the fault is the deployment's, not the operation's.
    Denied,
    /// Definitely no: this request will never be carried out.
    Refused,
    /// Definitely done.
    Applied(Effect),
    /// The answer that the contract calls *already done*: proof on a re-send only.
    Already(Effect),
    /// Definitely done, but the contract's postcondition does not say so.
    Unconfirmed(Effect, Unconfirmed),
    /// The provider owns a job for it; the job's end tells the outcome.
    Accepted(Job),
    /// Everything else.
    Ambiguous(Ambiguity),
    /// The tool's code panicked before its gate was opened: nothing was sent.
    Panicked,
}

impl NotSent {
    /// The stable code that traces and metrics carry.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::LeaseTooShort => "lease_too_short",
            Self::ClaimLost => "claim_lost",
            Self::Unbuildable => "unbuildable_request",
            Self::SecretMissing => "secret_missing",
            Self::Draining => "draining",
            Self::Forbidden(denial) => denial.code(),
            Self::PolicyUnreachable => "policy_unreachable",
            Self::PreconditionUnreachable => "precondition_unreachable",
            Self::Tool => "not_sent",
        }
    }
}

impl Denial {
    /// The stable code that traces and metrics carry; the reason's code as well.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.reason().code()
    }

    /// The reason that the record carries.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::NotAuthorized => Reason::NotAuthorized,
            Self::ApprovalDenied => Reason::ApprovalDenied,
            Self::ApprovalWithdrawn => Reason::ApprovalWithdrawn,
            Self::ApprovalExpired => Reason::ApprovalExpired,
            Self::PreconditionFailed => Reason::PreconditionFailed,
        }
    }
}

impl Unconfirmed {
    /// The reason that the record carries.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Failed => Reason::PostconditionFailed,
            Self::Unreachable => Reason::PostconditionUnreachable,
        }
    }
}

impl Ambiguity {
    /// Whether the downstream answered, so that this attempt is over: it will do no more than it has
    /// done. Where nobody answered, it may still be at work; as it may after a 202 without its job, and
    /// after a status in no list, which can be a proxy's that would not wait any longer.
    #[must_use]
    pub fn was_answered(self) -> bool {
        match self {
            Self::Unreadable | Self::Redirect | Self::NoReceipt => true,
            Self::TimedOut
            | Self::Broken
            | Self::UnlistedStatus
            | Self::NoJob
            | Self::Panicked
            | Self::WorkerLost
            | Self::Tool => false,
        }
    }

    /// The stable code that traces and metrics carry.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Broken => "connection_broken",
            Self::Unreadable => "answer_unreadable",
            Self::Redirect => "redirected",
            Self::UnlistedStatus => "unlisted_status",
            Self::NoReceipt => "no_receipt",
            Self::NoJob => "no_job",
            Self::Panicked => "tool_panicked",
            Self::WorkerLost => "worker_lost",
            Self::Tool => "ambiguous",
        }
    }
}
