//! What the model's states are made of: records, workers' memories, the downstream's truth, the clock.

use std::sync::Arc;
use std::time::Duration;

use oncebox::domain::attempt::Learned;
use oncebox::domain::claim::{Purpose, Ticket};
use oncebox::domain::evidence::Evidence;
use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::{Operation, Timestamp};
use oncebox::domain::permission::ApprovalState;
use oncebox::domain::verbs::Finding;

/// The model's unit of time. Every duration of its contracts is a whole number of them.
pub(super) const TICK: Duration = Duration::from_secs(10);

/// When a run begins.
pub(super) const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// So many ticks.
pub(super) const fn ticks(count: u32) -> Duration {
    Duration::from_secs(10 * count as u64)
}

/// Everything that there is at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) rows: Vec<Row>,
    /// What living workers remember; a worker with a claim is one of them.
    pub(super) attempts: Vec<Attempt>,
    /// Requests that nobody waits for any more and that the downstream may still act on.
    pub(super) wire: Vec<Request>,
    /// The question of role maintain that is under way.
    pub(super) inquiry: Option<Inquiry>,
    pub(super) granted: bool,
    pub(super) approval: Option<ApprovalState>,
    pub(super) left: Budget,
    /// The downstream forgets keys, so that it matters when it first saw one.
    pub(super) forgets: bool,
    /// The first rule that a move broke.
    pub(super) broken: Option<Rule>,
}

/// A record, and what is true of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) record: Arc<Operation>,
    pub(super) effects: Vec<Made>,
    pub(super) jobs: Vec<JobFate>,
    /// When the downstream first saw a request of it.
    pub(super) seen_at: Option<Timestamp>,
    /// Requests that left and of which nobody has proved that they came to nothing, by the moment
    /// until which the downstream may act on them.
    pub(super) unproved: Vec<Timestamp>,
    /// People were told that its effect may exist, and none of them has opened it again.
    pub(super) told: bool,
    /// A person let it go beside its twin.
    pub(super) released: bool,
}

/// An effect in the downstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Made {
    pub(super) receipt: String,
    pub(super) key: String,
    pub(super) at: Timestamp,
    pub(super) undone: bool,
}

/// How a provider's job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum JobFate {
    /// It ends before then, or makes no effect any more: the contract says how long jobs take.
    Runs {
        until: Timestamp,
    },
    Done,
    Failed,
}

impl JobFate {
    pub(super) fn runs_at(self, now: Timestamp) -> bool {
        match self {
            Self::Runs { until } => now < until,
            Self::Done | Self::Failed => false,
        }
    }
}

/// A request whose first byte has left.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) row: usize,
    pub(super) key: String,
    /// The downstream acts on it before then, once, or never.
    pub(super) until: Timestamp,
}

/// A claim, or a poll, in a worker's memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Attempt {
    pub(super) row: usize,
    pub(super) ticket: Ticket,
    pub(super) purpose: Purpose,
    pub(super) key: String,
    pub(super) lease_ends: Timestamp,
    /// The downstream's window ends then.
    pub(super) send_before: Option<Timestamp>,
    pub(super) stage: Stage,
}

/// How far an attempt has come.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    /// Nothing has left, nothing was asked.
    Begun,
    /// Past the gate's last check, and frozen before the first byte: it wakes up before then, or
    /// never.
    Frozen { awake_by: Timestamp },
    /// Its request has left, and nobody has answered.
    Waiting(Request),
    /// It has ended; its settle is due.
    Learned(Report),
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Report {
    Attempt(Learned),
    Answer(Evidence),
}

/// A look-up of an unknown record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Inquiry {
    pub(super) row: usize,
    pub(super) asked_at: Timestamp,
    pub(super) evidence: Evidence,
}

/// What may still go wrong, or be done by people: this is what bounds the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Leases that run out before their claim has come to its send, or is settled.
    pub(super) overruns: u8,
    /// Workers that die.
    pub(super) crashes: u8,
    /// Workers that freeze right before their first byte.
    pub(super) freezes: u8,
    /// Commits whose answer is lost.
    pub(super) unheard: u8,
    /// Attempts of which nothing leaves, and answers that say *not now*.
    pub(super) deferrals: u8,
    /// Requests that the downstream refuses.
    pub(super) refusals: u8,
    /// Permissions that are taken away.
    pub(super) revocations: u8,
    /// Questions that nobody answers, and caches that answer wrongly.
    pub(super) blanks: u8,
    /// Provider's jobs that fail.
    pub(super) job_failures: u8,
    /// Postconditions that cannot be asked.
    pub(super) unconfirmed: u8,
    /// Verbs of operators.
    pub(super) verbs: u8,
}

