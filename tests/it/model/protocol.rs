//! The real decisions, and what they are when one of them is broken on purpose.
//!
//! Without a [`Fault`] each function hands its arguments to `domain` and nothing else: there is no
//! copy of a rule here. A fault changes what a decision is told, or what is made of its answer.

use oncebox::domain::attempt::Learned;
use oncebox::domain::claim::{
    self, Around, Claim, Claimant, Marking, Purpose, Recomputed, Ticket, Twins,
};
use oncebox::domain::evidence::Evidence;
use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::{Operation, Timestamp};
use oncebox::domain::permission::Permission;
use oncebox::domain::reason::Reason;
use oncebox::domain::recovery::{self, Asked};
use oncebox::domain::rule::{AttemptRule, Resend};
use oncebox::domain::settle::{self, Settle};
use oncebox::domain::step::Step;
use oncebox::domain::verbs::{self, Finding, Person};

use super::setup::material;
use super::world::{Report, START, ticks};

/// A bug in the protocol, planted to see it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A claim takes a record whose lease is live.
    LiveLeaseIgnored,
    /// A refusal is settled whatever the token.
    TokenIgnored,
    /// A mark is asked for under any token and any lease.
    StaleMark,
    /// The sent mark is not committed before the first byte.
    MarkNotDurable,
    /// The sent mark of a claim is forgotten when the claim is written.
    ClaimUnmarked,
    /// A tool whose downstream does not know our key is sent again as if it did.
    BlindResend,
    /// An absence counts although an earlier attempt may still be under way.
    AbsenceTooEarly,
    /// An absence counts although an effect may not be visible yet.
    InvisibleIsAbsent,
    /// An absence counts although the downstream only asked a cache.
    CacheBelieved,
    /// A refusal is final although an earlier attempt is unproved.
    RefusalFinal,
    /// A receipt counts from the owner of the claim only.
    StaleReceiptIgnored,
    /// Each claim derives another key towards the downstream.
    KeyChanges,
    /// The downstream's window is taken for endless.
    WindowUnchecked,
    /// What may have been sent is rejected when it is not allowed any more.
    DenialRejects,
    /// A grant that is gone, or an approval that is taken back, stops nothing.
    DenialIgnored,
    /// A poll that is not answered has the job made again.
    SecondJob,
    /// Twins are not held.
    TwinsFree,
    /// *Already done* counts on a first send too.
    AlreadyCounts,
    /// `resolve --not-applied` waits for nothing.
    NotAppliedAtOnce,
    /// `retry --reopen` opens what may have been sent.
    ReopenUnproved,
    /// An unknown record that was looked up and not found is sent again.
    UnknownResent,
    /// The sent mark is taken back when the outcome is open.
    AmbiguousIsNothing,
    /// The gate does not look at the lease.
    GateUnchecked,
    /// A job that fails proves that nothing was done, whatever went before it.
    JobFailureFinal,
    /// An absence counts although a lost answer may have begun a job.
    JobForgotten,
    /// `resolve --not-applied` leaves out what a request takes that leaves at the last moment.
    TimeOutForgotten,
    /// Whoever has nothing to tell takes an applied record back.
    AppliedUndone,
    /// A question that nobody answers leaves the record claimed, without a lease.
    LeftClaimed,
}

/// The decisions, with at most one bug.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protocol {
    pub(super) rule: AttemptRule,
    pub(super) fault: Option<Fault>,
}

/// Jitter is off in the model's rules.
const JITTER: f64 = 0.5;

impl Protocol {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The contract as the broken one reads it.
    fn rule(&self) -> AttemptRule {
        let mut rule = self.rule;
        if self.is(Fault::BlindResend) || self.is(Fault::WindowUnchecked) {
            rule.resend = Resend::Always;
        }
        if let Some(lookup) = &mut rule.lookup {
            lookup.authoritative |= self.is(Fault::CacheBelieved);
            if self.is(Fault::InvisibleIsAbsent) {
                lookup.visible_after = ticks(0);
            }
        }
        rule
    }

    pub(super) fn claim(
        &self,
        row: &Operation,
        around: &Around,
        now: Timestamp,
        claimant: &Claimant<'_>,
    ) -> Claim {
        let (mut row, mut around, material) = (row.clone(), *around, material());
        if let Some(lease) = row.lease.as_mut().filter(|_| self.is(Fault::LiveLeaseIgnored)) {
            lease.until = lease.until.min(now);
        }
        if self.is(Fault::TwinsFree) {
            around.twins = Twins::Free;
        }
        if self.is(Fault::DenialIgnored) {
            around.permission = Permission::Allowed;
        }
        if self.is(Fault::DenialRejects) && matches!(around.permission, Permission::Denied(_)) {
            row.first_sent_at = None;
        }
        let recomputed = Recomputed::Valid(&material);
        let mut decided = claim::decide(&row, recomputed, &around, now, &self.rule(), claimant);
        if let Claim::Run(run) = &mut decided {
            if self.is(Fault::ClaimUnmarked) {
                run.step.record.first_sent_at = row.first_sent_at;
            }
            if self.is(Fault::WindowUnchecked) {
                run.send_within = None;
            }
            if self.is(Fault::KeyChanges) {
                run.step.record.downstream_key = Some((claimant.downstream_key)());
            }
        }
        decided
    }

    pub(super) fn mark(
        &self,
        row: &Operation,
        ticket: &Ticket,
        permission: Permission,
        now: Timestamp,
    ) -> Marking {
        let (mut row, mut ticket, mut permission) = (row.clone(), *ticket, permission);
        if self.is(Fault::StaleMark) && row.lease.is_some() {
            ticket.token = row.token;
            row.lease.iter_mut().for_each(|lease| lease.until = now.after(ticks(1)));
        }
        if self.is(Fault::DenialIgnored) {
            permission = Permission::Allowed;
        }
        claim::mark_sent(&row, &ticket, permission, now)
    }

