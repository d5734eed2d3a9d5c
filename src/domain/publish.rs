//! Decides what becomes of a record whose message can never be put on the wire.

use serde_json::json;

use super::lifecycle::{Event, Next, next};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
use super::step::{Step, Trace};

/// Parks the record, so that an operator sees it; `None` when it is past needing a message, or a
/// worker owns it.
#[must_use]
pub fn unpublishable(row: &Operation, now: Timestamp) -> Option<Step> {
    if row.leased_at(now) || !matches!(next(row.state, Event::Park), Next::To(_)) {
        return None;
    }
    let reason = Reason::Unpublishable;
    let parked = Trace::with("parked", json!({ "reason": reason.code() }));
    Some(Step::from(row).moved(Event::Park, Some(reason)).traced(parked))
}