impl Budget {
    /// Nothing goes wrong.
    pub(super) const NONE: Self = Self {
        overruns: 0,
        crashes: 0,
        freezes: 0,
        unheard: 0,
        deferrals: 0,
        refusals: 0,
        revocations: 0,
        blanks: 0,
        job_failures: 0,
        unconfirmed: 0,
        verbs: 0,
    };
}

/// What the downstream does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Make,
    Refuse,
    NotNow,
}

/// What becomes of its answer. One that is heard late is a settle that comes late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// It arrives.
    Heard,
    /// It arrives, and its postcondition cannot be asked.
    Unconfirmed,
    /// It arrives and cannot be read: that it is over is all that is known.
    Unreadable,
    /// It is lost.
    Lost,
}

/// How a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// As it is, visible or not.
    Truth,
    /// Not there: not yet visible, or a cache's opinion.
    NotSeen,
    /// Not at all.
    Blank,
}

/// What an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Retry,
    Reopen,
    Release,
    Resolve(Told),
    Approve,
    Deny,
}

/// What an operator found out; always the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Applied,
    NotApplied,
    Compensated,
}

/// One step of anybody. Numbers are places in the lists of [`World`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Time passes until something can change by it.
    Wait,
    /// A message for this record reaches a worker: its own, a duplicate, the sweep's.
    Deliver(usize),
    /// The sent mark; `heard`: its owner learns that it was committed.
    Mark { attempt: usize, heard: bool },
    /// Whoever decides about permissions says no, now.
    Forbid(usize),
    /// Nothing leaves: no connection could be made.
    NotSent(usize),
    /// Past the last check, and the first byte leaves.
    Send(usize),
    /// Past the last check, and frozen.
    Freeze(usize),
    /// Awake again: the first byte leaves.
    Thaw(usize),
    /// The downstream acts on an attempt's request.
    Serve(usize, Act, Reply),
    /// The downstream acts on a request that nobody waits for.
    ServeLate(usize),
    /// The connection breaks, or time is up, before the downstream has done anything.
    GiveUp(usize),
    /// The question of a look-up or a poll is answered.
    Look(usize, Sight),
    /// The settle; `heard`: its owner learns that it was committed.
    Settle { attempt: usize, heard: bool },
    /// The worker dies.
    Crash(usize),
    /// A provider's job ends.
    EndJob { row: usize, done: bool },
    /// Role maintain asks about an unknown record.
    Inquire(usize, Sight),
    /// Role maintain writes what it found out.
    Conclude,
    /// Permission is taken away.
    Revoke,
    /// An operator acts.
    Operate(usize, Verb),
}

/// The rules that a single move can break. What must hold in every state is in
/// [`super::properties`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// A second request left although the first one's outcome was open and the downstream does not
    /// know our key.
    BlindSecondSend,
    /// An applied record became something else, or got another receipt.
    AppliedChanged,
    /// A worker with an old token wrote something that is no evidence of an effect.
    StaleWrite,
    /// A receipt was thrown away.
    ReceiptDropped,
    /// An operation of which people were told that its effect may exist was sent by itself.
    SentBehindPeople,
    /// Sent without permission.
    SentForbidden,
}

impl Row {
    pub(super) fn state(&self) -> State {
        self.record.state
    }

    /// Effects that stand.
    pub(super) fn standing(&self) -> impl Iterator<Item = &Made> {
        self.effects.iter().filter(|made| !made.undone)
    }

    /// Nothing more is to be done about it by anybody but people.
    pub(super) fn is_at_rest(&self) -> bool {
        let person =
            matches!(self.state(), State::Unknown | State::Parked | State::AwaitingApproval);
        person || self.state().is_finished()
    }
}

impl World {
    /// Whether something that is under way may still make an effect for `row`.
    pub(super) fn may_still_act(&self, row: usize) -> bool {
        let live = |request: &Request| request.row == row && self.now < request.until;
        let owner = |attempt: &Attempt| match &attempt.stage {
            Stage::Waiting(request) => live(request),
            Stage::Frozen { awake_by } => attempt.row == row && self.now < *awake_by,
            Stage::Begun | Stage::Learned(_) => false,
        };
        self.wire.iter().any(live)
            || self.attempts.iter().any(owner)
            || self.rows[row].jobs.iter().any(|job| job.runs_at(self.now))
    }
}

/// The findings that verbs take.
impl Told {
    pub(super) fn finding(self, row: &Row, now: Timestamp) -> Option<Finding> {
        let first = row.standing().next();
        match self {
            Self::Applied => {
                let receipt = oncebox::domain::attempt::Receipt::new(first?.receipt.clone())?;
                Some(Finding::Applied(receipt))
            }
            Self::NotApplied => {
                let ended = row.effects.is_empty() && !row.jobs.iter().any(|job| job.runs_at(now));
                ended.then_some(Finding::NotApplied)
            }
            Self::Compensated => (!row.effects.is_empty()).then_some(Finding::Compensated),
        }
    }
}
