//! What a decision writes: the record as it shall be, its trace, and a message if one is due.

use serde_json::{Value, json};

use super::lifecycle::{Event, Next, State, next};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;

/// One row of the trace. Never arguments, responses or secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The transition's name.
    pub event: &'static str,
    /// What an operator may want to know besides.
    pub detail: Option<Value>,
}

impl Trace {
    /// A transition with nothing to add.
    #[must_use]
    pub fn new(event: &'static str) -> Self {
        Self { event, detail: None }
    }

    /// A transition and what there is to tell of it.
    #[must_use]
    pub fn with(event: &'static str, detail: Value) -> Self {
        Self { event, detail: Some(detail) }
    }
}

/// Which of the twins that are held an end wakes. Each is asked again at its own claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// The oldest: there was no effect.
    Next,
    /// All: there was an effect, and they end with it.
    All,
}

/// One write: applied as a whole in the transaction that read the record, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The record as it shall be.
    pub record: Operation,
    /// The token that the record had when it was read; the write is fenced by it.
    pub read_token: super::operation::Token,
    /// Rows for the trace, in order.
    pub trace: Vec<Trace>,
    /// An outbox row that falls due then.
    pub publish_at: Option<Timestamp>,
    /// The record takes a new place behind the others of its ordering key.
    pub renumbered: bool,
    /// The record finished: the next one of its ordering key may go.
    pub frees_order: bool,
    /// A request for a person's approval is written with it.
    pub asks_approval: bool,
    /// The record ended, and may have twins that wait: [`Step::wakes`] says for whom that is news.
    pub frees_twins: bool,
    /// The record came to an ending that it announces by a result event.
    pub announces: bool,
}

impl Step {
    /// Begins with the record as it was read.
    #[must_use]
    pub fn from(read: &Operation) -> Self {
        Self {
            record: read.clone(),
            read_token: read.token,
            trace: Vec::new(),
            publish_at: None,
            renumbered: false,
            frees_order: false,
            asks_approval: false,
            frees_twins: false,
            announces: false,
        }
    }

    /// Adds a row to the trace.
    #[must_use]
    pub fn traced(mut self, row: Trace) -> Self {
        self.trace.push(row);
        self
    }

    /// Notes that permission was asked for this send and given: right before the row that says what
    /// it was given for, the last one.
    #[must_use]
    pub fn authorized(mut self) -> Self {
        let before_last = self.trace.len().saturating_sub(1);
        self.trace.insert(before_last, Trace::new("authorized"));
        self
    }

    /// Moves the record by `event`. A move that the table refuses leaves the state as it is and says
    /// so in the trace: a decision that asks for it has a fault, and the record must not pay for it.
    #[must_use]
    pub fn moved(mut self, event: Event, reason: Option<Reason>) -> Self {
        let before = self.record.state;
        match next(before, event) {
            Next::To(state) => self.enter(state, reason),
            Next::Conflict => self.enter(State::Unknown, Some(Reason::Conflict)),
            Next::Stay => {}
            Next::Refused(why) => self.trace.push(Trace::with("refused", json!({ "why": why }))),
        }
        self
    }

    fn enter(&mut self, state: State, reason: Option<Reason>) {
        self.frees_order = state.is_finished() && self.record.order.is_some();
        self.frees_twins = state.is_finished() && self.record.twin.is_some();
        if state != self.record.state {
            self.announces = self.record.results && state.is_ending();
        }
        self.record.enter(state, reason);
        if let Some(order) = self.record.order.as_mut().filter(|_| !state.is_pending()) {
            order.waiting = false;
        }
    }

    /// Which of the record's twins its end wakes, where [`Step::frees_twins`] says that it ended.
    #[must_use]
    pub fn wakes(&self) -> Wakes {
        match self.record.reason {
            // It existed, and a person undid it: that it shall be made again is a new decision.
            Some(Reason::Compensated) => Wakes::All,
            Some(_) | None if self.record.state == State::Applied => Wakes::All,
            Some(_) | None => Wakes::Next,
        }
    }

    /// Publishes the record when it is due at `at`.
    #[must_use]
    pub fn published(mut self, at: Timestamp) -> Self {
        self.record.due_at = at;
        self.record.queued_at = at;
        self.record.sweeps = 0;
        self.publish_at = Some(at);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::records::operation;

    /// An end without an effect is news for the oldest that waits, one with an effect for all.
    #[test]
    fn an_end_wakes_whom_it_concerns() {
        let check = |state: State, reason: Option<Reason>, expected: Wakes| {
            let step = Step::from(&Operation { reason, ..operation(state) });
            assert_eq!(step.wakes(), expected, "{state:?} {reason:?}");
        };
        check(State::Applied, None, Wakes::All);
        check(State::Applied, Some(Reason::Conflict), Wakes::All);
        check(State::FailedPermanent, Some(Reason::Compensated), Wakes::All);
        check(State::FailedPermanent, Some(Reason::Refused), Wakes::Next);
        check(State::FailedPermanent, Some(Reason::ResolvedNotApplied), Wakes::Next);
        check(State::Rejected, Some(Reason::NotAuthorized), Wakes::Next);
        // Who waited behind a waiting one, and came too late to end with what ended that.
        check(State::Rejected, Some(Reason::SuspectedTwin), Wakes::Next);
    }

    /// Each ending is announced once, when the record comes to it: not by staying there, not the
    /// tombstone, and by no record whose contract does not want it.
    #[test]
    fn an_ending_is_announced_when_it_is_entered() {
        for state in State::ALL {
            for event in Event::ALL {
                for results in [true, false] {
                    let row = Operation { results, ..operation(state) };
                    let step = Step::from(&row).moved(event, None);
                    let (before, _) = state.columns();
                    let (after, _) = step.record.state.columns();
                    let ending =
                        matches!(after, "applied" | "rejected" | "failed_permanent" | "unknown");
                    let expected = results && before != after && ending;
                    assert_eq!(step.announces, expected, "{state:?} {event:?} {results}");
                }
            }
        }
    }
}
