//! How many calls are in work, and how many were at the worst moment.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Gauge {
    now: AtomicU64,
    most: AtomicU64,
}

impl Gauge {
    /// One more is in work, until the answer is dropped: also when its caller went away.
    pub(crate) fn enter(&self) -> impl Drop + '_ {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        AtWork(self)
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }
}

struct AtWork<'a>(&'a Gauge);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}
