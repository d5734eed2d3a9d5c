//! How many messages of each queue may still be published: the backlog waits in PostgreSQL.
//!
//! A queue's share is the window less what waits in the broker (its ready count at the last look
//! plus what this relay published since).

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::broker::{Broker, BrokerError};
use crate::store::Taken;

/// How often a queue is looked at while its window is nearly full, and while it is not.
const LOOK_WHEN_FULL: Duration = Duration::from_millis(25);
const LOOK_OTHERWISE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Window {
    ready: u32,
    published: u32,
    looked_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Windows {
    size: u32,
    batch: u32,
    queues: BTreeMap<String, Window>,
    learned_at: Option<Instant>,
}

impl Windows {
    pub(super) fn new(size: u32, batch: u32) -> Self {
        Self { size: size.max(1), batch: batch.max(1), queues: BTreeMap::new(), learned_at: None }
    }

    /// How long ago the tools were asked for.
    pub(super) fn know_tools_since(&self) -> Duration {
        self.learned_at.map_or(Duration::MAX, |at| at.elapsed())
    }

    /// Takes the registered tools; answers those that are new here.
    pub(super) fn learn(&mut self, tools: HashSet<String>) -> Vec<String> {
        self.learned_at = Some(Instant::now());
        let new: Vec<String> =
            tools.into_iter().filter(|tool| !self.queues.contains_key(tool)).collect();
        for tool in &new {
            self.queues.insert(tool.clone(), Window { ready: 0, published: 0, looked_at: None });
        }
        new
    }

    /// Forgets what was learned of a broker that is gone; its queues are declared again.
    pub(super) fn forget(&mut self) {
        self.queues.clear();
        self.learned_at = None;
    }

    pub(super) fn queues(&self) -> Vec<String> {
        self.queues.keys().cloned().collect()
    }

    /// Looks at the queues whose count is old or whose window is nearly full.
    pub(super) async fn measure(&mut self, broker: &Broker) -> Result<(), BrokerError> {
        let half = self.size / 2;
        for (tool, window) in &mut self.queues {
            let full = window.ready.saturating_add(window.published) >= half.max(1);
            let every = if full { LOOK_WHEN_FULL } else { LOOK_OTHERWISE };
            // An idle queue is not looked at: nothing was published since.
            let idle = window.published == 0 && window.ready == 0;
            if window.looked_at.is_some_and(|at| idle || at.elapsed() < every) {
                continue;
            }
            match broker.ready_count(tool).await {
                Ok(ready) => {
                    *window = Window { ready, published: 0, looked_at: Some(Instant::now()) };
                }
                // Published to again only after it is declared: the message would be unroutable.
                Err(BrokerError::Missing { .. }) => super::declare_missing(broker, tool).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The queues with room, and how much.
    pub(super) fn rooms(&self) -> Vec<(String, i64)> {
        let share = self.batch.saturating_mul(4)
            / u32::try_from(self.queues.len()).unwrap_or(u32::MAX).max(1);
        let most = self.batch.min(share.max(10));
        let room = |window: &Window| {
            i64::from(
                self.size.saturating_sub(window.ready).saturating_sub(window.published).min(most),
            )
        };
        self.queues
            .iter()
            .map(|(queue, window)| (queue.clone(), room(window)))
            .filter(|(_, room)| *room > 0)
            .collect()
    }

    pub(super) fn published(&mut self, rows: &[Taken]) {
        for row in rows {
            if let Some(window) = self.queues.get_mut(&row.queue) {
                window.published = window.published.saturating_add(1);
            }
        }
    }
}
