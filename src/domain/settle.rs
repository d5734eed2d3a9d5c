//! Decides what an attempt's result makes of the record, given its locked row.
//!
//! Proof of an effect is accepted from anyone. Everything else, retries, refusals and "nothing
//! happened", only from the owner of the claim, by its fencing token.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::attempt::{Ambiguity, Effect, Job, Learned, NotSent, Response, Unconfirmed};
use super::claim::{Purpose, Ticket};
use super::evidence::Evidence;
use super::lifecycle::{Event, Next, State, next};
use super::operation::{Operation, ProviderJob, Timestamp};
use super::reason::Reason;
use super::recovery::{self, Asked};
use super::retry;
use super::rule::{AttemptRule, LOST_CLAIMS_PARKED, Resend};
use super::step::{Step, Trace};

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
        return Settle::LostLease;
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

/// The provider's job ended without an effect. That proves as much as a refusal does.
fn job_failed(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Step {
    let mut step = Step::from(row);
    step.record.token = row.token.next();
    if row.job.as_ref().is_some_and(|job| job.alone) {
        step.record.nothing_was_done();
        return fail(step, Reason::JobFailed);
    }
    recovery::lose_track(step, Reason::RefusedAfterUnproved, now, rule)
}

/// The provider owns a job, says the attempt of `ticket`, whoever owns the record now: the job is
/// followed, and whoever was about to make another one finds its claim gone.
fn accept(
    row: &Operation,
    ticket: &Ticket,
    job: &Job,
    now: Timestamp,
    rule: &AttemptRule,
) -> Settle {
    let owner = row.token == ticket.token && matches!(row.state, State::Claimed | State::Sent);
    let other = row.job.as_ref().filter(|known| known.id != *job);
    match next(row.state, Event::Accept) {
        Next::To(_) => {
            let mut step = Step::from(row)
                .moved(Event::Accept, Some(Reason::ProviderJob))
                .traced(Trace::with("accepted", json!({ "job": job.as_str() })));
            step.record.lost_claims = 0;
            step.record.deferrals = 0;
            step.record.first_sent_at = row.first_sent_at.or(Some(now));
            step.record.may_act_until(now.after(rule.stall_margin));
            if let Some(lease) = row.lease.as_ref().filter(|_| !owner) {
                // Its owner may be sending, and does not know yet that its claim is gone.
                let over = lease.until.after(rule.timeout).after(rule.stall_margin);
                step.record.may_act_until(over);
            }
            let alone = owner && !ticket.is_resend();
            step.record.job = Some(ProviderJob { id: job.clone(), accepted_at: now, alone });
            step.record.token = row.token.next();
            let Some(poll) = rule.poll else {
                return write(recovery::lose_track(step, Reason::JobUnfinished, now, rule));
            };
            write(step.published(now.after(poll.every)))
        }
        // The settle of a job that has ended meanwhile, repeated: its commit was not answered.
        Next::Conflict if row.job.is_some() && other.is_none() => Settle::Acknowledged,
        Next::Conflict => {
            let mut step = Step::from(row).moved(Event::Accept, None);
            step.record.token = row.token.next();
            let step = step.traced(Trace::with("conflict", json!({ "job": job.as_str() })));
            write(followed(step, job, now, rule))
        }
        Next::Stay if other.is_some() => {
            let mut step =
                Step::from(row).traced(Trace::with("conflict", json!({ "job": job.as_str() })));
            if let Some(known) = &mut step.record.job {
                // The end of one says nothing of the other.
                known.alone = false;
            }
            write(step)
        }
        Next::Stay if row.state == State::Unknown && row.job.is_none() => {
            let accepted = Trace::with("accepted", json!({ "job": job.as_str() }));
            write(followed(Step::from(row).traced(accepted), job, now, rule))
        }
        Next::Stay | Next::Refused(_) => Settle::Acknowledged,
    }
}

/// An unknown record with a job of which it did not know: it is asked about, if nobody is asked
/// about anything else before.
fn followed(mut step: Step, job: &Job, now: Timestamp, rule: &AttemptRule) -> Step {
    let record = &mut step.record;
    record.first_sent_at = record.first_sent_at.or(Some(now));
    record.may_act_until(now.after(rule.stall_margin));
    record.job = Some(ProviderJob { id: job.clone(), accepted_at: now, alone: false });
    let asked = rule.poll.map(|poll| now.after(poll.every));
    record.next_lookup_at = match (record.next_lookup_at, asked) {
        (Some(planned), Some(asked)) => Some(planned.min(asked)),
        (planned, asked) => planned.or(asked),
    };
    step
}

/// An authentic receipt, from anyone, whose postcondition does not hold or could not be asked: the
/// effect is there, and whether it is what was wanted a person must say.
pub(super) fn unconfirmed(row: &Operation, effect: &Effect, why: Unconfirmed) -> Settle {
    let receipt = effect.receipt.as_str();
    let known = row.effect_reference.as_deref();
    match next(row.state, Event::Unconfirm) {
        Next::To(_) if known.is_none() || known == Some(receipt) => {
            let weighed = row.state == State::Unknown && row.reason.is_some_and(settles_nothing);
            let again = row.reason == Some(why.reason());
            if known == Some(receipt) && (weighed || again) {
                return Settle::Acknowledged;
            }
            if weighed {
                return write(contradict(row, receipt));
            }
            let reason = json!({ "reason": why.reason().code() });
            let mut step = with_effect(Step::from(row), effect)
                .moved(Event::Unconfirm, Some(why.reason()))
                .traced(Trace::new("committed"))
                .traced(Trace::with("unknown", reason));
            step.record.first_sent_at = row.first_sent_at.or(Some(row.updated_at));
            step.record.token = row.token.next();
            step.record.next_lookup_at =
                (why == Unconfirmed::Unreachable).then_some(row.updated_at);
            write(step)
        }
        Next::To(_) | Next::Stay | Next::Conflict | Next::Refused(_) => {
            if known == Some(receipt) {
                Settle::Acknowledged
            } else {
                write(contradict(row, receipt))
            }
        }
    }
}

/// Unknown for a reason that more of the same evidence does not take away: a person weighs it.
pub(super) fn settles_nothing(reason: Reason) -> bool {
    reason == Reason::Conflict || reason == Reason::PostconditionFailed
}

/// The effect that `learned` proves, if it proves one. *Already done* speaks of us only where an
/// unproved attempt of ours went before. A transactional tool's effect is proved by [`commit`] alone:
/// one whose transaction was rolled back is none, whatever the tool said.
fn proof<'a>(ticket: &Ticket, learned: &'a Learned, rule: &AttemptRule) -> Option<&'a Effect> {
    if rule.resend == Resend::InTransaction {
        return None;
    }
    match learned {
        Learned::Applied(effect) => Some(effect),
        Learned::Already(effect) => ticket.is_resend().then_some(effect),
        Learned::NotSent(_)
        | Learned::NotNow { .. }
        | Learned::Denied
        | Learned::Refused
        | Learned::Unconfirmed(..)
        | Learned::Accepted(_)
        | Learned::Ambiguous(_)
        | Learned::Panicked => None,
    }
}

