//! The record's life: every state, every event, one table.
//!
//! [`next`] is the only place that says where an event leads. The decisions in [`super::claim`],
//! [`super::settle`] and [`super::verbs`] name the event; the table names the state.

#[cfg(test)]
mod tests;

/// Where in its life an operation is: `status` and, while pending, `phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits for a worker.
    Queued,
    /// An older operation with the same material arguments is unfinished.
    Held,
    /// Waits for a person's approval.
    AwaitingApproval,
    /// A worker owns it and has not marked it as sent.
    Claimed,
    /// A worker owns it and its request may have left.
    Sent,
    /// The downstream owns a job for it.
    Accepted,
    /// Waits for its next attempt.
    RetryScheduled,
    /// Waits for an operator.
    Parked,
    /// The effect exists.
    Applied,
    /// No effect, decided before anything was sent.
    Rejected,
    /// No effect, and never will be under this key.
    FailedPermanent,
    /// The effect may exist; nothing here can prove it.
    Unknown,
    /// Tombstone.
    Expired,
}

/// What can happen to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The same request is submitted again.
    Reopen,
    /// A worker takes it; `sent` is marked later.
    Claim,
    /// A worker takes it and marks it as sent in the same write.
    ClaimAndSend,
    /// The owner marks it as sent.
    MarkSent,
    /// Tried again later: nothing was done, or the same key may be sent again.
    Schedule,
    /// An authentic receipt, from anyone.
    Proof,
    /// Certainly no effect, and none to come.
    Fail,
    /// Not valid, not allowed, or not wanted, and never sent.
    Reject,
    /// Nothing more can be found out here.
    LoseTrack,
    /// Set aside for an operator.
    Park,
    /// `ops retry`: due now.
    OperatorRetry,
    /// `ops retry --reopen`: nothing was done, open it again.
    OperatorReopen,
    /// `ops resolve --applied`.
    ResolveApplied,
    /// `ops resolve --not-applied`.
    ResolveNotApplied,
    /// `ops resolve --compensated`.
    ResolveCompensated,
    /// A held one goes on.
    Release,
    /// An older operation with the same material arguments is unfinished.
    Hold,
    /// The contract wants a person's approval, and nobody was asked yet.
    AskApproval,
    /// A person said yes.
    Approve,
    /// The provider owns a job, says anyone.
    Accept,
    /// An authentic receipt, from anyone, whose postcondition does not hold or could not be asked.
    Unconfirm,
    /// An unknown one was looked up: there was no effect.
    ProveAbsent,
    /// Retention drops the result and leaves a tombstone.
    Expire,
}

/// Where an event leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// To this state.
    To(State),
    /// Nowhere: the record already says so.
    Stay,
    /// The event contradicts the record: it becomes unknown, reason `conflict`.
    Conflict,
    /// Not allowed here; the word says what stands in the way.
    Refused(&'static str),
}

impl State {
    /// Every state, in the order of a record's life.
    pub const ALL: [Self; 13] = [
        Self::Queued,
        Self::Held,
        Self::AwaitingApproval,
        Self::Claimed,
        Self::Sent,
        Self::Accepted,
        Self::RetryScheduled,
        Self::Parked,
        Self::Applied,
        Self::Rejected,
        Self::FailedPermanent,
        Self::Unknown,
        Self::Expired,
    ];

