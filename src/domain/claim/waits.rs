//! What keeps a first send from going: its turn, a twin, an approval, a permission.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::{
    Around, Claim, Leave, Twins, going_on, identified, lose_track, passing, rejected, taken,
};
use crate::domain::fingerprint::Material;
use crate::domain::lifecycle::{Event, State};
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::permission::Permission;
use crate::domain::reason::Reason;
use crate::domain::recovery;
use crate::domain::rule::AttemptRule;
use crate::domain::step::{Step, Trace};

/// Holds a first send back behind its twin, up to [`TWIN_WAIT`]; nothing was sent, so that the same
/// submission may come again and say that a second effect is meant.
pub(super) fn twin(
    row: &Operation,
    material: &Material,
    twins: Twins,
    now: Timestamp,
    rule: &AttemptRule,
) -> Option<Claim> {
    let released = row.twin.as_ref().is_some_and(|twin| twin.released);
    if row.may_have_been_sent() || released {
        return None;
    }
    let (other, over) = match twins {
        Twins::Free => return None,
        Twins::Behind(other) => (other, row.state == State::Held && now >= row.due_at),
        Twins::Applied(other) => (other, true),
    };
    if over {
        let step = rejected(identified(taken(row, rule), material, rule), Reason::SuspectedTwin);
        return Some(Claim::Write(Box::new(behind(step, other))));
    }
    if row.state == State::Held {
        let same = row.twin.as_ref().and_then(|twin| twin.held_behind) == Some(other);
        let moved = || Claim::Write(Box::new(behind(Step::from(row).traced(held(other)), other)));
        return Some(if same { Claim::Leave(Leave::Held) } else { moved() });
    }
    let mut step = identified(taken(row, rule), material, rule)
        .moved(Event::Hold, Some(Reason::SuspectedTwin))
        .traced(held(other));
    step.record.due_at = now.after(TWIN_WAIT);
    Some(Claim::Write(Box::new(behind(step, other))))
}

/// How long an operation is held behind a twin that does not end.
pub const TWIN_WAIT: Duration = Duration::from_hours(24);

fn held(behind: Uuid) -> Trace {
    Trace::with("held", json!({ "older_operation_id": behind }))
}

fn behind(mut step: Step, other: Uuid) -> Step {
    if let Some(twin) = &mut step.record.twin {
        twin.held_behind = Some(other);
    }
    // The next wake-up is for another one's end.
    step.record.sweeps = 0;
    step
}

/// What is written instead of a send that is not allowed. An operation that may have been sent is
/// never called rejected for it: nothing is sent, and finding out goes on.
pub(super) fn forbidden(
    row: &Operation,
    material: &Material,
    around: &Around,
    now: Timestamp,
    rule: &AttemptRule,
) -> Option<Step> {
    let reason = match around.permission {
        Permission::Allowed => return None,
        Permission::NeedsApproval => Reason::AwaitingApproval,
        Permission::Denied(denial) => denial.reason(),
    };
    if row.may_have_been_sent() {
        return Some(lose_track(row, reason, now, rule));
    }
    if let Permission::Denied(_) = around.permission {
        return Some(rejected(identified(taken(row, rule), material, rule), reason));
    }
    let mut step = passing(identified(going_on(row, rule), material, rule))
        .moved(Event::AskApproval, Some(reason))
        .traced(Trace::with("in_flight", json!({ "reason": reason.code() })));
    step.record.due_at = now.after(around.approval_wait);
    step.asks_approval = true;
    Some(step)
}

/// Stays queued, marked as waiting, under the predecessor's row lock: the settle of the predecessor
/// needs that lock and then finds the mark. Its twins are asked for when its turn has come.
pub(super) fn wait_for_order(
    row: &Operation,
    material: &Material,
    now: Timestamp,
    rule: &AttemptRule,
) -> Step {
    // A predecessor that was opened again, or contradicted, can come before one that lost its
    // worker: without its dead lease, recovery does not ask for it again and again.
    let was_claimed = row.lease.is_some() || matches!(row.state, State::Claimed | State::Sent);
    let mut step =
        if was_claimed { taken(row, rule).moved(Event::Schedule, None) } else { Step::from(row) };
    if row.state == State::Held {
        // It waits for its turn now, and not for the end of a day.
        step = step.moved(Event::Release, None);
        step.record.due_at = now;
    }
    let mut step = identified(step, material, rule)
        .traced(Trace::with("in_flight", json!({ "reason": Reason::WaitingForOrder.code() })));
    step.record.reason = Some(recovery::kept_or(row, Reason::WaitingForOrder));
    if let Some(order) = &mut step.record.order {
        order.waiting = true;
    }
    step
}
