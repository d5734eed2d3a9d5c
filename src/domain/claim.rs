//! Decides what to do with a delivery, given the operation's locked row.
//!
//! The line that parks a changed payload, the line that stops a second owner and the line that
//! stops a blind second send each stand here once.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::attempt::Denial;
use super::fingerprint::{Material, twin_digest};
use super::lifecycle::{Event, Next, State, next};
use super::operation::{DownstreamKey, Lease, Operation, Timestamp, Token, Twin};
use super::permission::Permission;
use super::reason::Reason;
use super::recovery::{self, Way};
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

/// What the datastore found of an operation's twins: those of the same tenant, environment, tool and
/// material arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twins {
    /// None stands before it, or the tool holds none.
    Free,
    /// This one, older or here first, is unfinished.
    Behind(Uuid),
    /// This one has been applied.
    Applied(Uuid),
}

/// What stands round a record, read under its row lock.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// Of its ordering key.
    pub predecessor: Predecessor,
    /// Of its twins.
    pub twins: Twins,
    /// Of grants and approvals.
    pub permission: Permission,
    /// How long a request for approval waits.
    pub approval_wait: Duration,
}

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
        return Claim::Write(Box::new(wait_for_order(row, material, rule)));
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

/// Holds a first send back behind its twin, up to [`TWIN_WAIT`]; nothing was sent, so that the same
/// submission may come again and say that a second effect is meant.
fn twin(
    row: &Operation,
    material: &Material,
    twins: Twins,
    now: Timestamp,
    rule: &AttemptRule,
) -> Option<Claim> {
    let released = row.twin.as_ref().is_some_and(|twin| twin.released);
    if row.may_have_been_sent() || released {
        return None;
    }
    let (other, over) = match twins {
        Twins::Free => return None,
        Twins::Behind(other) => (other, row.state == State::Held && now >= row.due_at),
        Twins::Applied(other) => (other, true),
    };
    if over {
        let step = rejected(identified(taken(row, rule), material, rule), Reason::SuspectedTwin);
        return Some(Claim::Write(Box::new(behind(step, other))));
    }
    if row.state == State::Held {
        let same = row.twin.as_ref().and_then(|twin| twin.held_behind) == Some(other);
        let moved = || Claim::Write(Box::new(behind(Step::from(row), other)));
        return Some(if same { Claim::Leave(Leave::Held) } else { moved() });
    }
    let held = Trace::with("held", json!({ "older_operation_id": other }));
    let mut step = identified(taken(row, rule), material, rule)
        .moved(Event::Hold, Some(Reason::SuspectedTwin))
        .traced(held);
    step.record.due_at = now.after(TWIN_WAIT);
    Some(Claim::Write(Box::new(behind(step, other))))
}

/// How long an operation is held behind a twin that does not end.
pub const TWIN_WAIT: Duration = Duration::from_hours(24);

fn behind(mut step: Step, other: Uuid) -> Step {
    if let Some(twin) = &mut step.record.twin {
        twin.held_behind = Some(other);
    }
    // The next wake-up is for another one's end.
    step.record.sweeps = 0;
    step
}

/// What is written instead of a send that is not allowed. An operation that may have been sent is
/// never called rejected for it: nothing is sent, and finding out goes on.
fn forbidden(
    row: &Operation,
    material: &Material,
    around: &Around,
    now: Timestamp,
    rule: &AttemptRule,
) -> Option<Step> {
    let reason = match around.permission {
        Permission::Allowed => return None,
        Permission::NeedsApproval => Reason::AwaitingApproval,
        Permission::Denied(denial) => denial.reason(),
    };
    if row.may_have_been_sent() {
        return Some(lose_track(row, reason, now, rule));
    }
    if let Permission::Denied(_) = around.permission {
        return Some(rejected(identified(taken(row, rule), material, rule), reason));
    }
    let mut step = identified(going_on(row, rule), material, rule)
        .moved(Event::AskApproval, Some(reason))
        .traced(Trace::with("in_flight", json!({ "reason": reason.code() })));
    step.record.due_at = now.after(around.approval_wait);
    step.asks_approval = true;
    Some(step)
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

/// Asks about an operation that may have been sent, under a claim of its own: what is found out
/// may lead to another send.
fn look_up(
    row: &Operation,
    material: &Material,
    now: Timestamp,
    rule: &AttemptRule,
    claimant: &Claimant<'_>,
) -> Run {
    let mut step = identified(going_on(row, rule), material, rule)
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
    let mut step = identified(going_on(row, rule), material, rule)
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

/// What becomes of a mark that is asked for.
#[derive(Debug)]
pub enum Marking {
    /// Write this; then the first byte may go.
    Write(Box<Step>),
    /// The claim is not this owner's any more, or its lease ran out and another may take it at any
    /// moment.
    Lost,
    /// The database says now that it may not be sent.
    Forbidden(Denial),
}

/// Marks a claimed record as sent, under its token, if the grants and approvals of this very
/// transaction still allow it.
///
/// A record that this owner marked before stays as it is, so that a mark whose commit was not
/// answered may be asked for again.
#[must_use]
pub fn mark_sent(
    row: &Operation,
    ticket: &Ticket,
    permission: Permission,
    now: Timestamp,
) -> Marking {
    if row.token != ticket.token || !row.leased_at(now) {
        return Marking::Lost;
    }
    match permission {
        Permission::Allowed => {}
        // It was allowed at the claim: the approval is not there any more.
        Permission::NeedsApproval => return Marking::Forbidden(Denial::ApprovalWithdrawn),
        Permission::Denied(denial) => return Marking::Forbidden(denial),
    }
    match next(row.state, Event::MarkSent) {
        Next::To(_) => {
            let mut step =
                Step::from(row).moved(Event::MarkSent, None).traced(sent(row.may_have_been_sent()));
            step.record.lease = row.lease.clone();
            mark(&mut step.record, now);
            Marking::Write(Box::new(step))
        }
        Next::Stay => Marking::Write(Box::new(Step::from(row))),
        Next::Conflict | Next::Refused(_) => Marking::Lost,
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

/// Stays queued, marked as waiting, under the predecessor's row lock: the settle of the predecessor
/// needs that lock and then finds the mark.
fn wait_for_order(row: &Operation, material: &Material, rule: &AttemptRule) -> Step {
    // A predecessor that was opened again, or contradicted, can come before one that lost its
    // worker: without its dead lease, recovery does not ask for it again and again.
    let was_claimed = row.lease.is_some() || matches!(row.state, State::Claimed | State::Sent);
    let step =
        if was_claimed { taken(row, rule).moved(Event::Schedule, None) } else { Step::from(row) };
    let mut step = identified(step, material, rule)
        .traced(Trace::with("in_flight", json!({ "reason": Reason::WaitingForOrder.code() })));
    step.record.reason = Some(recovery::kept_or(row, Reason::WaitingForOrder));
    if let Some(order) = &mut step.record.order {
        order.waiting = true;
    }
    step
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
