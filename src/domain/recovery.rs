//! Decides how an operation that may have been sent is found out about, and what was found out.
//!
//! An absence proves something only if no earlier attempt can still make the effect, and if an
//! effect that was made would be visible by now. What a look-up found out about a *pending* record
//! may lead to another send. An *unknown* record has been put before people: a look-up may end it,
//! never send it (ADR 0014).

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::attempt::Ambiguity;
use super::contract::AbsentRule;
use super::evidence::Evidence;
use super::lifecycle::{Event, State};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
use super::retry;
use super::rule::{AttemptRule, LookupRule, Resend};
use super::settle::{Settle, prove, settles_nothing, unconfirmed};
use super::step::{Step, Trace};

/// What recovery does next with an operation that may have been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Send again: it does no harm.
    Send,
    /// Ask the downstream.
    LookUp,
    /// Nothing here can find out: unknown, for this reason.
    Stop(Reason),
}

/// The next step of recovery for `row`, whose first send is unproved.
#[must_use]
pub fn way(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Way {
    let stopped = row.reason.filter(|reason| stops_sending(*reason));
    let exhausted = exhausted(row, rule);
    if stopped.is_none() && !exhausted && rule.may_resend(row, now) {
        return Way::Send;
    }
    if rule.can_look_up(row) && row.lookups < rule.attempts {
        return Way::LookUp;
    }
    Way::Stop(if let Some(reason) = stopped {
        reason
    } else if exhausted {
        Reason::AttemptsExhausted
    } else if row.reason == Some(Reason::MayHaveBeenSent) {
        Reason::MayHaveBeenSent
    } else if rule.window_end(row).is_some_and(|end| now >= end) {
        Reason::WindowClosed
    } else if row.lease.is_some() {
        Reason::WorkerLost
    } else {
        Reason::NoProof
    })
}

/// Reasons of a pending record that say: not sent again, only asked about. Another send would be
/// refused again; or look like proof, where the first answer was *already done*; or go on for ever,
/// where the time to give up has passed. Whatever writes a reason over such a record keeps these.
#[must_use]
pub(super) fn stops_sending(reason: Reason) -> bool {
    [Reason::RefusedAfterUnproved, Reason::NoProof, Reason::AttemptsExhausted].contains(&reason)
}

/// The reason to write over that of `row` where `reason` says less: see [`stops_sending`].
#[must_use]
pub(super) fn kept_or(row: &Operation, reason: Reason) -> Reason {
    row.reason.filter(|kept| stops_sending(*kept)).unwrap_or(reason)
}

fn exhausted(row: &Operation, rule: &AttemptRule) -> bool {
    row.attempts >= rule.attempts || row.reason == Some(Reason::AttemptsExhausted)
}

/// Where a look-up's answer came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// When the question was taken up, by the database's clock: nothing that happened later is in
    /// the answer.
    pub at: Timestamp,
    /// A sample from 0 to 1 for the next wait.
    pub jitter: f64,
}

/// Decides what a look-up makes of the pending `row`, whose owner still holds the claim.
pub(super) fn looked_up(
    row: &Operation,
    evidence: &Evidence,
    asked: Asked,
    now: Timestamp,
    rule: &AttemptRule,
) -> Step {
    let mut step = Step::from(row);
    step.record.lost_claims = 0;
    let reason = row.reason.unwrap_or(Reason::Ambiguous);
    match meaning(row, evidence, asked.at, rule) {
        Meaning::ProvedAbsent => absent(step, now, rule),
        Meaning::TooEarly(over) => {
            let due = over.max(now.after(retry::delay(rule, 1, asked.jitter)));
            again(step, reason, "absent_too_early", due)
        }
        Meaning::Nothing(code) => {
            step.record.lookups = step.record.lookups.saturating_add(1);
            let due = now.after(retry::delay(rule, step.record.lookups, asked.jitter));
            if step.record.lookups >= rule.attempts {
                return lose_track(step, kept_or(row, Reason::NoProof), due, rule);
            }
            again(step, reason, code, due)
        }
    }
}

