//! What operators may do to a record: retry, reopen, resolve, release.
//!
//! A verb that does not fit answers why, in words for a person, and changes nothing.

use std::time::Duration;

use serde_json::json;

use super::attempt::Receipt;
use super::lifecycle::{Event, Next, State, next};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
use super::step::{Step, Trace};

/// How long after its lease a claim's owner may, at the outside, still be sending: a process frozen
/// right before its first byte. Must outlast any pause that the deployment's machines can have.
pub const STALL_MARGIN: Duration = Duration::from_secs(300);

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

/// Makes due now what is scheduled, queued or parked.
///
/// # Errors
/// Says why this record cannot be retried; nothing changes.
pub fn retry(row: &Operation, now: Timestamp, by: &Person) -> Result<Step, &'static str> {
    if row.leased_at(now) {
        return Err("a worker owns it; wait for its lease");
    }
    let mut step = act(row, Event::OperatorRetry, "retry", by)?;
    step.record.lost_claims = 0;
    Ok(step.published(now))
}

/// Opens a failed operation again, if its record proves that nothing was done.
///
/// # Errors
/// Says why this record cannot be opened again; nothing changes.
pub fn reopen(row: &Operation, now: Timestamp, by: &Person) -> Result<Step, &'static str> {
    if row.may_have_been_sent() {
        return Err("an effect may exist; use resolve");
    }
    let mut step = act(row, Event::OperatorReopen, "reopen", by)?;
    let record = &mut step.record;
    record.attempts = 0;
    record.deferrals = 0;
    record.lost_claims = 0;
    record.opened_at = now;
    Ok(step.published(now))
}

/// Writes down what a person found out.
///
/// # Errors
/// Says why this finding does not fit the record, or until when to wait; nothing changes.
pub fn resolve(
    row: &Operation,
    finding: &Finding,
    now: Timestamp,
    by: &Person,
) -> Result<Step, &'static str> {
    match finding {
        Finding::Applied(receipt) => resolve_applied(row, receipt, by),
        Finding::NotApplied => {
            if now < earlier_attempt_over(row) {
                return Err(
                    "an earlier attempt may still be under way; wait for lease end and stall margin",
                );
            }
            let mut step = act(row, Event::ResolveNotApplied, "not_applied", by)?;
            step.record.reason = Some(Reason::ResolvedNotApplied);
            step.record.first_sent_at = None;
            step.record.token = row.token.next();
            Ok(step)
        }
        Finding::Compensated => {
            let mut step = act(row, Event::ResolveCompensated, "compensated", by)?;
            step.record.reason = Some(Reason::Compensated);
            step.record.token = row.token.next();
            Ok(step)
        }
    }
}

/// When the last attempt whose end nobody recorded is certainly over.
fn earlier_attempt_over(row: &Operation) -> Timestamp {
    match (&row.lease, row.reason) {
        (Some(lease), _) => lease.until.after(STALL_MARGIN),
        // Its worker's lease ran out before the record was written.
        (None, Some(Reason::WorkerLost)) => row.updated_at.after(STALL_MARGIN),
        (None, _) => row.updated_at,
    }
}

fn resolve_applied(row: &Operation, receipt: &Receipt, by: &Person) -> Result<Step, &'static str> {
    if row.state == State::Applied {
        return Err("already applied");
    }
    let conflict = matches!(next(row.state, Event::ResolveApplied), Next::Conflict);
    let mut step = act(row, Event::ResolveApplied, "applied", by)?;
    if conflict {
        step = step.traced(Trace::with("conflict", json!({ "receipt": receipt.as_str() })));
    }
    step.record.effect_reference = Some(receipt.as_str().to_owned());
    step.record.token = row.token.next();
    Ok(step)
}

/// Lets a held operation go on, or those behind a stuck head of an ordering key pass it.
///
/// # Errors
/// Says why there is nothing to release; nothing changes.
pub fn release(row: &Operation, now: Timestamp, by: &Person) -> Result<Step, &'static str> {
    if row.state == State::Held {
        return Ok(act(row, Event::Release, "release", by)?.published(now));
    }
    let mut step = Step::from(row).traced(resolved("release", by));
    match &mut step.record.order {
        Some(order) if !row.state.is_finished() && !order.released => order.released = true,
        Some(_) | None => return Err("not held, and nothing waits behind it"),
    }
    step.frees_order = true;
    Ok(step)
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
