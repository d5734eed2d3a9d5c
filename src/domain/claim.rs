//! Decides what to do with a delivery, given the operation's locked row.
//!
//! The line that parks a changed payload, the line that stops a second owner and the line that
//! stops a blind second send each stand here once.

mod mark;
mod question;
#[cfg(test)]
mod tests;
mod waits;

use std::time::Duration;

use serde_json::json;

use super::fingerprint::{Material, twin_digest};
use super::lifecycle::{Event, State};
use super::operation::{Lease, Operation, Timestamp, Token, Twin};
use super::reason::Reason;
use super::recovery::{self, Way};
use super::rule::{AttemptRule, LOST_CLAIMS_ALONE, LOST_CLAIMS_PARKED, Resend};
use super::step::{Step, Trace};
pub use mark::{Marking, mark_sent};
use mark::{mark, sent};
pub use question::{Around, Claimant, Predecessor, Recomputed, Twins};
pub use waits::TWIN_WAIT;
use waits::{forbidden, twin, wait_for_order};

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To make the effect.
    Send,
    /// To find out whether an earlier attempt made it.
    LookUp,
    /// To find out how the provider's job goes.
    Poll,
}

/// The decision.
#[derive(Debug)]
pub enum Claim {
    /// Make the effect, or ask about it.
    Run(Box<Run>),
    /// Write this; nothing is sent.
    Write(Box<Step>),
    /// Nothing to write but the trace: the record is the truth, the delivery is acked.
    Leave(Leave),
    /// It has killed workers before: ask again when nothing else runs.
    Alone,
}

/// A claim that leads to an attempt.
#[derive(Debug)]
pub struct Run {
    /// The claim's write.
    pub step: Step,
    /// What the attempt is for. A poll owns no claim: whoever asks, the job is the same.
    pub purpose: Purpose,
    /// What the settle of this attempt needs to know.
    pub ticket: Ticket,
    /// For a second send: the last moment that the downstream's window allows for a first byte, from
    /// now. Nothing bounds a send that no unproved one went before: it is one effect in any window.
    pub send_within: Option<Duration>,
}

/// What an owner remembers of its claim until it settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The claim's fencing token.
    pub token: Token,
    /// The sent mark that the record had before this attempt.
    pub prior_first_sent_at: Option<Timestamp>,
    /// This attempt's mark is written.
    pub marked: bool,
    /// When the claim was taken, by the database's clock.
    pub at: Timestamp,
}

impl Ticket {
    /// Whether an earlier attempt may have had an effect that nobody proved.
    #[must_use]
    pub fn is_resend(&self) -> bool {
        self.prior_first_sent_at.is_some()
    }
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Another worker's lease is live.
    InFlight,
    /// Its time has not come; a delayed message will ask again.
    NotDue,
    /// Held behind an older operation.
    Held,
    /// Waits for an approval, a provider's job or an operator.
    Waiting,
    /// Applied: the stored result stands.
    Replayed,
    /// Unknown: a delivery starts nothing.
    Unknown,
    /// A stored verdict, or a tombstone.
    Verdict,
}

impl Leave {
    /// The trace row that a delivery leaves behind.
    #[must_use]
    pub fn event(self) -> &'static str {
        match self {
            Self::InFlight | Self::NotDue | Self::Waiting => "in_flight",
            Self::Held => "held",
            Self::Replayed | Self::Verdict => "replayed",
            Self::Unknown => "unknown",
        }
    }
}

