//! The gate before the first byte, and what can be said on either side of it.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::domain::attempt::{Ambiguity, Effect, Job, Learned, NotSent, Receipt, Response};

/// What has to be true before the first byte, checked by whoever owns the claim.
#[async_trait]
pub trait SendGuard: Send {
    /// Makes the send durable where that is still to do, then checks the lease, last.
    ///
    /// # Errors
    /// The reason why nothing may be sent. The tool was not allowed to begin, so nothing left.
    async fn open(&mut self) -> Result<SendWindow, NotSent>;
}

/// How long an opened gate stays open.
#[derive(Debug, Clone, Copy)]
pub struct SendWindow {
    /// The first byte must have left by then; later it must not leave at all.
    pub send_before: Instant,
}

/// The closed gate of one attempt. It can be opened once.
pub struct Gate(Box<dyn SendGuard>);

/// The token of an opened gate: from here on something may leave.
///
/// Dropping it without a result (a panic, a cancelled call) proves nothing; whoever owns the claim
/// must take that as ambiguous.
#[derive(Debug)]
#[must_use = "an opened gate ends in a result"]
pub struct Sending {
    window: SendWindow,
}

/// What one attempt learned. Only [`NotSent`] can be said without a [`Sending`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Attempted(Learned);

impl Gate {
    /// A gate that `guard` keeps.
    #[must_use]
    pub fn new(guard: impl SendGuard + 'static) -> Self {
        Self(Box::new(guard))
    }

    /// Asks to send. Call it when everything else is ready: a gate opened early burns the lease.
    ///
    /// # Errors
    /// The attempt's result, to be returned as it is: nothing may be sent.
    pub async fn open(mut self) -> Result<Sending, Attempted> {
        match self.0.open().await {
            Ok(window) => Ok(Sending { window }),
            Err(closed) => Err(Attempted::not_sent(closed)),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Sending {
    /// When the first byte must have left. After that the lease may be another's: do not begin.
    #[must_use]
    pub fn send_before(&self) -> Instant {
        self.window.send_before
    }

    /// Definitely done.
    pub fn applied(self, receipt: Receipt, response: Response) -> Attempted {
        Attempted(Learned::Applied(Effect { receipt, response }))
    }

    /// The downstream says that this was done before. Counts as done on a re-send only, which is
    /// the settling's decision, not the tool's.
    pub fn already(self, receipt: Receipt, response: Response) -> Attempted {
        Attempted(Learned::Already(Effect { receipt, response }))
    }

    /// The provider owns a job for it, which will tell how it ended. Say it only with the job's own
    /// id: an operation whose job nobody can name could never be followed.
    pub fn accepted(self, job: Job) -> Attempted {
        Attempted(Learned::Accepted(job))
    }

    /// Definitely no, and never will be.
    pub fn refused(self) -> Attempted {
        Attempted(Learned::Refused)
    }

    /// Nothing was done because the downstream does not let this deployment in.
    pub fn denied(self) -> Attempted {
        Attempted(Learned::Denied)
    }

    /// Certainly nothing was done, for now.
    pub fn not_now(self, retry_after: Option<Duration>) -> Attempted {
        Attempted(Learned::NotNow { retry_after })
    }

    /// It cannot be told. The right answer whenever none of the others is certain.
    pub fn ambiguous(self, why: Ambiguity) -> Attempted {
        Attempted(Learned::Ambiguous(why))
    }

    /// The tool can prove that nothing left although it was allowed to.
    pub fn not_sent(self, why: NotSent) -> Attempted {
        Attempted(Learned::NotSent(why))
    }
}

impl Attempted {
    /// Nothing left this process.
    pub fn not_sent(why: NotSent) -> Self {
        Self(Learned::NotSent(why))
    }

    /// What was learned.
    #[must_use]
    pub fn learned(&self) -> &Learned {
        &self.0
    }

    /// What was learned, to keep.
    #[must_use]
    pub fn into_learned(self) -> Learned {
        self.0
    }
}
