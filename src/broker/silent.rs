//! Tools whose queue gives no answer, remembered from one connection to the next.
//!
//! RabbitMQ 3.10 that is killed right after it declared a quorum queue may never serve that queue
//! again: a consume on it has no answer, and a minute later the broker ends the *whole* connection
//! that asked (`541 INTERNAL_ERROR`). So such a queue is asked again on a connection of its own,
//! less and less often. The memory outlives the connection, because the first to be ended that way
//! is the one that all tools share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// After a person has deleted such a queue it takes at most this long until it is declared again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The silent queues that one worker knows of. Clones share what they know.
#[derive(Clone, Debug, Default)]
pub struct SilentQueues(Arc<Mutex<BTreeMap<String, Silence>>>);

#[derive(Clone, Copy, Debug)]
struct Silence {
    pause: Duration,
    until: Instant,
}

impl SilentQueues {
    /// When the tool's queue may be asked again, if it is silent.
    pub(super) fn until(&self, tool: &str) -> Option<Instant> {
        self.lock().get(tool).map(|silence| silence.until)
    }

    /// The queue gave no answer (again).
    pub(super) fn no_answer(&self, tool: &str) {
        let mut silences = self.lock();
        let pause = silences
            .get(tool)
            .map_or(FIRST_PAUSE, |silence| (silence.pause * 2).min(LONGEST_PAUSE));
        silences.insert(tool.to_owned(), Silence { pause, until: Instant::now() + pause });
    }

    /// The queue answered: yes or no, but it answered.
    pub(super) fn answered(&self, tool: &str) {
        self.lock().remove(tool);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Silence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
