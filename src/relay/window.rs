//! How many messages of each queue may still be published: the backlog waits in PostgreSQL.
//!
//! A queue's share is the window less what waits in the broker (its ready count at the last look
//! plus what this relay published since).
//!
//! A queue that gives no answer while others do (most of its replicas are gone, say) would make every
//! batch wait for its confirms. It gets single messages, less and less often, until one is answered.
//! In between it is neither declared nor looked at either.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::broker::{Broker, BrokerError, IF_UNSERVED, PublishResult};
use crate::store::Taken;

/// How often a queue is looked at while its window is nearly full, and while it is not.
const LOOK_WHEN_FULL: Duration = Duration::from_millis(25);
const LOOK_OTHERWISE: Duration = Duration::from_secs(1);

/// Longest time between two single messages for a queue that gives no answer. Each costs all queues
/// one confirm time-out.
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Window {
    ready: u32,
    published: u32,
    looked_at: Option<Instant>,
}

/// A queue that gave no answer while others did.
#[derive(Debug)]
struct Silent {
    pause: Duration,
    until: Instant,
}

#[derive(Debug)]
pub(super) struct Windows {
    size: u32,
    batch: u32,
    queues: BTreeMap<String, Window>,
    silent: BTreeMap<String, Silent>,
    learned_at: Option<Instant>,
}

impl Windows {
    pub(super) fn new(size: u32, batch: u32) -> Self {
        let (queues, silent) = (BTreeMap::new(), BTreeMap::new());
        Self { size: size.max(1), batch: batch.max(1), queues, silent, learned_at: None }
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
        let now = Instant::now();
        let mut silent = Vec::new();
        for (tool, window) in &mut self.queues {
            if is_silent(&self.silent, tool, now) {
                continue;
            }
            let full = window.ready.saturating_add(window.published) >= half.max(1);
            let every = if full { LOOK_WHEN_FULL } else { LOOK_OTHERWISE };
            // An idle queue is not looked at: nothing was published since.
            let idle = window.published == 0 && window.ready == 0;
            if window.looked_at.is_some_and(|at| idle || at.elapsed() < every) {
                continue;
            }
            let ready = match broker.ready_count(tool).await {
                Ok(ready) => ready,
                // Published to again only after it is declared: the message would be unroutable.
                Err(BrokerError::Missing { .. }) => {
                    if !super::declare_missing(broker, tool).await? {
                        silent.push(tool.clone());
                    }
                    0
                }
                Err(error @ BrokerError::Timeout { .. }) if !broker.blocked() => {
                    warn!(
                        tool,
                        error = &error as &dyn std::error::Error,
                        "queue cannot be looked at; taken for empty"
                    );
                    silent.push(tool.clone());
                    0
                }
                Err(error) if super::concerns_one_queue(&error) => {
                    warn!(
                        tool,
                        error = &error as &dyn std::error::Error,
                        "queue cannot be looked at; taken for empty"
                    );
                    0
                }
                Err(error) => return Err(error),
            };
            *window = Window { ready, published: 0, looked_at: Some(Instant::now()) };
        }
        for tool in silent {
            self.no_answer(&tool, Instant::now());
        }
        Ok(())
    }

    /// Whether a window is full.
    pub(super) fn full(&self) -> bool {
        self.queues.values().any(|window| self.left(window) == 0)
    }

    /// The queues with room, and how much.
    pub(super) fn rooms(&self, now: Instant) -> Vec<(String, i64)> {
        let share = self.batch.saturating_mul(4)
            / u32::try_from(self.queues.len()).unwrap_or(u32::MAX).max(1);
        let most = self.batch.min(share.max(10));
        let room = |(queue, window): (&String, &Window)| {
            let most = match self.silent.get(queue) {
                None => most,
                Some(silent) => u32::from(silent.until <= now),
            };
            (queue.clone(), i64::from(self.left(window).min(most)))
        };
        self.queues.iter().map(room).filter(|(_, room)| *room > 0).collect()
    }

    fn left(&self, window: &Window) -> u32 {
        self.size.saturating_sub(window.ready).saturating_sub(window.published)
    }

    /// Counts what was published, and which queues gave an answer.
    pub(super) fn published(&mut self, rows: &[Taken], results: &[PublishResult], now: Instant) {
        let (mut answered, mut unanswered) = (BTreeSet::new(), BTreeSet::new());
        for (row, result) in rows.iter().zip(results) {
            if let Some(window) = self.queues.get_mut(&row.queue) {
                window.published = window.published.saturating_add(1);
            }
            match result {
                PublishResult::Confirmed | PublishResult::Nacked | PublishResult::Unroutable => {
                    answered.insert(row.queue.as_str());
                }
                PublishResult::Unconfirmed => {
                    unanswered.insert(row.queue.as_str());
                }
                PublishResult::Unpublishable(_) => {}
            }
        }
        self.silent.retain(|queue, _| !answered.contains(queue.as_str()));
        for queue in unanswered.difference(&answered) {
            self.gave_no_answer(queue, !answered.is_empty(), now);
        }
    }

