//! Where a scan may begin.
//!
//! Rows that are gone leave dead index entries behind, and under an old snapshot nothing may remove
//! them: a scan from the beginning then walks over all that was ever published. The mark is a time
//! below which no row can be left and none can still commit: every transaction that could have
//! written one has ended. A row is dated when it is written, so one dated before the mark belongs to
//! a transaction that had begun before it.
//!
//! The mark is a hint. It starts from nothing, and at least every second (or, when that costs more
//! than a twentieth of the time, less often) a scan from the beginning finds what it may have
//! missed: a clock that jumped back, a row given up by a relay in the middle of its take.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::operation::Timestamp;
use crate::store::{Ask, Horizon, Taken};

/// What a row's date may lie before its transaction got an id: a date is read a moment before the
/// write that brings the id.
const SLACK: Duration = Duration::from_secs(2);

/// How often the horizon is looked at.
const HORIZON_EVERY: Duration = Duration::from_millis(500);

/// How often a scan begins at the beginning, at the least.
const FULL_SCAN_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Mark {
    /// Nothing dated before this can still commit.
    settled_before: Option<Timestamp>,
    /// Becomes `settled_before` when all transactions that had begun by then have ended.
    candidate: Option<Horizon>,
    looked_at: Option<Instant>,
    /// No row of the queue is left before this.
    from: HashMap<String, Timestamp>,
    full_scan_at: Option<Instant>,
    full_scan_cost: Duration,
    scanning_in_full: bool,
}

impl Mark {
    pub(super) fn wants_horizon(&self) -> bool {
        self.looked_at.is_none_or(|at| at.elapsed() >= HORIZON_EVERY)
    }

    pub(super) fn seen(&mut self, horizon: Horizon) {
        self.looked_at = Some(Instant::now());
        match self.candidate {
            Some(candidate) if horizon.ended_below < candidate.begun_below => {}
            Some(candidate) => {
                self.settled_before = Some(candidate.at.before(SLACK));
                self.candidate = Some(horizon);
            }
            None => self.candidate = Some(horizon),
        }
    }

    /// Where to begin in each queue that has room.
    pub(super) fn asks(&mut self, rooms: Vec<(String, i64)>) -> Vec<Ask> {
        let every = FULL_SCAN_EVERY.max(self.full_scan_cost.saturating_mul(20));
        self.scanning_in_full = self.full_scan_at.is_none_or(|at| at.elapsed() >= every);
        let begin = |queue: &String| {
            if self.scanning_in_full { None } else { self.from.get(queue).copied() }
        };
        rooms.into_iter().map(|(queue, room)| Ask { from: begin(&queue), queue, room }).collect()
    }

    /// Moves the marks after a scan: to what is settled, or to the last row taken where more may be
    /// left behind it.
    pub(super) fn scanned(&mut self, asks: &[Ask], rows: &[Taken], cost: Duration) {
        if self.scanning_in_full {
            self.full_scan_at = Some(Instant::now());
            self.full_scan_cost = cost;
        }
        let Some(settled) = self.settled_before else { return };
        for ask in asks {
            let taken = rows.iter().filter(|row| row.queue == ask.queue);
            let (count, last) =
                taken.fold((0_i64, None), |(count, _), row| (count + 1, Some(row.due_at)));
            let reached =
                if count < ask.room { settled } else { last.unwrap_or(settled).min(settled) };
            self.from.insert(ask.queue.clone(), reached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(at: i64, ended_below: i64, begun_below: i64) -> Horizon {
        Horizon { at: Timestamp(at * 1_000_000), ended_below, begun_below }
    }

    fn second(at: i64) -> Option<Timestamp> {
        Some(Timestamp(at * 1_000_000))
    }

    #[test]
    fn the_mark_waits_for_every_transaction_that_had_begun() {
        let mut mark = Mark::default();
        mark.seen(horizon(100, 7, 10));
        mark.seen(horizon(110, 9, 20));
        assert_eq!(mark.settled_before, None, "9 is still open");
        mark.seen(horizon(120, 10, 30));
        assert_eq!(mark.settled_before, second(98));
        mark.seen(horizon(130, 29, 40));
        assert_eq!(mark.settled_before, second(98));
        mark.seen(horizon(140, 40, 40));
        assert_eq!(mark.settled_before, second(118));
    }

    #[test]
    fn a_full_batch_holds_the_mark_at_its_last_row() {
        let mut mark = Mark { settled_before: second(98), ..Mark::default() };
        let asks = mark.asks(vec![("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert!(asks.iter().all(|ask| ask.from.is_none()), "the first scan is a full one");
        let row = |queue: &str, due: i64| Taken {
            id: uuid::Uuid::nil(),
            queue: queue.to_owned(),
            event: None,
            tenant: String::new(),
            operation: uuid::Uuid::nil(),
            key: String::new(),
            traceparent: None,
            attempts: 0,
            due_at: Timestamp(due * 1_000_000),
            waited: Duration::ZERO,
            leased_until: Timestamp(due * 1_000_000),
        };
        mark.scanned(&asks, &[row("a", 50), row("b", 60)], Duration::ZERO);
        let next = mark.asks(vec![("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(next.iter().map(|ask| ask.from).collect::<Vec<_>>(), [second(50), second(98)]);
    }
}
