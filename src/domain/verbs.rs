//! What operators may do to a record: retry, reopen, resolve, release, approve, deny, withdraw.
//!
//! A verb that does not fit answers why, in words for a person, and changes nothing.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::attempt::Receipt;
use super::lifecycle::{Event, Next, State, next};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
use super::recovery::stops_sending;
use super::step::{Step, Trace};

/// Why a finding that ends the record is refused before [`earlier_attempts_over`].
pub const UNDER_WAY: &str = "an earlier attempt may still be under way";

/// Who acts, and why. Both are kept in the trace.
#[derive(Debug, Clone)]
pub struct Person {
    /// A named person.
    pub name: String,
    /// Their reason.
    pub reason: String,
}

/// What a person found out about the effect.
#[derive(Debug, Clone)]
pub enum Finding {
    /// The effect exists; this is the downstream's reference.
    Applied(Receipt),
    /// There was no effect.
    NotApplied,
    /// There was an effect, and it was undone.
    Compensated,
}

/// Makes due now what is scheduled, queued or parked, a job's poll and, where `can_look_up`, the
/// look-up of an unknown one. Never sends what may have been sent: recovery decides as ever.
///
/// # Errors
/// Says why this record cannot be retried; nothing changes.
pub fn retry(
    row: &Operation,
    can_look_up: bool,
    now: Timestamp,
    by: &Person,
) -> Result<Step, &'static str> {
    if row.leased_at(now) {
        return Err("a worker owns it; wait for its lease");
    }
    // Where the effect is known and only its postcondition is in doubt, that can be asked always.
    let in_doubt = row.reason == Some(Reason::PostconditionUnreachable);
    if row.state == State::Unknown && (can_look_up || in_doubt) {
        let mut step = Step::from(row).traced(resolved("look_up", by));
        step.record.lookups = 0;
        step.record.next_lookup_at = Some(now);
        return Ok(step);
    }
    let mut step = act(row, Event::OperatorRetry, "retry", by)?;
    step.record.lost_claims = 0;
    step.record.deferrals = 0;
    step.record.lookups = 0;
    // A retry is no licence to send what may only be asked about.
    let kept = row.state == State::Accepted || row.reason.is_some_and(stops_sending);
    step.record.reason = row.reason.filter(|_| kept);
    Ok(step.published(now))
}

/// Opens a failed operation again, if its record proves that nothing was done.
///
/// # Errors
/// Says why this record cannot be opened again; nothing changes.
pub fn reopen(row: &Operation, now: Timestamp, by: &Person) -> Result<Step, &'static str> {
    // A compensated effect existed: a second one takes a new key and a new decision.
    let effect = row.effect_reference.is_some() || row.reason == Some(Reason::Compensated);
    if effect || row.may_have_been_sent() {
        return Err("an effect exists or may exist; use resolve, or a new operation");
    }
    let mut step = act(row, Event::OperatorReopen, "reopen", by)?;
    let record = &mut step.record;
    record.attempts = 0;
    record.deferrals = 0;
    record.lost_claims = 0;
    record.lookups = 0;
    record.job = None;
    // What let it go belongs to its former life; now it is younger than others of its twins.
    if let Some(twin) = &mut record.twin {
        twin.held_behind = None;
        twin.released = false;
    }
    record.opened_at = now;
    // Under its old number it would run beside those that went ahead meanwhile.
    step.renumbered = step.record.order.is_some();
    Ok(step.published(now))
}

/// Writes down what a person found out.
///
/// # Errors
/// Says why this finding does not fit the record, or until when to wait; nothing changes.
pub fn resolve(
    row: &Operation,
    finding: &Finding,
    stall_margin: Duration,
    now: Timestamp,
    by: &Person,
) -> Result<Step, &'static str> {
    let over = earlier_attempts_over(row, stall_margin);
    match finding {
        Finding::Applied(receipt) => resolve_applied(row, receipt, by),
        Finding::NotApplied => {
            let mut step = ended(row, Event::ResolveNotApplied, "not_applied", over, now, by)?;
            step.record.reason = Some(Reason::ResolvedNotApplied);
            step.record.nothing_was_done();
            // A receipt that this finding contradicts stays in the trace.
            step.record.effect_reference = None;
            Ok(step)
        }
        Finding::Compensated => {
            if row.state.is_pending() && !row.may_have_been_sent() {
                return Err("was never sent; there is nothing to compensate");
            }
            let mut step = ended(row, Event::ResolveCompensated, "compensated", over, now, by)?;
            step.record.reason = Some(Reason::Compensated);
            Ok(step)
        }
    }
}

/// Ends the record without an effect, once no earlier attempt can still make one.
fn ended(
    row: &Operation,
    event: Event,
    verb: &'static str,
    over: Timestamp,
    now: Timestamp,
    by: &Person,
) -> Result<Step, &'static str> {
    let mut step = act(row, event, verb, by)?;
    if now < over {
        return Err(UNDER_WAY);
    }
    step.record.token = row.token.next();
    Ok(step)
}

/// When no attempt so far can still make an effect, not even one frozen right before its first
/// byte. `stall_margin` is how long such a one may last.
#[must_use]
pub fn earlier_attempts_over(row: &Operation, stall_margin: Duration) -> Timestamp {
    let running = row.lease.as_ref().map(|lease| lease.until.after(stall_margin));
    match (running, row.attempts_over_at) {
        (Some(running), known) => known.map_or(running, |known| known.max(running)),
        (None, Some(known)) => known,
        (None, None) if !row.may_have_been_sent() => row.updated_at,
        // Marked by somebody who did not know (a requeue, a restore): its last change stands for it.
        (None, None) => row.updated_at.after(stall_margin),
    }
}

