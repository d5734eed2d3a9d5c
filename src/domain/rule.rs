//! What a contract says about claiming, sending again and giving up, in numbers.

use std::time::Duration;

use super::contract::template::Placeholder;
use super::contract::{AbsentRule, Contract, Lookup, Recoverability, RetryRule};
use super::operation::{Operation, Timestamp};

/// How an operation that may have been sent is found out about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resend {
    /// Sending again does no harm: reads, and writes that are natural idempotent.
    Always,
    /// The downstream recognises our key for this long after its first use.
    Within(Duration),
    /// Sending again could double the effect, and nothing can be looked up.
    Never,
    /// The effect is part of the settling transaction: it is there exactly when the record says so.
    InTransaction,
}

impl Resend {
    /// Whether the sent mark may ride in the claim: a worker that dies in between then costs a
    /// second send that does no harm. A blind tool's mark is a write of its own.
    #[must_use]
    pub fn marks_in_claim(self) -> bool {
        match self {
            Self::Always | Self::Within(_) => true,
            Self::Never | Self::InTransaction => false,
        }
    }
}

/// How an effect is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupRule {
    /// "Absent" is the truth, and not a cache's opinion.
    pub authoritative: bool,
    /// How long an effect may be invisible.
    pub visible_after: Duration,
    /// What is done when it is not there.
    pub when_absent: AbsentRule,
    /// It asks by our key, so that nothing can be asked where the key is not known.
    pub by_key: bool,
    /// It asks by the effect's receipt, likewise.
    pub by_receipt: bool,
    /// It asks by the provider's job, likewise.
    pub by_job: bool,
}

/// How a provider's job is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollRule {
    /// How often.
    pub every: Duration,
    /// How long, from the acceptance.
    pub give_up: Duration,
}

/// The numbers of one contract version that decisions need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttemptRule {
    /// What recovery may do without a look-up.
    pub resend: Resend,
    /// How an effect is looked up; `None`: it cannot be.
    pub lookup: Option<LookupRule>,
    /// How a provider's job is followed; `None`: it makes none.
    pub poll: Option<PollRule>,
    /// Something outside this database is asked before a send, so that its mark cannot ride in the
    /// claim.
    pub asks_before_send: bool,
    /// Twins are held, also behind one that was applied less than this ago; `None`: they are not.
    pub twins: Option<Duration>,
    /// The first wait between attempts.
    pub initial: Duration,
    /// The longest wait between attempts.
    pub max: Duration,
    /// What a wait grows by.
    pub multiplier: f64,
    /// How far a wait may be moved at random: 0.5 is plus or minus a half.
    pub jitter: f64,
    /// Sends that may be made or may have been made.
    pub attempts: u32,
    /// How long after it was opened an operation that never gets through is given up.
    pub give_up: Duration,
    /// How long a claim holds without renewal.
    pub lease: Duration,
    /// How long a send may take to its answer.
    pub timeout: Duration,
    /// What is kept free at the end of leases and windows for a clock that jumps in a fail-over.
    pub margin: Duration,
    /// How long an attempt that nobody answered, or whose owner was lost, may still be under way.
    pub stall_margin: Duration,
}

/// Claims lost in a row after which an operation runs with nothing beside it.
pub const LOST_CLAIMS_ALONE: u32 = 3;

/// Claims lost in a row after which an operation waits for an operator.
pub const LOST_CLAIMS_PARKED: u32 = 5;

/// How long after its lease a claim's owner may, at the outside, still be sending: a process frozen
/// right before its first byte. Must outlast any pause that the deployment's machines can have.
pub const DEFAULT_STALL_MARGIN: Duration = Duration::from_secs(300);

impl AttemptRule {
    /// Whether the sent mark rides in the claim.
    #[must_use]
    pub fn marks_in_claim(&self) -> bool {
        self.resend.marks_in_claim() && !self.asks_before_send
    }

    /// Whether there is somebody to ask about an operation that may have been sent.
    #[must_use]
    pub fn can_look_up(&self, operation: &Operation) -> bool {
        self.can_find(operation) || (self.poll.is_some() && operation.job.is_some())
    }

    /// Whether the effect itself can be looked for: there is a look-up, and what it asks by is known.
    #[must_use]
    pub fn can_find(&self, operation: &Operation) -> bool {
        self.lookup.is_some_and(|lookup| {
            (!lookup.by_key || operation.downstream_key.is_some())
                && (!lookup.by_receipt || operation.effect_reference.is_some())
                && (!lookup.by_job || operation.job.is_some())
        })
    }

    /// Until when a send may begin, so that the downstream still knows our key at the end of the
    /// effect time-out, margin included. `None`: no such bound.
    #[must_use]
    pub fn window_end(&self, operation: &Operation) -> Option<Timestamp> {
        let Resend::Within(window) = self.resend else { return None };
        let first = operation.key_first_used_at?;
        Some(first.after(window).before(self.timeout.saturating_add(self.margin)))
    }

    /// Whether an operation that may have been sent may be sent again at `at`.
    #[must_use]
    pub fn may_resend(&self, operation: &Operation, at: Timestamp) -> bool {
        match self.resend {
            Resend::Always => true,
            // Without a stored key, nobody knows which one the downstream has seen.
            Resend::Within(_) => {
                operation.downstream_key.is_some()
                    && self.window_end(operation).is_some_and(|end| at < end)
            }
            Resend::Never | Resend::InTransaction => false,
        }
    }
}

impl From<Recoverability> for Resend {
    fn from(contract: Recoverability) -> Self {
        match contract {
            Recoverability::Transactional => Self::InTransaction,
            Recoverability::ResendAlways => Self::Always,
            Recoverability::ResendWithin { window } => Self::Within(window),
            Recoverability::None => Self::Never,
        }
    }
}

impl AttemptRule {
    /// The rule of `contract`, with the deployment's margins. A tool written in Rust names no
    /// time-out of its own: its lease, less the margin, stands for it.
    #[must_use]
    pub fn of(contract: &Contract, margin: Duration, stall_margin: Duration) -> Self {
        let RetryRule { initial, max, multiplier, jitter, attempts, give_up } = contract.retry;
        let timeout =
            contract.http().map_or(contract.lease.saturating_sub(margin), |http| http.timeout);
        let resend = contract.recoverability().into();
        let downstream = contract.downstream.as_ref();
        let lookup = downstream.and_then(|d| d.lookup.as_ref()).map(LookupRule::of);
        let poll = downstream.and_then(|d| d.poll.as_ref());
        Self {
            resend,
            lookup,
            poll: poll.map(|poll| PollRule { every: poll.every, give_up: poll.give_up }),
            asks_before_send: contract.asks_before_send(),
            twins: contract.twins.hold.then_some(contract.twins.within),
            initial,
            max,
            multiplier,
            jitter,
            attempts,
            give_up,
            lease: contract.lease,
            timeout,
            margin,
            stall_margin,
        }
    }
}

impl LookupRule {
    fn of(lookup: &Lookup) -> Self {
        let http = lookup.http.as_ref();
        let asks = |by| http.is_some_and(|http| http.call.placeholders().contains(&&by));
        Self {
            authoritative: lookup.authoritative,
            visible_after: lookup.visible_after,
            when_absent: lookup.when_absent,
            // What a tool's code asks by, only the code knows: all of them ask by the key.
            by_key: http.is_none() || asks(Placeholder::IdempotencyKey),
            by_receipt: asks(Placeholder::Receipt),
            by_job: asks(Placeholder::Job),
        }
    }
}