    pub(super) fn settle(
        &self,
        row: &Operation,
        ticket: &Ticket,
        purpose: Purpose,
        report: &Report,
        now: Timestamp,
    ) -> Settle {
        match report {
            Report::Attempt(learned) => self.attempted(row, ticket, learned, now),
            Report::Answer(evidence) => self.answered(row, ticket, purpose, evidence, now),
        }
    }

    fn attempted(
        &self,
        row: &Operation,
        ticket: &Ticket,
        learned: &Learned,
        now: Timestamp,
    ) -> Settle {
        let (mut ticket, mut learned) = (*ticket, learned.clone());
        let owner = ticket.token == row.token;
        match (&learned, self.fault) {
            (Learned::Refused, Some(Fault::TokenIgnored)) => ticket.token = row.token,
            (Learned::Refused, Some(Fault::RefusalFinal)) => ticket.prior_first_sent_at = None,
            (Learned::Applied(_), Some(Fault::StaleReceiptIgnored)) if !owner => {
                return Settle::LostLease;
            }
            (Learned::Already(effect), Some(Fault::AlreadyCounts)) => {
                learned = Learned::Applied(effect.clone());
            }
            (Learned::Ambiguous(_), Some(Fault::AppliedUndone)) if row.state == State::Applied => {
                return scheduled(row, Reason::Ambiguous, now);
            }
            (Learned::Ambiguous(_), Some(Fault::AmbiguousIsNothing)) => {
                learned = Learned::NotNow { retry_after: None };
            }
            (_, _) => {}
        }
        settle::decide(row, &ticket, &learned, now, &self.rule(), JITTER)
    }

    fn answered(
        &self,
        row: &Operation,
        ticket: &Ticket,
        purpose: Purpose,
        evidence: &Evidence,
        now: Timestamp,
    ) -> Settle {
        let (mut row, mut rule) = (row.clone(), self.rule());
        match (evidence, self.fault) {
            (Evidence::Absent, Some(Fault::AbsenceTooEarly)) => row.attempts_over_at = Some(START),
            (Evidence::Absent, Some(Fault::JobForgotten)) => rule.poll = None,
            (Evidence::JobFailed, Some(Fault::JobFailureFinal)) => {
                row.job.iter_mut().for_each(|job| job.alone = true);
            }
            (_, _) => {}
        }
        let settled = settle::answered(&row, ticket, purpose, evidence, now, &rule, JITTER);
        let silent = matches!(evidence, Evidence::CannotTell(_)) && row.token == ticket.token;
        match self.fault {
            Some(Fault::SecondJob) if silent && row.state == State::Accepted => {
                scheduled(&row, Reason::Ambiguous, now)
            }
            Some(Fault::LeftClaimed) if silent && row.state == State::Claimed => {
                let mut step = Step::from(&row);
                step.record.lease = None;
                Settle::Write(Box::new(step))
            }
            _ => settled,
        }
    }

    pub(super) fn reconcile(
        &self,
        row: &Operation,
        evidence: &Evidence,
        at: Timestamp,
        now: Timestamp,
    ) -> Settle {
        let asked = Asked { at, jitter: JITTER };
        let settled = recovery::reconcile(row, evidence, asked, now, &self.rule());
        let ended = |step: &Step| step.record.state == State::FailedPermanent;
        match settled {
            Settle::Write(step) if self.is(Fault::UnknownResent) && ended(&step) => {
                scheduled(row, Reason::ProvedAbsent, now)
            }
            settled => settled,
        }
    }

    pub(super) fn resolve(
        &self,
        row: &Operation,
        finding: &Finding,
        now: Timestamp,
        by: &Person,
    ) -> Result<Step, &'static str> {
        let early = self.is(Fault::NotAppliedAtOnce);
        let judged_at = if early { now.after(ticks(1000)) } else { now };
        let forgotten = self.is(Fault::TimeOutForgotten);
        let timeout = if forgotten { ticks(0) } else { self.rule.timeout };
        let lasts = self.rule.stall_margin + timeout;
        verbs::resolve(row, finding, lasts, judged_at, by)
    }

    pub(super) fn reopen(
        &self,
        row: &Operation,
        now: Timestamp,
        by: &Person,
    ) -> Result<Step, &'static str> {
        let mut row = row.clone();
        if self.is(Fault::ReopenUnproved) && row.state == State::Unknown {
            row.state = State::FailedPermanent;
            row.first_sent_at = None;
        }
        verbs::reopen(&row, now, by)
    }

    /// Whether the first byte may go at `now`: the check of the gate.
    pub(super) fn gate_is_open(
        &self,
        lease_ends: Timestamp,
        window: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let lease = lease_ends.before(self.rule.margin);
        self.is(Fault::GateUnchecked) || now < window.map_or(lease, |window| window.min(lease))
    }

    /// Whether a mark that was decided reaches the database.
    pub(super) fn mark_is_durable(&self) -> bool {
        !self.is(Fault::MarkNotDurable)
    }
}

/// Sent again as if nothing had been sent.
fn scheduled(row: &Operation, reason: Reason, now: Timestamp) -> Settle {
    let mut step = Step::from(row).published(now);
    step.record.state = State::RetryScheduled;
    step.record.reason = Some(reason);
    step.record.first_sent_at = None;
    step.record.attempts_over_at = None;
    step.record.job = None;
    step.record.token = row.token.next();
    Settle::Write(Box::new(step))
}
