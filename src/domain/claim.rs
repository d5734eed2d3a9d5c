//! Decides what to do with a delivery, given the operation's locked row.
//!
//! The line that parks a changed payload, the line that stops a second owner and the line that
//! stops a blind second send each stand here once.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::fingerprint::Material;
use super::lifecycle::{Event, Next, State, next};
use super::operation::{DownstreamKey, Lease, Operation, Timestamp, Token};
use super::reason::Reason;
use super::rule::{AttemptRule, LOST_CLAIMS_ALONE, LOST_CLAIMS_PARKED, Resend};
use super::step::{Step, Trace};

/// What the record's own arguments gave under its own contract version, just now.
#[derive(Debug, Clone, Copy)]
pub enum Recomputed<'a> {
    /// They fit the contract; this is their digest.
    Valid(&'a Material),
    /// They do not fit the contract, or no request can be built from them.
    Invalid,
}

/// What the row lock found of the operations before this one in its ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// All earlier ones are finished, or there is no order.
    Finished,
    /// An earlier one is unfinished, and its row is locked too.
    Unfinished,
}

/// Who asks, and with what.
pub struct Claimant<'a> {
    /// The worker's identity, unique to a process start.
    pub owner: &'a str,
    /// Nothing else runs beside this operation in the worker.
    pub alone: bool,
    /// Makes the key towards the downstream, asked for only if the record has none and needs one.
    pub downstream_key: &'a dyn Fn() -> DownstreamKey,
}

/// The decision.
#[derive(Debug)]
pub enum Claim {
    /// Make the effect.
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
    predecessor: Predecessor,
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
        State::Held => return Claim::Leave(Leave::Held),
        State::AwaitingApproval | State::Accepted | State::Parked => {
            return Claim::Leave(Leave::Waiting);
        }
        State::Queued | State::RetryScheduled if now < row.due_at => {
            return Claim::Leave(Leave::NotDue);
        }
        State::Queued | State::RetryScheduled | State::Claimed | State::Sent => {}
    }
    if row.leased_at(now) {
        return Claim::Leave(Leave::InFlight);
    }
    let material = match recomputed {
        Recomputed::Invalid => return Claim::Write(Box::new(refuse_arguments(row))),
        Recomputed::Valid(material) => material,
    };
    if row.fingerprint.as_ref().is_some_and(|stored| *stored != material.fingerprint) {
        return Claim::Write(Box::new(park(row, Reason::FingerprintDisagreement)));
    }
    if predecessor == Predecessor::Unfinished {
        return Claim::Write(Box::new(wait_for_order(row, material)));
    }
    // Before the lost claims are judged: what must not be sent again needs no worker to itself, and
    // an open outcome is called unknown, not parked.
    if let Some(reason) = blind_resend(row, now, rule) {
        return Claim::Write(Box::new(lose_track(row, reason)));
    }
    let lost_claims = lost_claims(row);
    if lost_claims >= LOST_CLAIMS_PARKED {
        return Claim::Write(Box::new(park(row, Reason::WorkerLost)));
    }
    if lost_claims >= LOST_CLAIMS_ALONE && !claimant.alone {
        return Claim::Alone;
    }
    Claim::Run(Box::new(run(row, material, now, rule, claimant)))
}

/// Claims lost in a row, with the one that this delivery found.
fn lost_claims(row: &Operation) -> u32 {
    row.lost_claims.saturating_add(u32::from(row.lease.is_some()))
}

