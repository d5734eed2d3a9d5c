//! How many operations of one tool may start, where its contract bounds all processes together.
//!
//! [`Places`] decides, from a count of the live claims that nobody can add to before the answer is
//! written. [`room`] is only how much a worker asks for between two counts: what it saw may be old,
//! and a mistake costs a question, never an effect too many.

use std::time::Duration;

/// What a tool's live claims leave free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    free: u32,
}

impl Places {
    /// Nothing may start: the claims could not be counted.
    pub const NONE: Self = Self { free: 0 };

    /// `live` claims stand, of at most `total`. More stand where the bound was lowered, or where
    /// processes have different contract files; then nothing starts until enough have ended.
    #[must_use]
    pub fn left(total: u32, live: u32) -> Self {
        Self { free: total.saturating_sub(live) }
    }

    /// Whether none is free.
    #[must_use]
    pub fn full(self) -> bool {
        self.free == 0
    }

    /// Takes one, if one is free.
    #[must_use]
    pub fn take(&mut self) -> bool {
        let free = !self.full();
        self.free = self.free.saturating_sub(1);
        free
    }
}

/// What a worker saw when its last claim was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Live claims of other workers.
    pub elsewhere: u32,
    /// There were too few places for what was asked, and none of the worker's own has become free.
    pub refused: bool,
    /// So long ago that places of other workers may have become free.
    pub old: bool,
}

/// How many operations a worker with `running` of its own asks for. With an old view one goes first,
/// to see: a backlog is not examined message by message while there is no place for it.
#[must_use]
pub fn room(total: u32, running: u32, seen: Seen) -> u32 {
    let own = total.saturating_sub(running);
    let free = own.saturating_sub(seen.elsewhere);
    match (seen.old, seen.refused) {
        (true, _) => free.max(1).min(own),
        (false, true) => 0,
        (false, false) => free,
    }
}

/// When another worker was just counting. Its transaction takes a few milliseconds.
const COUNTED_BY_ANOTHER: Duration = Duration::from_millis(20);

/// After the first refusal: what a place costs at most that another worker freed and this one could
/// use. A worker that frees one itself asks at once.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// Doublings of [`FIRST_LOOK`], so that workers which find no place for long ask about once a second.
const MOST_DOUBLINGS: u32 = 4;

/// How long a view stays fresh after `refusals` in a row, none being a count that could not be made
/// because another worker made one. `jitter` is a sample from 0 to 1: workers do not ask in step.
#[must_use]
pub fn look_again(refusals: u32, jitter: f64) -> Duration {
    let wait = match refusals.checked_sub(1) {
        None => COUNTED_BY_ANOTHER,
        Some(more) => FIRST_LOOK.saturating_mul(2_u32.saturating_pow(more.min(MOST_DOUBLINGS))),
    };
    wait.mul_f64(0.5 + jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_start_than_places_are_free() {
        let check = |total, live, starts: usize| {
            let mut places = Places::left(total, live);
            let taken = (0..10).filter(|_| places.take()).count();
            assert_eq!(taken, starts, "{live} of {total} stand");
            assert!(places.full());
        };
        check(3, 0, 3);
        check(3, 2, 1);
        check(3, 3, 0);
        check(3, 5, 0);
        check(1, 0, 1);
        assert!(Places::NONE.full() && !Places::left(1, 0).full());
    }

    #[test]
    fn a_worker_asks_for_what_may_be_free() {
        let check = |running, elsewhere, refused, old, asks| {
            let seen = Seen { elsewhere, refused, old };
            assert_eq!(room(3, running, seen), asks, "{running} run, {seen:?}");
        };
        check(0, 0, false, false, 3);
        check(1, 1, false, false, 1);
        check(0, 3, false, false, 0);
        // One was refused: the next is asked for when the view is old, or a place of its own is free.
        check(0, 0, true, false, 0);
        check(0, 3, true, true, 1);
        check(2, 3, false, true, 1);
        // Places that other workers had may all be free by now, but one goes first.
        check(0, 1, true, true, 2);
        // It has them all itself: nothing can be free.
        check(3, 0, false, true, 0);
        check(4, 0, true, true, 0);
    }

    #[test]
    fn looks_grow_rarer_up_to_about_a_second() {
        let check = |refusals, millis: u64| {
            assert_eq!(look_again(refusals, 0.5), Duration::from_millis(millis));
        };
        check(0, 20);
        check(1, 50);
        check(2, 100);
        check(5, 800);
        check(u32::MAX, 800);
        assert_eq!(look_again(1, 0.0), Duration::from_millis(25));
        assert_eq!(look_again(1, 1.0), Duration::from_millis(75));
    }
}
