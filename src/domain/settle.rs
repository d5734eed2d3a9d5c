//! Decides what an attempt's result makes of the record, given its locked row.
//!
//! Proof of an effect is accepted from anyone. Everything else, retries, refusals and "nothing
//! happened", only from the owner of the claim, by its fencing token.

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::json;

use super::attempt::{Ambiguity, Effect, Learned, NotSent, Response};
use super::claim::Ticket;
use super::lifecycle::{Event, Next, State, next};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
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
        return prove(row, ticket, effect);
    }
    if row.token != ticket.token {
        return Settle::LostLease;
    }
    if !matches!(row.state, State::Claimed | State::Sent) {
        return Settle::Acknowledged;
    }
    let owned = Owned { row, ticket, now, rule, jitter };
    Settle::Write(Box::new(match learned {
        Learned::NotSent(NotSent::Unbuildable) => owned.unbuildable(),
        Learned::NotSent(NotSent::Draining) => owned.give_back(),
        Learned::NotSent(why) => owned.defer(Reason::NotSent, why.code(), None),
        Learned::NotNow { retry_after } => owned.defer(Reason::NotNow, "not_now", *retry_after),
        Learned::Denied => owned.defer(Reason::DownstreamDenied, "downstream_denied", None),
        Learned::Refused => owned.refuse(),
        Learned::Ambiguous(why) => owned.recover_later(*why),
        Learned::Applied(_) | Learned::Already(_) => owned.not_ours(),
        Learned::Unconfirmed(..) | Learned::Accepted(_) => owned.not_ours(),
        Learned::Panicked => owned.panicked(),
    }))
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

/// An authentic receipt, from anyone.
fn prove(row: &Operation, ticket: &Ticket, effect: &Effect) -> Settle {
    let receipt = effect.receipt.as_str();
    // Contradicting evidence is for a person to weigh; the same receipt twice adds nothing to it.
    let contradicted = row.reason == Some(Reason::Conflict);
    match next(row.state, Event::Proof) {
        Next::To(_) if !contradicted => {
            let mut step =
                applied(row, effect).traced(Trace::new("committed")).traced(Trace::new("settled"));
            if row.token != ticket.token {
                step.trace.insert(0, Trace::new("reconciled"));
            }
            // Whoever else holds a claim on it finds it moved on.
            step.record.token = row.token.next();
            Settle::Write(Box::new(step))
        }
        Next::To(_) | Next::Stay | Next::Conflict | Next::Refused(_) => {
            if row.effect_reference.as_deref() == Some(receipt) {
                Settle::Acknowledged
            } else {
                Settle::Write(Box::new(contradict(row, receipt)))
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
    step.traced(Trace::with("conflict", json!({ "receipt": receipt })))
}

fn applied(row: &Operation, effect: &Effect) -> Step {
    let mut step = Step::from(row).moved(Event::Proof, None);
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
            lose_track(step, Reason::InvalidArguments)
        } else {
            reject(step, Reason::InvalidArguments)
        }
    }

    /// A refusal proves that there is no effect only if no earlier attempt is unproved.
    fn refuse(&self) -> Step {
        let mut step = self.settled();
        if self.unproved_before() {
            return lose_track(step, Reason::RefusedAfterUnproved);
        }
        step.record.first_sent_at = None;
        fail(step, Reason::Refused)
    }

    /// *Already done*, to a first send: not by us. Sent again, the same answer would look like proof,
    /// so it is not sent again.
    fn not_ours(&self) -> Step {
        let why = Ambiguity::UnlistedStatus;
        if self.rule.resend == Resend::InTransaction {
            return self.recover_later(why);
        }
        lose_track(ambiguous(self.opened(), why), Reason::NoProof)
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
        let mut step = self.opened();
        if panicked {
            step.record.lost_claims = self.row.lost_claims.saturating_add(1);
        }
        let due = self.now.after(retry::delay(self.rule, step.record.attempts, self.jitter));
        if step.record.attempts >= self.rule.attempts {
            return lose_track(ambiguous(step, why), Reason::AttemptsExhausted);
        }
        if !self.rule.may_resend(&step.record, due) {
            let reason = match self.rule.resend {
                Resend::Within(_) => Reason::WindowClosed,
                Resend::Always | Resend::Never | Resend::InTransaction => Reason::NoProof,
            };
            return lose_track(ambiguous(step, why), reason);
        }
        if step.record.lost_claims >= LOST_CLAIMS_PARKED {
            return park(step, Reason::ToolPanicked);
        }
        schedule(step, Reason::Ambiguous, why.code(), due)
    }

    /// The record after an attempt whose outcome is open, marked or not.
    fn opened(&self) -> Step {
        let mut step = self.settled();
        step.record.deferrals = 0;
        step.record.first_sent_at = step.record.first_sent_at.or(Some(self.now));
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
            lose_track(step, Reason::AttemptsExhausted)
        } else {
            fail(step, Reason::AttemptsExhausted)
        }
    }
}

fn schedule(step: Step, reason: Reason, code: &'static str, due: Timestamp) -> Step {
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

fn lose_track(step: Step, reason: Reason) -> Step {
    step.moved(Event::LoseTrack, Some(reason))
        .traced(Trace::with("unknown", json!({ "reason": reason.code() })))
}
