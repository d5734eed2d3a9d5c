//! Decides what an attempt's result makes of the record, given its locked row.
//!
//! Proof of an effect is accepted from anyone. Everything else, retries, refusals and "nothing
//! happened", only from the owner of the claim, by its fencing token.

mod jobs;
mod owned;
mod proof;
#[cfg(test)]
mod tests;

use serde_json::json;

use super::attempt::{Effect, Learned, NotSent};
use super::claim::{Purpose, Ticket};
use super::evidence::Evidence;
use super::lifecycle::{Event, State};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
use super::recovery::{self, Asked};
use super::rule::{AttemptRule, Resend};
use super::step::{Step, Trace};
use jobs::{accept, job_failed};
use owned::Owned;
use proof::{applied, proof};
pub(super) use proof::{prove, settles_nothing, unconfirmed};

/// The decision.
#[derive(Debug)]
pub enum Settle {
    /// Write this.
    Write(Box<Step>),
    /// The record already holds this very receipt, or what this attempt came to: its settle was
    /// written and the answer to the commit was lost.
    Acknowledged,
    /// The claim is not this owner's any more, and it has no proof: nothing is written but a trace.
    LostLease,
}

/// Decides what the result `learned` of the attempt `ticket` makes of `row`.
///
/// `jitter` is a sample from 0 to 1 for the next wait.
#[must_use]
pub fn decide(
    row: &Operation,
    ticket: &Ticket,
    learned: &Learned,
    now: Timestamp,
    rule: &AttemptRule,
    jitter: f64,
) -> Settle {
    if let Some(effect) = proof(ticket, learned, rule) {
        return prove(row, Some(ticket), effect);
    }
    let transactional = rule.resend == Resend::InTransaction;
    match learned {
        // What a tool says of an effect in a transaction that was rolled back is worth nothing.
        Learned::Unconfirmed(..) | Learned::Accepted(_) if transactional => {}
        Learned::Unconfirmed(effect, why) => return unconfirmed(row, effect, *why),
        Learned::Accepted(job) => return accept(row, ticket, job, now, rule),
        Learned::NotSent(_)
        | Learned::NotNow { .. }
        | Learned::Denied
        | Learned::Refused
        | Learned::Applied(_)
        | Learned::Already(_)
        | Learned::Ambiguous(_)
        | Learned::Panicked => {}
    }
    if row.token != ticket.token {
        return Settle::LostLease;
    }
    if !matches!(row.state, State::Claimed | State::Sent) {
        return Settle::Acknowledged;
    }
    let owned = Owned { row, ticket, now, rule, jitter };
    write(match learned {
        Learned::NotSent(NotSent::Unbuildable) => owned.unbuildable(),
        Learned::NotSent(NotSent::Draining) => owned.give_back(),
        Learned::NotSent(NotSent::Forbidden(denial)) => owned.forbid(denial.reason()),
        Learned::NotSent(why @ NotSent::PolicyUnreachable) => {
            owned.defer(Reason::PolicyUnreachable, why.code(), None)
        }
        Learned::NotSent(why @ NotSent::PreconditionUnreachable) => {
            owned.defer(Reason::PreconditionUnreachable, why.code(), None)
        }
        Learned::NotSent(why) => owned.defer(Reason::NotSent, why.code(), None),
        Learned::NotNow { retry_after } => owned.defer(Reason::NotNow, "not_now", *retry_after),
        Learned::Denied => owned.defer(Reason::DownstreamDenied, "downstream_denied", None),
        Learned::Refused => owned.refuse(),
        Learned::Ambiguous(why) => owned.recover_later(*why),
        Learned::Applied(_)
        | Learned::Already(_)
        | Learned::Unconfirmed(..)
        | Learned::Accepted(_) => owned.not_ours(),
        Learned::Panicked => owned.panicked(),
    })
}