fn resolve_applied(row: &Operation, receipt: &Receipt, by: &Person) -> Result<Step, &'static str> {
    if row.state == State::Applied {
        return Err("already applied");
    }
    let receipt = receipt.as_str();
    let conflict = next(row.state, Event::ResolveApplied) == Next::Conflict;
    let mut step = act(row, Event::ResolveApplied, "applied", by)?;
    step.record.token = row.token.next();
    match row.effect_reference.as_deref() {
        Some(stored) if stored == receipt => {}
        // The verdict's own receipt stays in the record; the person's is in the trace.
        Some(_) if conflict => step = step.traced(other_receipt(receipt)),
        // The person has weighed two receipts; the one that they set aside stays in the trace.
        Some(stored) => {
            step = step.traced(other_receipt(stored));
            step.record.effect_reference = Some(receipt.to_owned());
        }
        None => {
            if conflict {
                step = step.traced(other_receipt(receipt));
            }
            step.record.effect_reference = Some(receipt.to_owned());
        }
    }
    Ok(step)
}

fn other_receipt(receipt: &str) -> Trace {
    Trace::with("conflict", json!({ "receipt": receipt }))
}

/// Lets a held operation go on, or those behind a stuck head of an ordering key pass it.
///
/// # Errors
/// Says why there is nothing to release; nothing changes.
pub fn release(row: &Operation, now: Timestamp, by: &Person) -> Result<Step, &'static str> {
    if row.state == State::Held {
        let mut step = act(row, Event::Release, "release", by)?.published(now);
        if let Some(twin) = &mut step.record.twin {
            twin.released = true;
        }
        return Ok(step);
    }
    if row.leased_at(now) {
        return Err("a worker owns it; wait for its lease");
    }
    let mut step = Step::from(row).traced(resolved("release", by));
    match &mut step.record.order {
        Some(order) if !row.state.is_finished() && !order.released => order.released = true,
        Some(_) | None => return Err("not held, and nothing waits behind it"),
    }
    step.frees_order = true;
    Ok(step)
}

/// A person's answer to a request for approval. Who may give it is the caller's part
/// ([`may_answer`]); here the record goes on, or ends.
///
/// # Errors
/// Says why this record waits for no approval; nothing changes.
pub fn answer(
    row: &Operation,
    given: Answer,
    now: Timestamp,
    by: &Person,
) -> Result<Step, &'static str> {
    if row.state == State::AwaitingApproval && now >= row.due_at {
        return Err("the time to answer is over; it ends rejected and may be submitted again");
    }
    match given {
        Answer::Approve => Ok(act(row, Event::Approve, "approve", by)?.published(now)),
        Answer::Deny => {
            if row.state != State::AwaitingApproval {
                return Err("waits for no approval; an approval that was given can be withdrawn");
            }
            // Marked as perhaps sent by a restore: then it is never called rejected.
            let sent = row.may_have_been_sent();
            let event = if sent { Event::LoseTrack } else { Event::Reject };
            let mut step = act(row, event, "deny", by)?;
            step.record.reason = Some(Reason::ApprovalDenied);
            Ok(step)
        }
    }
}

/// Takes an approval back. What nobody has sent and nobody owns ends at once; a worker that owns it is
/// stopped by its own look at the approval, in the transaction that marks it as sent. Nothing more is
/// sent of what may have been sent already.
///
/// # Errors
/// Says why there is nothing to withdraw; nothing changes.
pub fn withdraw(row: &Operation, by: &Person) -> Result<Step, &'static str> {
    match row.state {
        State::Applied => return Err("already applied; no approval takes an effect back"),
        State::Rejected | State::FailedPermanent | State::Expired => {
            return Err("already ended; nothing more is sent");
        }
        State::AwaitingApproval => return Err("no approval was given yet; it can be denied"),
        State::Queued
        | State::Held
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled
        | State::Parked
        | State::Unknown => {}
    }
    let step = Step::from(row).traced(resolved("withdraw", by));
    let waits = matches!(row.state, State::Queued | State::Held | State::RetryScheduled);
    if !waits || row.may_have_been_sent() {
        return Ok(step);
    }
    let mut step = step.moved(Event::Reject, Some(Reason::ApprovalWithdrawn));
    step.record.token = row.token.next();
    Ok(step)
}

/// What a person says to a request for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Yes, to exactly the request that was shown.
    Approve,
    /// No.
    Deny,
}

/// Whether this person may answer for this request: not the one who submitted it, and only for the
/// fingerprint that was shown.
///
/// # Errors
/// Says what stands in the way; nothing changes.
pub fn may_answer(row: &Operation, shown: &str, by: &Person) -> Result<(), &'static str> {
    if row.actor.as_deref() == Some(by.name.as_str()) {
        return Err("the submitting actor cannot answer for its own request");
    }
    match &row.fingerprint {
        Some(stored) if stored.as_str() == shown => Ok(()),
        Some(_) => Err("the fingerprint is another one; look at the request again"),
        None => Err("has no fingerprint yet; wait for its first claim"),
    }
}

fn act(
    row: &Operation,
    event: Event,
    verb: &'static str,
    by: &Person,
) -> Result<Step, &'static str> {
    match next(row.state, event) {
        Next::Refused(why) => Err(why),
        Next::Stay => Err("the record already says so"),
        Next::To(_) | Next::Conflict => {
            Ok(Step::from(row).moved(event, None).traced(resolved(verb, by)))
        }
    }
}

fn resolved(verb: &'static str, by: &Person) -> Trace {
    Trace::with("resolved", json!({ "verb": verb, "by": by.name, "why": by.reason }))
}