    /// The columns `status` and `phase`.
    #[must_use]
    pub fn columns(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Queued => ("pending", Some("queued")),
            Self::Held => ("pending", Some("held")),
            Self::AwaitingApproval => ("pending", Some("awaiting_approval")),
            Self::Claimed => ("pending", Some("claimed")),
            Self::Sent => ("pending", Some("sent")),
            Self::Accepted => ("pending", Some("accepted")),
            Self::RetryScheduled => ("pending", Some("retry_scheduled")),
            Self::Parked => ("pending", Some("parked")),
            Self::Applied => ("applied", None),
            Self::Rejected => ("rejected", None),
            Self::FailedPermanent => ("failed_permanent", None),
            Self::Unknown => ("unknown", None),
            Self::Expired => ("expired", None),
        }
    }

    /// The state that the columns `status` and `phase` name.
    #[must_use]
    pub fn from_columns(status: &str, phase: Option<&str>) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.columns() == (status, phase))
    }

    /// Whether `status` is `pending`.
    #[must_use]
    pub fn is_pending(self) -> bool {
        self.columns().1.is_some()
    }

    /// Whether a listener is told of it: something is decided, or nothing more can be found out. The
    /// tombstone is not; the ending before it was.
    #[must_use]
    pub fn is_ending(self) -> bool {
        !self.is_pending() && self != Self::Expired
    }

    /// Whether those behind it in its ordering key may go on. Unknown counts as unfinished.
    #[must_use]
    pub fn is_finished(self) -> bool {
        !self.is_pending() && self != Self::Unknown
    }
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 23] = [
        Self::Reopen,
        Self::Claim,
        Self::ClaimAndSend,
        Self::MarkSent,
        Self::Schedule,
        Self::Proof,
        Self::Fail,
        Self::Reject,
        Self::LoseTrack,
        Self::Park,
        Self::OperatorRetry,
        Self::OperatorReopen,
        Self::ResolveApplied,
        Self::ResolveNotApplied,
        Self::ResolveCompensated,
        Self::Release,
        Self::Hold,
        Self::AskApproval,
        Self::Approve,
        Self::Accept,
        Self::Unconfirm,
        Self::ProveAbsent,
        Self::Expire,
    ];
}

