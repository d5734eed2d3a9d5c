//! What an attempt that proved nothing makes of the record: only its owner may write that.

use std::time::Duration;

use serde_json::json;

use super::fail;
use crate::domain::attempt::{Ambiguity, NotSent};
use crate::domain::claim::Ticket;
use crate::domain::lifecycle::{Event, State};
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::reason::Reason;
use crate::domain::recovery;
use crate::domain::retry;
use crate::domain::rule::{AttemptRule, LOST_CLAIMS_PARKED, Resend};
use crate::domain::step::{Step, Trace};

/// An attempt whose owner still holds the claim.
pub(super) struct Owned<'a> {
    pub(super) row: &'a Operation,
    pub(super) ticket: &'a Ticket,
    pub(super) now: Timestamp,
    pub(super) rule: &'a AttemptRule,
    pub(super) jitter: f64,
}

impl Owned<'_> {
    /// The record after this attempt, whatever it learned.
    pub(super) fn settled(&self) -> Step {
        let mut step = Step::from(self.row);
        step.record.lost_claims = 0;
        step
    }

    /// The record as if this attempt's mark had never been written. Whether it was, the record says:
    /// the owner of a mark whose commit was not answered does not know.
    pub(super) fn unmarked(&self) -> Step {
        let mut step = self.settled();
        step.record.first_sent_at = self.ticket.prior_first_sent_at;
        if self.row.state == State::Sent {
            step.record.attempts = step.record.attempts.saturating_sub(1);
        }
        step
    }

    pub(super) fn unproved_before(&self) -> bool {
        self.ticket.prior_first_sent_at.is_some()
    }

    /// Nothing was done this time; try again, up to `give_up`.
    pub(super) fn defer(
        &self,
        reason: Reason,
        code: &'static str,
        retry_after: Option<Duration>,
    ) -> Step {
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
    pub(super) fn give_back(&self) -> Step {
        schedule(self.unmarked(), Reason::NotSent, NotSent::Draining.code(), self.now)
    }

    /// No request can be built from these arguments, now or ever.
    pub(super) fn unbuildable(&self) -> Step {
        let step = self.unmarked();
        if self.unproved_before() {
            self.lose_track(step, Reason::InvalidArguments)
        } else {
            reject(step, Reason::InvalidArguments)
        }
    }

    /// It may not be sent now. Where an earlier attempt is unproved, that says nothing about it.
    pub(super) fn forbid(&self, reason: Reason) -> Step {
        let step = self.unmarked();
        if self.unproved_before() { self.lose_track(step, reason) } else { reject(step, reason) }
    }

    /// A refusal proves that there is no effect only if no earlier attempt is unproved.
    pub(super) fn refuse(&self) -> Step {
        let mut step = self.settled();
        if !self.unproved_before() {
            step.record.nothing_was_done();
            return fail(step, Reason::Refused);
        }
        if self.rule.can_find(&step.record) {
            let reason = Reason::RefusedAfterUnproved;
            return schedule(step, reason, "refused_after_unproved", self.first_look());
        }
        self.lose_track(step, Reason::RefusedAfterUnproved)
    }

    /// *Already done*, to a first send: not by us. Sent again, the same answer would look like proof,
    /// so it is not sent again.
    pub(super) fn not_ours(&self) -> Step {
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
    pub(super) fn find_out(&self, step: Step, reason: Reason) -> Step {
        if self.rule.can_find(&step.record) {
            return schedule(step, reason, "look_up", self.first_look());
        }
        self.lose_track(step, reason)
    }

    pub(super) fn first_look(&self) -> Timestamp {
        let wait = retry::delay(self.rule, 1, self.jitter);
        recovery::first_look(self.now, wait, self.rule)
    }

    pub(super) fn lose_track(&self, step: Step, reason: Reason) -> Step {
        recovery::lose_track(step, reason, self.first_look(), self.rule)
    }

    /// The outcome is open: send again with the same key while that can do no harm, else stop.
    pub(super) fn recover_later(&self, why: Ambiguity) -> Step {
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
    pub(super) fn opened(&self, why: Ambiguity) -> Step {
        let mut step = self.settled();
        step.record.deferrals = 0;
        step.record.first_sent_at = step.record.first_sent_at.or(Some(self.now));
        step.record.may_act_until(recovery::attempt_over(why, self.now, self.rule));
        step
    }

    /// The tool panicked with its gate shut: nothing was sent, but it may do so every time.
    pub(super) fn panicked(&self) -> Step {
        let mut step = self.unmarked();
        step.record.lost_claims = self.row.lost_claims.saturating_add(1);
        if step.record.lost_claims >= LOST_CLAIMS_PARKED {
            return park(step, Reason::ToolPanicked);
        }
        let due = self.now.after(retry::delay(self.rule, step.record.lost_claims, self.jitter));
        schedule(step, Reason::ToolPanicked, "tool_panicked", due)
    }

    pub(super) fn exhausted(&self, step: Step) -> Step {
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

fn reject(step: Step, reason: Reason) -> Step {
    step.moved(Event::Reject, Some(reason))
        .traced(Trace::with("rejected", json!({ "reason": reason.code() })))
}

fn park(step: Step, reason: Reason) -> Step {
    step.moved(Event::Park, Some(reason))
        .traced(Trace::with("parked", json!({ "reason": reason.code() })))
}
