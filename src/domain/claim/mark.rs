//! The sent mark: durable before the first byte.

use serde_json::json;

use super::Ticket;
use crate::domain::attempt::Denial;
use crate::domain::lifecycle::{Event, Next, next};
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::permission::Permission;
use crate::domain::step::{Step, Trace};

/// What becomes of a mark that is asked for.
#[derive(Debug)]
pub enum Marking {
    /// Write this; then the first byte may go.
    Write(Box<Step>),
    /// The claim is not this owner's any more, or its lease ran out and another may take it at any
    /// moment.
    Lost,
    /// The database says now that it may not be sent.
    Forbidden(Denial),
}

/// Marks a claimed record as sent, under its token, if the grants and approvals of this very
/// transaction still allow it.
///
/// A record that this owner marked before stays as it is, so that a mark whose commit was not
/// answered may be asked for again.
#[must_use]
pub fn mark_sent(
    row: &Operation,
    ticket: &Ticket,
    permission: Permission,
    now: Timestamp,
) -> Marking {
    if row.token != ticket.token || !row.leased_at(now) {
        return Marking::Lost;
    }
    match permission {
        Permission::Allowed => {}
        // It was allowed at the claim: the approval is not there any more.
        Permission::NeedsApproval => return Marking::Forbidden(Denial::ApprovalWithdrawn),
        Permission::Denied(denial) => return Marking::Forbidden(denial),
    }
    match next(row.state, Event::MarkSent) {
        Next::To(_) => {
            let mut step =
                Step::from(row).moved(Event::MarkSent, None).traced(sent(row.may_have_been_sent()));
            step.record.lease = row.lease.clone();
            mark(&mut step.record, now);
            Marking::Write(Box::new(step))
        }
        Next::Stay => Marking::Write(Box::new(Step::from(row))),
        Next::Conflict | Next::Refused(_) => Marking::Lost,
    }
}

pub(super) fn mark(record: &mut Operation, now: Timestamp) {
    record.first_sent_at = record.first_sent_at.or(Some(now));
    record.key_first_used_at = record.key_first_used_at.or(Some(now));
    record.attempts = record.attempts.saturating_add(1);
}

pub(super) fn sent(again: bool) -> Trace {
    if again { Trace::with("sent", json!({ "again": true })) } else { Trace::new("sent") }
}