    /// The queue gave no answer to a declaration or a look, on a connection that stands.
    pub(super) fn no_answer(&mut self, queue: &str, now: Instant) {
        self.gave_no_answer(queue, true, now);
    }

    /// Whether the queue is left alone for now.
    pub(super) fn is_silent(&self, queue: &str, now: Instant) -> bool {
        is_silent(&self.silent, queue, now)
    }

    /// A queue alone in its silence is to blame; when no queue answers, the broker is.
    fn gave_no_answer(&mut self, queue: &str, others_did: bool, now: Instant) {
        let pause = match self.silent.get(queue) {
            Some(silent) => (silent.pause * 2).min(LONGEST_SILENCE),
            None if others_did => Duration::from_secs(5),
            None => return,
        };
        warn!(tool = queue, ?pause, "queue gives no answer; tried again later; {IF_UNSERVED}");
        self.silent.insert(queue.to_owned(), Silent { pause, until: now + pause });
    }
}

fn is_silent(silent: &BTreeMap<String, Silent>, queue: &str, now: Instant) -> bool {
    silent.get(queue).is_some_and(|silent| silent.until > now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::operation::Timestamp;
    use PublishResult::{Confirmed, Unconfirmed};

    fn windows() -> Windows {
        let mut windows = Windows::new(2_000, 500);
        windows.learn(["a", "b"].map(str::to_owned).into());
        windows
    }

    fn published(windows: &mut Windows, now: Instant, what: &[(&str, PublishResult)]) {
        let row = |queue: &str| Taken {
            id: uuid::Uuid::nil(),
            queue: queue.to_owned(),
            event: None,
            tenant: String::new(),
            operation: uuid::Uuid::nil(),
            key: String::new(),
            traceparent: None,
            attempts: 0,
            due_at: Timestamp(0),
            waited: Duration::ZERO,
            leased_until: Timestamp(0),
        };
        let rows: Vec<Taken> = what.iter().map(|(queue, _)| row(queue)).collect();
        let results: Vec<_> = what.iter().map(|(_, result)| *result).collect();
        windows.published(&rows, &results, now);
    }

    fn check(windows: &Windows, now: Instant, expected: &[(&str, i64)]) {
        let expected: Vec<_> = expected.iter().map(|(q, room)| ((*q).to_owned(), *room)).collect();
        assert_eq!(windows.rooms(now), expected);
    }

    #[test]
    fn a_queue_that_alone_gives_no_answer_gets_single_messages_less_and_less_often() {
        let (mut windows, mut now) = (windows(), Instant::now());
        check(&windows, now, &[("a", 500), ("b", 500)]);
        published(&mut windows, now, &[("a", Confirmed), ("b", Unconfirmed), ("b", Unconfirmed)]);
        check(&windows, now, &[("a", 500)]);
        now += Duration::from_secs(5);
        check(&windows, now, &[("a", 500), ("b", 1)]);
        published(&mut windows, now, &[("b", Unconfirmed)]);
        windows.forget();
        windows.learn(["a", "b"].map(str::to_owned).into());
        now += Duration::from_secs(9);
        check(&windows, now, &[("a", 500)]);
        now += Duration::from_secs(1);
        check(&windows, now, &[("a", 500), ("b", 1)]);
        published(&mut windows, now, &[("b", PublishResult::Nacked)]);
        check(&windows, now, &[("a", 500), ("b", 500)]);
    }

    #[test]
    fn when_no_queue_answers_the_broker_is_to_blame() {
        let (mut windows, now) = (windows(), Instant::now());
        published(&mut windows, now, &[("a", Unconfirmed), ("b", Unconfirmed)]);
        check(&windows, now, &[("a", 500), ("b", 500)]);
    }

    #[test]
    fn what_was_published_and_what_waits_take_room() {
        let (mut windows, now) = (Windows::new(3, 2), Instant::now());
        windows.learn(["a"].map(str::to_owned).into());
        check(&windows, now, &[("a", 2)]);
        published(&mut windows, now, &[("a", Confirmed), ("a", Unconfirmed)]);
        check(&windows, now, &[("a", 1)]);
        assert!(!windows.full());
        published(&mut windows, now, &[("a", Confirmed)]);
        check(&windows, now, &[]);
        assert!(windows.full());
    }
}