/// Where `event` leads from `state`. Whether it may happen now (lease, token, time, what was sent)
/// is the deciding function's part; this table knows states only.
#[must_use]
#[allow(clippy::too_many_lines, reason = "a decision table: one line a pair is the point")]
pub fn next(state: State, event: Event) -> Next {
    use Event as E;
    use State as S;
    match event {
        E::Reopen => match state {
            S::Rejected => Next::To(S::Queued),
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::Refused("still pending"),
            S::Applied | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Claim | E::ClaimAndSend => match state {
            // Claimed and Sent stand for a lease that ran out; a live one never gets here.
            S::Queued | S::RetryScheduled | S::Claimed | S::Sent => {
                Next::To(if event == E::Claim { S::Claimed } else { S::Sent })
            }
            S::Held | S::AwaitingApproval | S::Accepted | S::Parked => {
                Next::Refused("waits for something else")
            }
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::MarkSent => match state {
            S::Claimed => Next::To(S::Sent),
            S::Sent => Next::Stay,
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::Refused("not claimed"),
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Schedule => match state {
            S::Queued | S::RetryScheduled | S::Claimed | S::Sent => Next::To(S::RetryScheduled),
            S::Held | S::AwaitingApproval | S::Accepted | S::Parked => {
                Next::Refused("waits for something else")
            }
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Proof | E::ResolveApplied => match state {
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked
            | S::Unknown => Next::To(S::Applied),
            S::Applied => Next::Stay,
            S::Rejected | S::FailedPermanent | S::Expired => Next::Conflict,
        },
        E::Fail => match state {
            S::Queued | S::Claimed | S::Sent | S::Accepted | S::RetryScheduled => {
                Next::To(S::FailedPermanent)
            }
            S::Held | S::AwaitingApproval | S::Parked => Next::Refused("waits for something else"),
            S::FailedPermanent => Next::Stay,
            S::Applied | S::Rejected | S::Unknown | S::Expired => Next::Refused("already ended"),
        },
        E::Reject => match state {
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::RetryScheduled
            | S::Parked => Next::To(S::Rejected),
            S::Accepted => Next::Refused("a provider owns a job"),
            S::Rejected => Next::Stay,
            S::Applied | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::LoseTrack => match state {
            // Held and AwaitingApproval: never sent by us, but a restore may have to say otherwise.
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::To(S::Unknown),
            S::Unknown => Next::Stay,
            S::Applied | S::Rejected | S::FailedPermanent | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Park => match state {
            S::Queued | S::RetryScheduled | S::Claimed | S::Sent => Next::To(S::Parked),
            S::Parked => Next::Stay,
            S::Held | S::AwaitingApproval | S::Accepted => {
                Next::Refused("waits for something else")
            }
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::OperatorRetry => match state {
            S::Queued | S::RetryScheduled | S::Parked => Next::To(S::Queued),
            S::Claimed | S::Sent => Next::Refused("claimed; recovery takes it when its lease ends"),
            S::Held => Next::Refused("held behind an older operation; use release"),
            S::AwaitingApproval => Next::Refused("waits for an approval; use approve or deny"),
            // Its job is asked for at once; never is there a second job.
            S::Accepted => Next::To(S::Accepted),
            S::Unknown => Next::Refused("the effect may exist; use resolve"),
            S::Applied => Next::Refused("already applied"),
            S::FailedPermanent => Next::Refused("failed for good; use retry --reopen --reason"),
            S::Rejected => Next::Refused("rejected; submit the request again"),
            S::Expired => Next::Refused("expired; a new operation is needed"),
        },
        E::OperatorReopen => match state {
            S::FailedPermanent => Next::To(S::Queued),
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::Refused("still pending; use retry"),
            S::Unknown => Next::Refused("the effect may exist; use resolve"),
            S::Applied => Next::Refused("already applied"),
            S::Rejected => Next::Refused("rejected; submit the request again"),
            S::Expired => Next::Refused("expired; a new operation is needed"),
        },
        E::ResolveNotApplied | E::ResolveCompensated => match state {
            S::Queued
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked
            | S::Unknown => Next::To(S::FailedPermanent),
            S::FailedPermanent => Next::Stay,
            S::Held | S::AwaitingApproval => Next::Refused("was never sent"),
            S::Applied => Next::Refused("applied is never undone"),
            S::Rejected | S::Expired => Next::Refused("already ended"),
        },
        E::Release => match state {
            S::Held => Next::To(S::Queued),
            S::Queued
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked
            | S::Unknown => Next::Refused("not held"),
            S::Applied | S::Rejected | S::FailedPermanent | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Hold => match state {
            S::Queued | S::RetryScheduled | S::Claimed | S::Sent => Next::To(S::Held),
            S::Held => Next::Stay,
            S::AwaitingApproval | S::Accepted | S::Parked => {
                Next::Refused("waits for something else")
            }
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::AskApproval => match state {
            S::Queued | S::RetryScheduled | S::Claimed | S::Sent => Next::To(S::AwaitingApproval),
            S::AwaitingApproval => Next::Stay,
            S::Held | S::Accepted | S::Parked => Next::Refused("waits for something else"),
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Approve => match state {
            S::AwaitingApproval => Next::To(S::Queued),
            S::Queued
            | S::Held
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::Refused("waits for no approval"),
            S::Applied | S::Rejected | S::FailedPermanent | S::Unknown | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Accept => match state {
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::RetryScheduled
            | S::Parked => Next::To(S::Accepted),
            // A job is no effect yet: it adds something to ask, and takes nothing back.
            S::Accepted | S::Unknown | S::Applied => Next::Stay,
            S::Rejected | S::FailedPermanent | S::Expired => Next::Conflict,
        },
        E::Unconfirm => match state {
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked
            | S::Unknown => Next::To(S::Unknown),
            S::Applied => Next::Stay,
            S::Rejected | S::FailedPermanent | S::Expired => Next::Conflict,
        },
        E::ProveAbsent => match state {
            S::Unknown => Next::To(S::FailedPermanent),
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::Refused("still pending"),
            S::Applied | S::Rejected | S::FailedPermanent | S::Expired => {
                Next::Refused("already ended")
            }
        },
        E::Expire => match state {
            S::Applied | S::Rejected | S::FailedPermanent => Next::To(S::Expired),
            S::Expired => Next::Stay,
            S::Queued
            | S::Held
            | S::AwaitingApproval
            | S::Claimed
            | S::Sent
            | S::Accepted
            | S::RetryScheduled
            | S::Parked => Next::Refused("pending records never expire"),
            S::Unknown => Next::Refused("unknown records never expire"),
        },
    }
}
