//! Decides what becomes of a record that no worker can take at present: it is parked, visibly, and
//! goes on when what was missing is there.

use serde_json::json;

use super::lifecycle::{Event, Next, State, next};
use super::operation::{Operation, Timestamp};
use super::reason::Reason;
use super::step::{Step, Trace};

/// Parks the record for `reason`; `None` when it is past needing a worker, or a worker owns it.
#[must_use]
pub fn park(row: &Operation, now: Timestamp, reason: Reason) -> Option<Step> {
    if row.leased_at(now) || !matches!(next(row.state, Event::Park), Next::To(_)) {
        return None;
    }
    let parked = Trace::with("parked", json!({ "reason": reason.code() }));
    let mut step = Step::from(row);
    if row.state == State::Sent {
        // Its owner may still send, and the end of an earlier attempt says nothing of this one. How
        // long it may take the contract says that nobody here has: this change stands for its end.
        step.record.attempts_over_at = None;
    }
    Some(step.moved(Event::Park, Some(reason)).traced(parked))
}

/// A worker with the record's contract version has started: what waited for it is due.
#[must_use]
pub fn version_arrived(row: &Operation, now: Timestamp) -> Option<Step> {
    let waited = row.state == State::Parked && row.reason == Some(Reason::ContractVersionUnknown);
    let due = || {
        Step::from(row)
            .moved(Event::OperatorRetry, None)
            .traced(Trace::new("retry_scheduled"))
            .published(now)
    };
    waited.then(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::records::{NOW, SECOND, ago, lease_until, sent_operation};

    /// The end of an earlier attempt is not the end of one that its owner may still be making.
    #[test]
    fn parking_a_lost_send_keeps_no_end_of_an_earlier_one() {
        for state in State::ALL {
            let row = Operation {
                lease: lease_until(ago(SECOND)),
                attempts_over_at: Some(ago(SECOND)),
                ..sent_operation(state, SECOND)
            };
            let Some(step) = park(&row, NOW, Reason::ContractVersionUnknown) else { continue };
            let known = step.record.attempts_over_at.is_some();
            assert_eq!(known, state != State::Sent, "{state:?}");
            assert_eq!(step.record.first_sent_at, row.first_sent_at);
            let due = version_arrived(&step.record, NOW).unwrap();
            assert_eq!(due.record.attempts_over_at, step.record.attempts_over_at);
        }
    }
}