/// Why an operation that may have been sent must not be sent again, if it must not.
fn blind_resend(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Option<Reason> {
    if !row.may_have_been_sent() || rule.resend == Resend::InTransaction {
        return None;
    }
    if row.attempts >= rule.attempts {
        return Some(Reason::AttemptsExhausted);
    }
    if rule.may_resend(row, now) {
        return None;
    }
    Some(if row.reason == Some(Reason::MayHaveBeenSent) {
        Reason::MayHaveBeenSent
    } else if rule.window_end(row).is_some_and(|end| now >= end) {
        Reason::WindowClosed
    } else if row.lease.is_some() {
        Reason::WorkerLost
    } else {
        Reason::NoProof
    })
}

/// Takes the record from whoever had it. The new token fences an owner that lost its lease: only
/// proof is accepted from it now.
fn taken(row: &Operation) -> Step {
    let mut step = Step::from(row);
    if row.lease.is_some() {
        step = step.traced(lease_lost(row));
    }
    step.record.lost_claims = lost_claims(row);
    step.record.token = row.token.next();
    step
}

fn run(
    row: &Operation,
    material: &Material,
    now: Timestamp,
    rule: &AttemptRule,
    claimant: &Claimant<'_>,
) -> Run {
    let fold = rule.resend.marks_in_claim();
    let mut step = identified(taken(row), material)
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
        record.first_sent_at = None;
    } else if record.downstream_key.is_none() {
        record.downstream_key = Some((claimant.downstream_key)());
    }
    let prior = record.first_sent_at;
    let mut ticket = Ticket { token: record.token, prior_first_sent_at: prior, marked: false };
    if fold {
        mark(record, now);
        ticket.marked = true;
        step = step.traced(sent(ticket.is_resend()));
    }
    let window_end = rule.window_end(&step.record).filter(|_| ticket.is_resend());
    Run { step, ticket, send_within: window_end.map(|end| end.since(now)) }
}

/// Marks a claimed record as sent, under its token. `None`: the claim is not this owner's any more,
/// or its lease ran out and another may take it at any moment.
///
/// A record that this owner marked before stays as it is, so that a mark whose commit was not
/// answered may be asked for again.
#[must_use]
pub fn mark_sent(row: &Operation, ticket: &Ticket, now: Timestamp) -> Option<Step> {
    if row.token != ticket.token || !row.leased_at(now) {
        return None;
    }
    match next(row.state, Event::MarkSent) {
        Next::To(_) => {
            let mut step =
                Step::from(row).moved(Event::MarkSent, None).traced(sent(row.may_have_been_sent()));
            step.record.lease = row.lease.clone();
            mark(&mut step.record, now);
            Some(step)
        }
        Next::Stay => Some(Step::from(row)),
        Next::Conflict | Next::Refused(_) => None,
    }
}

fn mark(record: &mut Operation, now: Timestamp) {
    record.first_sent_at = record.first_sent_at.or(Some(now));
    record.key_first_used_at = record.key_first_used_at.or(Some(now));
    record.attempts = record.attempts.saturating_add(1);
}

fn sent(again: bool) -> Trace {
    if again { Trace::with("sent", json!({ "again": true })) } else { Trace::new("sent") }
}

fn lease_lost(row: &Operation) -> Trace {
    let owner = row.lease.as_ref().map(|lease| lease.owner.as_str());
    Trace::with("lease_lost", json!({ "owner": owner, "claim_epoch": row.token.0 }))
}

/// Stores what the arguments of an SQL submission are, at its first claim.
fn identified(mut step: Step, material: &Material) -> Step {
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
fn refuse_arguments(row: &Operation) -> Step {
    let reason = Reason::InvalidArguments;
    if row.fingerprint.is_some() {
        park(row, Reason::FingerprintDisagreement)
    } else if row.may_have_been_sent() {
        lose_track(row, reason)
    } else {
        taken(row)
            .moved(Event::Reject, Some(reason))
            .traced(Trace::with("rejected", json!({ "reason": reason.code() })))
    }
}

/// Stays queued, marked as waiting, under the predecessor's row lock: the settle of the predecessor
/// needs that lock and then finds the mark.
fn wait_for_order(row: &Operation, material: &Material) -> Step {
    // A predecessor that was opened again, or contradicted, can come before one that lost its
    // worker: without its dead lease, recovery does not ask for it again and again.
    let was_claimed = row.lease.is_some() || matches!(row.state, State::Claimed | State::Sent);
    let step = if was_claimed { taken(row).moved(Event::Schedule, None) } else { Step::from(row) };
    let mut step = identified(step, material)
        .traced(Trace::with("in_flight", json!({ "reason": Reason::WaitingForOrder.code() })));
    step.record.reason = Some(Reason::WaitingForOrder);
    if let Some(order) = &mut step.record.order {
        order.waiting = true;
    }
    step
}

fn park(row: &Operation, reason: Reason) -> Step {
    taken(row)
        .moved(Event::Park, Some(reason))
        .traced(Trace::with("parked", json!({ "reason": reason.code() })))
}

fn lose_track(row: &Operation, reason: Reason) -> Step {
    taken(row)
        .moved(Event::LoseTrack, Some(reason))
        .traced(Trace::with("unknown", json!({ "reason": reason.code() })))
}