/// Decides what to do with a delivery, given the operation's locked row.
///
/// `row` is read under a row lock that the caller holds until the answer is written; `now` is the
/// database's time of that read.
#[must_use]
pub fn decide(
    row: &Operation,
    recomputed: Recomputed<'_>,
    around: &Around,
    now: Timestamp,
    rule: &AttemptRule,
    claimant: &Claimant<'_>,
) -> Claim {
    match row.state {
        State::Applied => return Claim::Leave(Leave::Replayed),
        State::Unknown => return Claim::Leave(Leave::Unknown),
        State::Rejected | State::FailedPermanent | State::Expired => {
            return Claim::Leave(Leave::Verdict);
        }
        State::Parked => return Claim::Leave(Leave::Waiting),
        State::AwaitingApproval | State::Accepted if now < row.due_at => {
            return Claim::Leave(Leave::Waiting);
        }
        State::AwaitingApproval => return Claim::Write(Box::new(unanswered(row, now, rule))),
        State::Accepted => return follow(row, now, rule),
        State::Queued | State::RetryScheduled if now < row.due_at => {
            return Claim::Leave(Leave::NotDue);
        }
        State::Queued | State::Held | State::RetryScheduled | State::Claimed | State::Sent => {}
    }
    if row.leased_at(now) {
        return Claim::Leave(Leave::InFlight);
    }
    let material = match recomputed {
        Recomputed::Invalid => return Claim::Write(Box::new(refuse_arguments(row, now, rule))),
        Recomputed::Valid(material) => material,
    };
    if row.fingerprint.as_ref().is_some_and(|stored| *stored != material.fingerprint) {
        return Claim::Write(Box::new(park(row, Reason::FingerprintDisagreement, rule)));
    }
    if around.predecessor == Predecessor::Unfinished {
        return Claim::Write(Box::new(wait_for_order(row, material, now, rule)));
    }
    // Before the lost claims are judged: what must not be sent again needs no worker to itself, and
    // an open outcome is called unknown, not parked.
    let purpose = match recovery(row, now, rule) {
        Way::Send => Purpose::Send,
        Way::LookUp => Purpose::LookUp,
        Way::Stop(reason) => return Claim::Write(Box::new(lose_track(row, reason, now, rule))),
    };
    let lost_claims = lost_claims(row);
    if lost_claims >= LOST_CLAIMS_PARKED {
        // Released by an operator, it still must not be sent if it may only be asked about.
        let reason = recovery::kept_or(row, Reason::WorkerLost);
        return Claim::Write(Box::new(park(row, reason, rule)));
    }
    if lost_claims >= LOST_CLAIMS_ALONE && !claimant.alone {
        return Claim::Alone;
    }
    if purpose == Purpose::LookUp {
        return Claim::Run(Box::new(look_up(row, material, now, rule, claimant)));
    }
    if let Some(waiting) = twin(row, material, around.twins, now, rule) {
        return waiting;
    }
    if let Some(stopped) = forbidden(row, material, around, now, rule) {
        return Claim::Write(Box::new(stopped));
    }
    Claim::Run(Box::new(run(row, material, now, rule, claimant)))
}

