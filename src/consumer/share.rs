//! A worker's view of a tool whose contract bounds the effects of all processes together.
//!
//! A hint and nothing more: it spares questions whose answer is known. What may start is counted in
//! the claim's transaction.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::chance::sample;
use crate::domain::places::{Seen, look_again, room};
use crate::store::LiveClaims;

/// One tool's bound and what was last seen of it.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) total: u32,
    view: Mutex<View>,
}

#[derive(Debug, Default)]
struct View {
    seen: Seen,
    /// When it is old. `None`: nothing has been seen yet.
    old_at: Option<Instant>,
    /// Claims in a row that found no place.
    refusals: u32,
    /// How many places of this worker have become free.
    freed: u64,
}

impl Share {
    pub(super) fn new(total: u32) -> Self {
        Self { total, view: Mutex::default() }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many to ask for while `running` run here.
    pub(super) fn room(&self, running: u32) -> u32 {
        let view = self.view();
        let old = view.old_at.is_some_and(|at| at <= Instant::now());
        room(self.total, running, Seen { old, ..view.seen })
    }

    /// When to ask again, whatever becomes free here.
    pub(super) fn old_at(&self) -> Option<Instant> {
        self.view().old_at
    }

    /// A place of this worker is free: whoever waits here asks at once.
    pub(super) fn freed(&self) {
        let mut view = self.view();
        view.freed = view.freed.wrapping_add(1);
        view.refusals = 0;
        view.seen.refused = false;
    }

    /// A mark for [`Self::counted`], to be taken before the count.
    pub(super) fn freed_so_far(&self) -> u64 {
        self.view().freed
    }

    /// What a claim saw; `None`: another worker was counting. `refused`: not all that was asked for
    /// found a place, `started`: some did. A place that became free since `before` may have been
    /// counted as taken.
    pub(super) fn counted(
        &self,
        live: Option<LiveClaims>,
        before: u64,
        refused: bool,
        started: bool,
    ) {
        let mut view = self.view();
        view.refusals = match live {
            Some(_) if refused && !started => view.refusals.saturating_add(1),
            Some(_) => 1,
            None => 0,
        };
        if let Some(live) = live {
            view.seen.elsewhere = live.elsewhere;
        }
        view.seen.refused = refused && view.freed == before;
        view.old_at = Some(Instant::now() + look_again(view.refusals, sample()));
    }
}
