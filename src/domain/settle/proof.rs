//! Proof of an effect: accepted from anyone, held against what the record already knows.

use serde_json::json;

use super::{Settle, write};
use crate::domain::attempt::{Effect, Learned, Response, Unconfirmed};
use crate::domain::claim::Ticket;
use crate::domain::lifecycle::{Event, Next, State, next};
use crate::domain::operation::Operation;
use crate::domain::reason::Reason;
use crate::domain::rule::{AttemptRule, Resend};
use crate::domain::step::{Step, Trace};

/// An authentic receipt, from anyone, whose postcondition does not hold or could not be asked: the
/// effect is there, and whether it is what was wanted a person must say.
pub(in crate::domain) fn unconfirmed(row: &Operation, effect: &Effect, why: Unconfirmed) -> Settle {
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
pub(in crate::domain) fn settles_nothing(reason: Reason) -> bool {
    reason == Reason::Conflict || reason == Reason::PostconditionFailed
}

/// The effect that `learned` proves, if it proves one. *Already done* speaks of us only where an
/// unproved attempt of ours went before. A transactional tool's effect is proved by [`commit`](super::commit) alone:
/// one whose transaction was rolled back is none, whatever the tool said.
pub(super) fn proof<'a>(
    ticket: &Ticket,
    learned: &'a Learned,
    rule: &AttemptRule,
) -> Option<&'a Effect> {
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

/// An authentic receipt, from anyone. `ticket` is the attempt that brought it; `None`: somebody
/// looked.
pub(in crate::domain) fn prove(
    row: &Operation,
    ticket: Option<&Ticket>,
    effect: &Effect,
) -> Settle {
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
pub(super) fn contradict(row: &Operation, receipt: &str) -> Step {
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

pub(super) fn applied(row: &Operation, effect: &Effect) -> Step {
    with_effect(Step::from(row).moved(Event::Proof, None), effect)
}

pub(super) fn with_effect(mut step: Step, effect: &Effect) -> Step {
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