/// Settles `row` with evidence that cannot be written as it is (a row that the database keeps
/// refusing): unknown, so that its neighbours do not notice and nothing is called done.
#[must_use]
pub fn unstorable(row: &Operation) -> Step {
    let mut step = Step::from(row)
        .moved(Event::LoseTrack, Some(Reason::StoreFailed))
        .traced(Trace::with("unknown", json!({ "reason": Reason::StoreFailed.code() })));
    step.record.token = row.token.next();
    // What this attempt came to is lost, and when it ended with it: the record's last change stands
    // for that, not the end of an earlier one.
    step.record.attempts_over_at = None;
    step
}

/// Settles a transactional tool's operation: its effect is in the very transaction that writes this.
/// `row` is read at the beginning of that transaction, before the effect runs, under a lock that
/// keeps the claim from changing hands until the commit. `None`: no effect, roll back.
#[must_use]
pub fn commit(row: &Operation, ticket: &Ticket, effect: &Effect, now: Timestamp) -> Option<Step> {
    let owner = row.token == ticket.token && row.state == State::Claimed && row.leased_at(now);
    owner.then(|| applied(row, effect).traced(Trace::new("settled")))
}

/// An authentic receipt, from anyone. `ticket` is the attempt that brought it; `None`: somebody
/// looked.
pub(super) fn prove(row: &Operation, ticket: Option<&Ticket>, effect: &Effect) -> Settle {
    let receipt = effect.receipt.as_str();
    let known = row.effect_reference.as_deref();
    // Contradicting evidence is for a person to weigh; the same receipt twice adds nothing to it.
    let contradicted = row.reason.is_some_and(settles_nothing);
    let other = known.is_some_and(|known| known != receipt);
    match next(row.state, Event::Proof) {
        Next::To(_) if !contradicted && !other => {
            let mut step =
                applied(row, effect).traced(Trace::new("committed")).traced(Trace::new("settled"));
            if ticket.is_none_or(|ticket| row.token != ticket.token) {
                step.trace.insert(0, Trace::new("reconciled"));
            }
            // Whoever else holds a claim on it finds it moved on.
            step.record.token = row.token.next();
            write(step)
        }
        Next::To(_) | Next::Stay | Next::Conflict | Next::Refused(_) => {
            if known == Some(receipt) {
                Settle::Acknowledged
            } else {
                write(contradict(row, receipt))
            }
        }
    }
}

