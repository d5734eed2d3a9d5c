//! What a contract says about claiming, sending again and giving up, in numbers.

use std::time::Duration;

use super::contract::{Contract, Recoverability, RetryRule};
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

/// The numbers of one contract version that decisions need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttemptRule {
    /// What recovery may do.
    pub resend: Resend,
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
}

/// Claims lost in a row after which an operation runs with nothing beside it.
pub const LOST_CLAIMS_ALONE: u32 = 3;

/// Claims lost in a row after which an operation waits for an operator.
pub const LOST_CLAIMS_PARKED: u32 = 5;

impl AttemptRule {
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
    /// The rule of `contract`, with the deployment's `margin`. A tool written in Rust names no
    /// time-out of its own: its lease, less the margin, stands for it.
    #[must_use]
    pub fn of(contract: &Contract, margin: Duration) -> Self {
        let RetryRule { initial, max, multiplier, jitter, attempts, give_up } = contract.retry;
        let timeout =
            contract.http().map_or(contract.lease.saturating_sub(margin), |http| http.timeout);
        let resend = contract.recoverability().into();
        let lease = contract.lease;
        Self { resend, initial, max, multiplier, jitter, attempts, give_up, lease, timeout, margin }
    }
}
