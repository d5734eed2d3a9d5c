//! A provider's job: who says that there is one, and what its end proves.

use serde_json::json;

use super::{Settle, fail, write};
use crate::domain::attempt::Job;
use crate::domain::claim::Ticket;
use crate::domain::lifecycle::{Event, Next, State, next};
use crate::domain::operation::{Operation, ProviderJob, Timestamp};
use crate::domain::reason::Reason;
use crate::domain::recovery;
use crate::domain::rule::AttemptRule;
use crate::domain::step::{Step, Trace};

/// The provider's job ended without an effect. That proves as much as a refusal does.
pub(super) fn job_failed(row: &Operation, now: Timestamp, rule: &AttemptRule) -> Step {
    let mut step = Step::from(row);
    step.record.token = row.token.next();
    if row.job.as_ref().is_some_and(|job| job.alone) {
        step.record.nothing_was_done();
        return fail(step, Reason::JobFailed);
    }
    recovery::lose_track(recovery::without_job(step), Reason::RefusedAfterUnproved, now, rule)
}

/// The provider owns a job, says the attempt of `ticket`, whoever owns the record now: the job is
/// followed, and whoever was about to make another one finds its claim gone.
pub(super) fn accept(
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