/// Decides what a look-up makes of an unknown `row`. Role maintain asks, and owns no claim.
///
/// `give_up` after it became unknown the asking ends: a person is the last to ask.
#[must_use]
pub fn reconcile(
    row: &Operation,
    evidence: &Evidence,
    asked: Asked,
    now: Timestamp,
    rule: &AttemptRule,
) -> Settle {
    let settled = match evidence {
        Evidence::Found(effect) => prove(row, None, effect),
        Evidence::Unconfirmed(effect, why) => unconfirmed(row, effect, *why),
        Evidence::Absent | Evidence::JobFailed | Evidence::JobRuns | Evidence::CannotTell(_) => {
            Settle::Acknowledged
        }
    };
    if row.state != State::Unknown || !matches!(settled, Settle::Acknowledged) {
        return settled;
    }
    let mut step = Step::from(row);
    // This very write moves the record's last change.
    step.record.may_act_until(attempts_over(row, rule));
    let failed =
        row.job.as_ref().filter(|_| *evidence == Evidence::JobFailed && !contradicted(row));
    match failed {
        Some(job) if job.alone => return write(ended(step, Reason::JobFailed, "job_failed")),
        Some(_) => step = without_job(step),
        None => {}
    }
    let next = match meaning(row, evidence, asked.at, rule) {
        // A person weighs it: nothing that is asked takes it away.
        _ if row.effect_reference.is_some() && row.reason.is_some_and(settles_nothing) => None,
        Meaning::ProvedAbsent if contradicted(row) => None,
        Meaning::ProvedAbsent => {
            return write(match rule.lookup.map(|lookup| lookup.when_absent) {
                Some(AbsentRule::Operator) | None => for_a_person(step),
                Some(AbsentRule::Resend) => ended(step, after_absence(row), "absent"),
            });
        }
        Meaning::TooEarly(over) => Some(over),
        Meaning::Nothing(_) => Some(now),
    };
    let in_doubt = row.reason == Some(Reason::PostconditionUnreachable);
    let next = next.filter(|_| in_doubt || rule.can_look_up(&step.record));
    step.record.lookups = row.lookups.saturating_add(1);
    let wait = retry::delay(rule, step.record.lookups, asked.jitter);
    let since = row.unresolved_since.unwrap_or(row.opened_at);
    step.record.next_lookup_at =
        next.map(|at| at.max(now.after(wait))).filter(|at| at.since(since) <= rule.give_up);
    if step.record.next_lookup_at.is_none() {
        step = step.traced(Trace::with("unknown", json!({ "lookups": "given_up" })));
    }
    write(step)
}

/// The record when nobody can be asked although a look-up was planned: its contract is another now.
#[must_use]
pub fn not_askable(row: &Operation) -> Step {
    let mut step = Step::from(row);
    step.record.next_lookup_at = None;
    step.traced(Trace::with("unknown", json!({ "lookups": "given_up" })))
}