/// What recovery does next; a plain send where nothing unproved was sent.
fn recovery(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Way {
    if row.may_have_been_sent() && rule.resend != Resend::InTransaction {
        recovery::way(row, now, rule)
    } else {
        Way::Send
    }
}

/// Nobody answered the request for approval in time. Only a restore can have marked such a record as
/// perhaps sent; then it is never called rejected.
fn unanswered(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Step {
    let reason = Reason::ApprovalTimedOut;
    if row.may_have_been_sent() {
        lose_track(row, reason, now, rule)
    } else {
        reject_taken(row, reason, rule)
    }
}

/// Claims lost in a row, with the one that this delivery found.
fn lost_claims(row: &Operation) -> u32 {
    row.lost_claims.saturating_add(u32::from(row.lease.is_some()))
}

/// Asks how the provider's job goes. The next question is planned in the same write, so that it
/// comes whatever becomes of this one; no job is ever made a second time.
fn follow(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Claim {
    let since = row.job.as_ref().map_or(row.opened_at, |job| job.accepted_at);
    let poll = rule.poll.filter(|poll| now.since(since) < poll.give_up);
    let Some(poll) = poll else {
        let step = recovery::lose_track(Step::from(row), Reason::JobUnfinished, now, rule);
        return Claim::Write(Box::new(step));
    };
    let step = Step::from(row).traced(Trace::new("polled")).published(now.after(poll.every));
    let prior_first_sent_at = row.first_sent_at;
    let ticket = Ticket { token: row.token, prior_first_sent_at, marked: true, at: now };
    Claim::Run(Box::new(Run { step, purpose: Purpose::Poll, ticket, send_within: None }))
}

/// Takes the record from whoever had it. The new token fences an owner that lost its lease: only
/// proof is accepted from it now.
fn taken(row: &Operation, rule: &AttemptRule) -> Step {
    let mut step = Step::from(row);
    if let Some(lease) = &row.lease {
        step = step.traced(lease_lost(row));
        if row.state == State::Sent {
            // Its owner may have sent up to its lease, or was frozen right before it.
            let over = lease.until.after(rule.timeout).after(rule.stall_margin);
            step.record.may_act_until(over);
        }
    }
    if row.may_have_been_sent() {
        step.record.may_act_until(recovery::attempts_over(row, rule));
    }
    step.record.lost_claims = lost_claims(row);
    step.record.token = row.token.next();
    step
}

/// [`taken`], and no longer held.
fn going_on(row: &Operation, rule: &AttemptRule) -> Step {
    let step = taken(row, rule);
    if row.state == State::Held { step.moved(Event::Release, None) } else { step }
}

/// No twin stands before it: from now on it is held behind nobody, and its twins are held behind it.
/// Only so can nobody wait for somebody who waits for them.
fn passing(mut step: Step) -> Step {
    if let Some(twin) = &mut step.record.twin {
        twin.released = true;
        twin.held_behind = None;
    }
    step
}

/// Asks about an operation that may have been sent, under a claim of its own: what is found out
/// may lead to another send.
fn look_up(
    row: &Operation,
    material: &Material,
    now: Timestamp,
    rule: &AttemptRule,
    claimant: &Claimant<'_>,
) -> Run {
    let mut step = passing(identified(going_on(row, rule), material, rule))
        .moved(Event::Claim, row.reason)
        .traced(Trace::with("claimed", json!({ "to": "look_up" })));
    let record = &mut step.record;
    record.lease = Some(Lease { owner: claimant.owner.to_owned(), until: now.after(rule.lease) });
    let ticket = Ticket {
        token: record.token,
        prior_first_sent_at: record.first_sent_at,
        marked: true,
        at: now,
    };
    Run { step, purpose: Purpose::LookUp, ticket, send_within: None }
}

fn run(
    row: &Operation,
    material: &Material,
    now: Timestamp,
    rule: &AttemptRule,
    claimant: &Claimant<'_>,
) -> Run {
    let fold = rule.marks_in_claim();
    let mut step = passing(identified(going_on(row, rule), material, rule))
        .moved(if fold { Event::ClaimAndSend } else { Event::Claim }, None)
        .traced(Trace::new("claimed"));
    let record = &mut step.record;
    record.lease = Some(Lease { owner: claimant.owner.to_owned(), until: now.after(rule.lease) });
    if let Some(order) = &mut record.order {
        order.waiting = false;
    }
    if rule.resend == Resend::InTransaction {
        // The effect and this record are in one database: a record that is not applied is the proof
        // that there is none, whatever a restore or a requeue had to assume.
        record.nothing_was_done();
    } else if record.downstream_key.is_none() {
        record.downstream_key = Some((claimant.downstream_key)());
    }
    let prior = record.first_sent_at;
    let mut ticket =
        Ticket { token: record.token, prior_first_sent_at: prior, marked: false, at: now };
    if fold {
        mark(record, now);
        ticket.marked = true;
        step = step.traced(sent(ticket.is_resend()));
    }
    let window_end = rule.window_end(&step.record).filter(|_| ticket.is_resend());
    let send_within = window_end.map(|end| end.since(now));
    Run { step, purpose: Purpose::Send, ticket, send_within }
}

fn lease_lost(row: &Operation) -> Trace {
    let owner = row.lease.as_ref().map(|lease| lease.owner.as_str());
    Trace::with("lease_lost", json!({ "owner": owner, "claim_epoch": row.token.0 }))
}

/// Stores what the arguments of an SQL submission are, at its first claim.
fn identified(mut step: Step, material: &Material, rule: &AttemptRule) -> Step {
    let record = &mut step.record;
    if rule.twins.is_some() && record.twin.is_none() {
        let digest =
            twin_digest(&record.tenant, &record.environment, &record.tool, &material.digests);
        record.twin = Some(Twin { digest, held_behind: None, released: false });
    }
    if step.record.fingerprint.is_some() {
        return step;
    }
    step.record.fingerprint = Some(material.fingerprint.clone());
    step.record.digests = Some(json!(material.digests).to_string());
    step.traced(Trace::new("validated"))
}

/// Arguments that do not fit end the operation if it was never sent. One that may have been sent is
/// never called rejected, and a record that once had a fingerprint has changed under us: that waits
/// for an operator.
fn refuse_arguments(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Step {
    let reason = Reason::InvalidArguments;
    if row.fingerprint.is_some() {
        park(row, Reason::FingerprintDisagreement, rule)
    } else if row.may_have_been_sent() {
        lose_track(row, reason, now, rule)
    } else {
        reject_taken(row, reason, rule)
    }
}

fn reject_taken(row: &Operation, reason: Reason, rule: &AttemptRule) -> Step {
    rejected(taken(row, rule), reason)
}

/// Whose twin it is, the step knows already: whoever is held behind it goes on.
fn rejected(step: Step, reason: Reason) -> Step {
    step.moved(Event::Reject, Some(reason))
        .traced(Trace::with("rejected", json!({ "reason": reason.code() })))
}

fn park(row: &Operation, reason: Reason, rule: &AttemptRule) -> Step {
    going_on(row, rule)
        .moved(Event::Park, Some(reason))
        .traced(Trace::with("parked", json!({ "reason": reason.code() })))
}

fn lose_track(row: &Operation, reason: Reason, now: Timestamp, rule: &AttemptRule) -> Step {
    recovery::lose_track(taken(row, rule), reason, now, rule)
}