/// Decides what the answer to a question makes of `row`: a look-up under the claim of `ticket`, or a
/// poll of its provider's job, which needs no claim.
#[must_use]
pub fn answered(
    row: &Operation,
    ticket: &Ticket,
    purpose: Purpose,
    evidence: &Evidence,
    now: Timestamp,
    rule: &AttemptRule,
    jitter: f64,
) -> Settle {
    match evidence {
        Evidence::Found(effect) => return prove(row, None, effect),
        Evidence::Unconfirmed(effect, why) => return unconfirmed(row, effect, *why),
        Evidence::Absent | Evidence::JobFailed | Evidence::JobRuns | Evidence::CannotTell(_) => {}
    }
    if row.token != ticket.token {
        // A poll has no lease that could be lost: the job's end was told by another one.
        return if purpose == Purpose::Poll { Settle::Acknowledged } else { Settle::LostLease };
    }
    match (purpose, row.state) {
        (Purpose::LookUp, State::Claimed) => {
            let asked = Asked { at: ticket.at, jitter };
            write(recovery::looked_up(row, evidence, asked, now, rule))
        }
        (Purpose::Poll, State::Accepted) if *evidence == Evidence::JobFailed => {
            write(job_failed(row, now, rule))
        }
        // The next poll is planned already; whoever moved the record meanwhile knew more.
        (Purpose::Poll | Purpose::LookUp | Purpose::Send, _) => Settle::Acknowledged,
    }
}

/// Settles `row` with evidence that cannot be written as it is (a row that the database keeps
/// refusing): unknown, so that its neighbours do not notice and nothing is called done. `told` keeps
/// the evidence in the trace, where a person finds it; nobody is asked meanwhile, since the same
/// answer would be refused again.
#[must_use]
pub fn unstorable(row: &Operation, told: Option<Trace>) -> Step {
    let mut step = Step::from(row).moved(Event::LoseTrack, Some(Reason::StoreFailed));
    step.trace.extend(told);
    step = step.traced(Trace::with("unknown", json!({ "reason": Reason::StoreFailed.code() })));
    step.record.token = row.token.next();
    if step.record.state == State::Unknown {
        step.record.reason = Some(Reason::StoreFailed);
        step.record.next_lookup_at = None;
    }
    // What this attempt came to is lost, and when it ended with it: the record's last change stands
    // for that, not the end of an earlier one.
    step.record.attempts_over_at = None;
    step
}

/// What an attempt proves, as a row of the trace; `None`: it proves nothing.
#[must_use]
pub fn told_by_attempt(learned: &Learned) -> Option<Trace> {
    match learned {
        Learned::Applied(effect) | Learned::Already(effect) | Learned::Unconfirmed(effect, _) => {
            Some(receipt_told(effect))
        }
        Learned::Accepted(job) => Some(Trace::with("accepted", json!({ "job": job.as_str() }))),
        Learned::NotSent(_)
        | Learned::NotNow { .. }
        | Learned::Denied
        | Learned::Refused
        | Learned::Ambiguous(_)
        | Learned::Panicked => None,
    }
}

/// What an answer proves, likewise.
#[must_use]
pub fn told_by_answer(evidence: &Evidence) -> Option<Trace> {
    match evidence {
        Evidence::Found(effect) | Evidence::Unconfirmed(effect, _) => Some(receipt_told(effect)),
        Evidence::Absent | Evidence::JobFailed | Evidence::JobRuns | Evidence::CannotTell(_) => {
            None
        }
    }
}

fn receipt_told(effect: &Effect) -> Trace {
    Trace::with("committed", json!({ "receipt": effect.receipt.as_str() }))
}

/// Settles a transactional tool's operation: its effect is in the very transaction that writes this.
/// `row` is read at the beginning of that transaction, before the effect runs, under a lock that
/// keeps the claim from changing hands until the commit. `None`: no effect, roll back.
#[must_use]
pub fn commit(row: &Operation, ticket: &Ticket, effect: &Effect, now: Timestamp) -> Option<Step> {
    let owner = row.token == ticket.token && row.state == State::Claimed && row.leased_at(now);
    owner.then(|| applied(row, effect).traced(Trace::new("settled")))
}

fn fail(step: Step, reason: Reason) -> Step {
    let ended = json!({ "status": "failed_permanent", "reason": reason.code() });
    step.moved(Event::Fail, Some(reason)).traced(Trace::with("settled", ended))
}

fn write(step: Step) -> Settle {
    Settle::Write(Box::new(step))
}