/// Keeps a receipt that does not fit the record where a person sees both: the first in the record,
/// each later one in the trace. Applied stays applied; a verdict that says otherwise is unknown now.
fn contradict(row: &Operation, receipt: &str) -> Step {
    let mut step = Step::from(row);
    if next(row.state, Event::Proof) == Next::Conflict {
        step = step.moved(Event::Proof, None);
        step.record.token = row.token.next();
    }
    step.record.reason = Some(Reason::Conflict);
    step.record.effect_reference.get_or_insert_with(|| receipt.to_owned());
    // Nothing that is asked could take the contradiction away.
    step.record.next_lookup_at = None;
    step.traced(Trace::with("conflict", json!({ "receipt": receipt })))
}

fn applied(row: &Operation, effect: &Effect) -> Step {
    with_effect(Step::from(row).moved(Event::Proof, None), effect)
}

fn with_effect(mut step: Step, effect: &Effect) -> Step {
    let record = &mut step.record;
    record.lost_claims = 0;
    record.effect_reference = Some(effect.receipt.as_str().to_owned());
    record.response_dropped = effect.response == Response::Dropped;
    record.response = match &effect.response {
        Response::Kept(text) => Some(text.clone()),
        Response::None | Response::Dropped => None,
    };
    step
}

/// An attempt whose owner still holds the claim.
struct Owned<'a> {
    row: &'a Operation,
    ticket: &'a Ticket,
    now: Timestamp,
    rule: &'a AttemptRule,
    jitter: f64,
}