/// What an answer says about the effect, at the time that it was asked for.
enum Meaning {
    /// There was no effect, and none will come of an attempt so far.
    ProvedAbsent,
    /// It is not there, but may still come, or become visible, until then.
    TooEarly(Timestamp),
    /// Nothing.
    Nothing(&'static str),
}

fn meaning(row: &Operation, evidence: &Evidence, asked: Timestamp, rule: &AttemptRule) -> Meaning {
    match (evidence, rule.lookup) {
        // A provider that has the job may make the effect at any time.
        (Evidence::Absent, _) if row.job.is_some() => Meaning::Nothing("job_runs"),
        (Evidence::Absent, Some(lookup)) if lookup.authoritative => {
            let over = visible(work_over(row, rule), lookup, rule);
            if asked >= over { Meaning::ProvedAbsent } else { Meaning::TooEarly(over) }
        }
        (Evidence::Absent, _) => Meaning::Nothing("absent_without_authority"),
        (Evidence::CannotTell(why), _) => Meaning::Nothing(why.code()),
        (Evidence::JobRuns, _) => Meaning::Nothing("job_runs"),
        (Evidence::JobFailed, _) => Meaning::Nothing("job_failed"),
        (Evidence::Found(_) | Evidence::Unconfirmed(..), _) => Meaning::Nothing("found"),
    }
}

/// When no attempt so far can still make an effect. A record that says nothing of it was marked by
/// somebody who did not know (a requeue, a restore): its last change stands for the attempt. Whoever
/// writes such a record keeps this time in it, for the write is a change too.
pub(super) fn attempts_over(row: &Operation, rule: &AttemptRule) -> Timestamp {
    let guess = || row.updated_at.after(rule.timeout).after(rule.stall_margin);
    row.attempts_over_at.unwrap_or_else(guess)
}

/// When nothing that an attempt so far has set going can make an effect any more. An answer that was
/// lost, or that named no job, may have left a job behind that nobody can ask about: it has the time
/// that the contract gives to jobs.
fn work_over(row: &Operation, rule: &AttemptRule) -> Timestamp {
    let over = attempts_over(row, rule);
    rule.poll.map_or(over, |poll| over.after(poll.give_up).after(rule.margin))
}

/// When an effect made until `over` can be seen. The time between is measured by a clock that may
/// jump ahead in a fail-over; a moment needs no such margin, for what comes after it is after it.
fn visible(over: Timestamp, lookup: LookupRule, rule: &AttemptRule) -> Timestamp {
    if lookup.visible_after.is_zero() {
        over
    } else {
        over.after(lookup.visible_after).after(rule.margin)
    }
}

/// When the attempt that ended `why` at `now` can make no effect any more. One that the downstream
/// answered is over; where nobody answered, a slow service may still act on it.
#[must_use]
pub(super) fn attempt_over(why: Ambiguity, now: Timestamp, rule: &AttemptRule) -> Timestamp {
    if why.was_answered() { now } else { now.after(rule.stall_margin) }
}

/// The first look-up after an attempt whose outcome is open: not before an effect could be seen.
pub(super) fn first_look(now: Timestamp, wait: Duration, rule: &AttemptRule) -> Timestamp {
    let seen = rule.lookup.map_or(now, |lookup| visible(now, lookup, rule));
    seen.max(now.after(wait))
}

/// Proved: nothing was done. Made now, if the contract says so and nothing else speaks against it.
fn absent(mut step: Step, now: Timestamp, rule: &AttemptRule) -> Step {
    let row = step.record.clone();
    step = step.traced(reconciled("absent"));
    if rule.lookup.is_none_or(|lookup| lookup.when_absent == AbsentRule::Operator) {
        return for_a_person(step);
    }
    step.record.nothing_was_done();
    step.record.lookups = 0;
    if refused(&row) {
        return fail(step, Reason::Refused);
    }
    if exhausted(&row, rule) {
        return fail(step, Reason::AttemptsExhausted);
    }
    again(step, Reason::ProvedAbsent, "proved_absent", now)
}

/// An unknown record of which it is proved that nothing was done. It is not sent by itself: people
/// were told that the effect may exist, and one of them may have made it by hand meanwhile.
fn ended(mut step: Step, reason: Reason, found: &'static str) -> Step {
    step = step.traced(reconciled(found));
    step.record.nothing_was_done();
    step.record.token = step.record.token.next();
    let settled = json!({ "status": "failed_permanent", "reason": reason.code() });
    step.moved(Event::ProveAbsent, Some(reason)).traced(Trace::with("settled", settled))
}

/// The provider's job failed, and an earlier attempt is unproved: that one is what is left to ask
/// about. The job's name stays in the trace.
pub(super) fn without_job(mut step: Step) -> Step {
    step.record.job = None;
    step.traced(Trace::with("polled", json!({ "job": "failed" })))
}

/// Absent, and the contract wants a person to decide whether the effect is made.
fn for_a_person(step: Step) -> Step {
    let reason = Reason::AbsentNeedsDecision;
    let traced = Trace::with("unknown", json!({ "reason": reason.code() }));
    let mut step = step.moved(Event::LoseTrack, Some(reason)).traced(traced);
    step.record.reason = Some(reason);
    step.record.next_lookup_at = None;
    step
}

/// The reason of an unknown record that turned out to have had no effect.
fn after_absence(row: &Operation) -> Reason {
    let kept = [
        Reason::NotAuthorized,
        Reason::ApprovalDenied,
        Reason::ApprovalExpired,
        Reason::ApprovalWithdrawn,
        Reason::ApprovalTimedOut,
        Reason::PreconditionFailed,
        Reason::AttemptsExhausted,
    ];
    if refused(row) {
        return Reason::Refused;
    }
    row.reason.filter(|reason| kept.contains(reason)).unwrap_or(Reason::ProvedAbsent)
}

/// Evidence of an effect stands against the absence: a person weighs both.
fn contradicted(row: &Operation) -> bool {
    row.effect_reference.is_some() || row.reason == Some(Reason::Conflict)
}

fn refused(row: &Operation) -> bool {
    row.reason == Some(Reason::RefusedAfterUnproved)
}

fn again(step: Step, reason: Reason, code: &'static str, due: Timestamp) -> Step {
    step.moved(Event::Schedule, Some(reason))
        .traced(Trace::with("retry_scheduled", json!({ "why": code })))
        .published(due)
}

fn fail(step: Step, reason: Reason) -> Step {
    let ended = json!({ "status": "failed_permanent", "reason": reason.code() });
    step.moved(Event::Fail, Some(reason)).traced(Trace::with("settled", ended))
}

/// Unknown from here on. If there is somebody to ask, role maintain goes on asking at `look_at`.
pub(super) fn lose_track(
    step: Step,
    reason: Reason,
    look_at: Timestamp,
    rule: &AttemptRule,
) -> Step {
    let mut step = step
        .moved(Event::LoseTrack, Some(reason))
        .traced(Trace::with("unknown", json!({ "reason": reason.code() })));
    let askable = rule.resend != Resend::InTransaction && rule.can_look_up(&step.record);
    step.record.next_lookup_at = askable.then_some(look_at);
    step
}

fn reconciled(found: &'static str) -> Trace {
    Trace::with("reconciled", json!({ "found": found }))
}

fn write(step: Step) -> Settle {
    Settle::Write(Box::new(step))
}
