//! Decides what to do with a delivery, given the operation's locked row.
//!
//! The line that parks a changed payload, the line that stops a second owner and the line that
//! stops a blind second send each stand here once.

use std::time::Duration;

use serde_json::json;

use super::fingerprint::Material;
use super::lifecycle::{Event, State};
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
    /// The key towards the downstream to store if the record has none.
    pub downstream_key: &'a DownstreamKey,
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
    /// The last moment that the downstream's window allows for a first byte, from now.
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
            Self::Replayed => "replayed",
            Self::Unknown => "unknown",
            Self::Verdict => "rejected",
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
        return park(row, Reason::FingerprintDisagreement);
    }
    if predecessor == Predecessor::Unfinished {
        return Claim::Write(Box::new(wait_for_order(row, material)));
    }
    let lost_claims = row.lost_claims.saturating_add(u32::from(row.lease.is_some()));
    if lost_claims >= LOST_CLAIMS_PARKED {
        return park(row, Reason::WorkerLost);
    }
    if lost_claims >= LOST_CLAIMS_ALONE && !claimant.alone {
        return Claim::Alone;
    }
    if row.may_have_been_sent()
        && rule.resend != Resend::InTransaction
        && let Some(reason) = blind_resend(row, now, rule)
    {
        return lose_track(row, reason);
    }
    Claim::Run(Box::new(run(row, material, lost_claims, now, rule, claimant)))
}

/// Why an operation that may have been sent must not be sent again, if it must not.
fn blind_resend(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Option<Reason> {
    if row.attempts >= rule.attempts {
        return Some(Reason::AttemptsExhausted);
    }
    if rule.may_resend(row, now) {
        return None;
    }
    match rule.resend {
        Resend::Within(_) => Some(Reason::WindowClosed),
        Resend::Never if row.lease.is_some() => Some(Reason::WorkerLost),
        Resend::Always | Resend::Never | Resend::InTransaction => Some(Reason::NoProof),
    }
}

fn run(
    row: &Operation,
    material: &Material,
    lost_claims: u32,
    now: Timestamp,
    rule: &AttemptRule,
    claimant: &Claimant<'_>,
) -> Run {
    let fold = rule.resend.marks_in_claim();
    let mut step = Step::from(row);
    if row.lease.is_some() {
        step = step.traced(lease_lost(row));
    }
    if row.fingerprint.is_none() {
        step = step.traced(Trace::new("validated"));
    }
    step = step
        .moved(if fold { Event::ClaimAndSend } else { Event::Claim }, None)
        .traced(Trace::new("claimed"));
    let record = &mut step.record;
    store_identity(record, material);
    record.token = row.token.next();
    record.lease = Some(Lease { owner: claimant.owner.to_owned(), until: now.after(rule.lease) });
    record.lost_claims = lost_claims;
    if let Some(order) = &mut record.order {
        order.waiting = false;
    }
    if rule.resend != Resend::InTransaction && record.downstream_key.is_none() {
        record.downstream_key = Some(claimant.downstream_key.clone());
    }
    let mut ticket =
        Ticket { token: record.token, prior_first_sent_at: row.first_sent_at, marked: false };
    if fold {
        mark(record, now);
        ticket.marked = true;
        step = step.traced(sent(row.may_have_been_sent()));
    }
    let send_within = rule.window_end(&step.record).map(|end| end.since(now));
    Run { step, ticket, send_within }
}

/// Marks a claimed record as sent, under its token. `None`: the claim is not this owner's any more.
#[must_use]
pub fn mark_sent(row: &Operation, ticket: &Ticket, now: Timestamp) -> Option<Step> {
    if row.token != ticket.token || row.state != State::Claimed || !row.leased_at(now) {
        return None;
    }
    let lease = row.lease.clone();
    let mut step =
        Step::from(row).moved(Event::MarkSent, None).traced(sent(row.may_have_been_sent()));
    step.record.lease = lease;
    mark(&mut step.record, now);
    Some(step)
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

fn store_identity(record: &mut Operation, material: &Material) {
    if record.fingerprint.is_none() {
        record.fingerprint = Some(material.fingerprint.clone());
        record.digests = Some(json!(material.digests).to_string());
    }
}

/// Arguments that do not fit end the operation if they were never sent; a record that once had a
/// fingerprint, or may have been sent, has changed under us and waits for an operator.
fn refuse_arguments(row: &Operation) -> Step {
    let untouched = row.fingerprint.is_none() && !row.may_have_been_sent();
    let (event, reason, name) = if untouched {
        (Event::Reject, Reason::InvalidArguments, "rejected")
    } else {
        (Event::Park, Reason::FingerprintDisagreement, "parked")
    };
    Step::from(row)
        .moved(event, Some(reason))
        .traced(Trace::with(name, json!({ "reason": reason.code() })))
}

/// Stays queued, marked as waiting, under the predecessor's row lock: the settle of the predecessor
/// needs that lock and then finds the mark.
fn wait_for_order(row: &Operation, material: &Material) -> Step {
    let mut step = Step::from(row)
        .traced(Trace::with("in_flight", json!({ "reason": Reason::WaitingForOrder.code() })));
    store_identity(&mut step.record, material);
    step.record.reason = Some(Reason::WaitingForOrder);
    if let Some(order) = &mut step.record.order {
        order.waiting = true;
    }
    step
}

fn park(row: &Operation, reason: Reason) -> Claim {
    let mut step = Step::from(row);
    if row.lease.is_some() {
        step = step.traced(lease_lost(row));
    }
    step = step
        .moved(Event::Park, Some(reason))
        .traced(Trace::with("parked", json!({ "reason": reason.code() })));
    step.record.token = row.token.next();
    Claim::Write(Box::new(step))
}

fn lose_track(row: &Operation, reason: Reason) -> Claim {
    let mut step = Step::from(row);
    if row.lease.is_some() {
        step = step.traced(lease_lost(row));
    }
    step = step
        .moved(Event::LoseTrack, Some(reason))
        .traced(Trace::with("unknown", json!({ "reason": reason.code() })));
    // Fences the owner that lost its lease: only proof is accepted from it now.
    step.record.token = row.token.next();
    Claim::Write(Box::new(step))
}