impl Owned<'_> {
    /// The record after this attempt, whatever it learned.
    fn settled(&self) -> Step {
        let mut step = Step::from(self.row);
        step.record.lost_claims = 0;
        step
    }

    /// The record as if this attempt's mark had never been written. Whether it was, the record says:
    /// the owner of a mark whose commit was not answered does not know.
    fn unmarked(&self) -> Step {
        let mut step = self.settled();
        step.record.first_sent_at = self.ticket.prior_first_sent_at;
        if self.row.state == State::Sent {
            step.record.attempts = step.record.attempts.saturating_sub(1);
        }
        step
    }

    fn unproved_before(&self) -> bool {
        self.ticket.prior_first_sent_at.is_some()
    }

    /// Nothing was done this time; try again, up to `give_up`.
    fn defer(&self, reason: Reason, code: &'static str, retry_after: Option<Duration>) -> Step {
        let mut step = self.unmarked();
        let asked = retry_after.unwrap_or_default().min(self.rule.give_up);
        step.record.deferrals = step.record.deferrals.saturating_add(1);
        let tries = step.record.deferrals;
        let due = self.now.after(retry::delay(self.rule, tries, self.jitter).max(asked));
        // An operation may come late to its first try: `not_before`, its order, a broker that was
        // away, an operator. It has the whole time to wait for its downstream all the same.
        let waited = retry::waited(self.rule, tries).max(asked.saturating_mul(tries));
        if due.since(self.row.opened_at) > self.rule.give_up && waited > self.rule.give_up {
            return self.exhausted(step);
        }
        schedule(step, reason, code, due)
    }

    /// The worker drains before anything was sent: the next one takes it at once.
    fn give_back(&self) -> Step {
        schedule(self.unmarked(), Reason::NotSent, NotSent::Draining.code(), self.now)
    }

    /// No request can be built from these arguments, now or ever.
    fn unbuildable(&self) -> Step {
        let step = self.unmarked();
        if self.unproved_before() {
            self.lose_track(step, Reason::InvalidArguments)
        } else {
            reject(step, Reason::InvalidArguments)
        }
    }

    /// It may not be sent now. Where an earlier attempt is unproved, that says nothing about it.
    fn forbid(&self, reason: Reason) -> Step {
        let step = self.unmarked();
        if self.unproved_before() { self.lose_track(step, reason) } else { reject(step, reason) }
    }

    /// A refusal proves that there is no effect only if no earlier attempt is unproved.
    fn refuse(&self) -> Step {
        let mut step = self.settled();
        if !self.unproved_before() {
            step.record.nothing_was_done();
            return fail(step, Reason::Refused);
        }
        if self.rule.lookup.is_some() && self.rule.can_look_up(&step.record) {
            let reason = Reason::RefusedAfterUnproved;
            return schedule(step, reason, "refused_after_unproved", self.first_look());
        }
        self.lose_track(step, Reason::RefusedAfterUnproved)
    }

    /// *Already done*, to a first send: not by us. Sent again, the same answer would look like proof,
    /// so it is not sent again.
    fn not_ours(&self) -> Step {
        let why = Ambiguity::UnlistedStatus;
        if self.rule.resend == Resend::InTransaction {
            return self.recover_later(why);
        }
        let mut step = self.opened(why);
        // It said that it had nothing to do.
        step.record.attempts_over_at = self.row.attempts_over_at.max(Some(self.now));
        self.find_out(ambiguous(step, why), Reason::NoProof)
    }

    /// Not sent again: looked up, where that can be, else unknown.
    fn find_out(&self, step: Step, reason: Reason) -> Step {
        if self.rule.lookup.is_some() && self.rule.can_look_up(&step.record) {
            return schedule(step, reason, "look_up", self.first_look());
        }
        self.lose_track(step, reason)
    }

    fn first_look(&self) -> Timestamp {
        let wait = retry::delay(self.rule, 1, self.jitter);
        recovery::first_look(self.now, wait, self.rule)
    }

    fn lose_track(&self, step: Step, reason: Reason) -> Step {
        recovery::lose_track(step, reason, self.first_look(), self.rule)
    }

    /// The outcome is open: send again with the same key while that can do no harm, else stop.
    fn recover_later(&self, why: Ambiguity) -> Step {
        let panicked = why == Ambiguity::Panicked;
        if self.rule.resend == Resend::InTransaction {
            // The record is not applied, so the transaction that held the effect was rolled back.
            return if panicked {
                self.panicked()
            } else {
                self.defer(Reason::NotSent, why.code(), None)
            };
        }
        let mut step = self.opened(why);
        if panicked {
            step.record.lost_claims = self.row.lost_claims.saturating_add(1);
        }
        let due = self.now.after(retry::delay(self.rule, step.record.attempts, self.jitter));
        if step.record.attempts >= self.rule.attempts {
            return self.find_out(ambiguous(step, why), Reason::AttemptsExhausted);
        }
        if !self.rule.may_resend(&step.record, due) {
            let reason = match self.rule.resend {
                Resend::Within(_) => Reason::WindowClosed,
                Resend::Always | Resend::Never | Resend::InTransaction => Reason::NoProof,
            };
            return self.find_out(ambiguous(step, why), reason);
        }
        if step.record.lost_claims >= LOST_CLAIMS_PARKED {
            return park(step, Reason::ToolPanicked);
        }
        schedule(step, Reason::Ambiguous, why.code(), due)
    }

    /// The record after an attempt whose outcome is open, marked or not.
    fn opened(&self, why: Ambiguity) -> Step {
        let mut step = self.settled();
        step.record.deferrals = 0;
        step.record.first_sent_at = step.record.first_sent_at.or(Some(self.now));
        step.record.may_act_until(recovery::attempt_over(why, self.now, self.rule));
        step
    }

    /// The tool panicked with its gate shut: nothing was sent, but it may do so every time.
    fn panicked(&self) -> Step {
        let mut step = self.unmarked();
        step.record.lost_claims = self.row.lost_claims.saturating_add(1);
        if step.record.lost_claims >= LOST_CLAIMS_PARKED {
            return park(step, Reason::ToolPanicked);
        }
        let due = self.now.after(retry::delay(self.rule, step.record.lost_claims, self.jitter));
        schedule(step, Reason::ToolPanicked, "tool_panicked", due)
    }

    fn exhausted(&self, step: Step) -> Step {
        if self.unproved_before() {
            self.find_out(step, Reason::AttemptsExhausted)
        } else {
            fail(step, Reason::AttemptsExhausted)
        }
    }
}

fn schedule(step: Step, reason: Reason, code: &'static str, due: Timestamp) -> Step {
    let reason = recovery::kept_or(&step.record, reason);
    step.moved(Event::Schedule, Some(reason))
        .traced(Trace::with("retry_scheduled", json!({ "why": code })))
        .published(due)
}

fn ambiguous(step: Step, why: Ambiguity) -> Step {
    step.traced(Trace::with("committed", json!({ "ambiguous": why.code() })))
}

fn fail(step: Step, reason: Reason) -> Step {
    let ended = json!({ "status": "failed_permanent", "reason": reason.code() });
    step.moved(Event::Fail, Some(reason)).traced(Trace::with("settled", ended))
}

fn reject(step: Step, reason: Reason) -> Step {
    step.moved(Event::Reject, Some(reason))
        .traced(Trace::with("rejected", json!({ "reason": reason.code() })))
}

fn park(step: Step, reason: Reason) -> Step {
    step.moved(Event::Park, Some(reason))
        .traced(Trace::with("parked", json!({ "reason": reason.code() })))
}

fn write(step: Step) -> Settle {
    Settle::Write(Box::new(step))
}
