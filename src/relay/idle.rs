//! How an idle relay sleeps: woken by a commit, else by polls that grow further apart.
//!
//! Notifications are a hint. A commit that asked "does a relay sleep?" right before it did, and
//! became visible right after the last scan, wakes nobody: the first polls after work are therefore
//! milliseconds apart.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::store::{DatabaseUrl, WakeUp};

/// The first wait after work.
const SHORTEST: Duration = Duration::from_millis(4);

/// Passes with work in a row after which commits need not notify.
const BUSY_PASSES: u32 = 8;

/// Between tries to get a listening connection.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Idle {
    url: Option<DatabaseUrl>,
    longest: Duration,
    wake: Option<WakeUp>,
    listened_at: Option<Instant>,
    wait: Duration,
    busy: u32,
}

impl Idle {
    pub(super) fn new(url: Option<DatabaseUrl>, longest: Duration) -> Self {
        Self { url, longest, wake: None, listened_at: None, wait: SHORTEST, busy: 0 }
    }

    /// After a pass that took `taken` rows: goes on at once, or sleeps until woken, until a delayed
    /// row falls due (`due`), or until the poll.
    pub(super) async fn after(
        &mut self,
        taken: usize,
        due: Option<Duration>,
        shutdown: &mut watch::Receiver<bool>,
    ) {
        if taken > 0 {
            self.wait = SHORTEST;
            self.busy = self.busy.saturating_add(1);
            if self.busy == BUSY_PASSES {
                self.tell(false).await;
            }
            return;
        }
        self.busy = 0;
        self.listen().await;
        let newly_asleep = self.tell(true).await;
        if newly_asleep {
            // Commits notify from now on; what committed before is found by one more scan.
            return;
        }
        let longest = self.wait.min(due.unwrap_or(self.longest)).max(Duration::from_millis(1));
        self.wait = (self.wait * 2).min(self.longest);
        tokio::select! {
            woken = wait(&mut self.wake, longest) => if woken { self.wait = SHORTEST },
            _ = shutdown.changed() => {}
        }
    }

    async fn listen(&mut self) {
        let Some(url) = &self.url else { return };
        if self.wake.is_some() || self.listened_at.is_some_and(|at| at.elapsed() < LISTEN_AGAIN) {
            return;
        }
        self.listened_at = Some(Instant::now());
        match WakeUp::listen(url).await {
            Ok(wake) => self.wake = Some(wake),
            Err(error) => debug!(
                error = &error as &dyn std::error::Error,
                "nobody wakes this relay; it polls"
            ),
        }
    }

    /// Tells committers whether this relay sleeps. True when it newly does.
    async fn tell(&mut self, asleep: bool) -> bool {
        let Some(wake) = &mut self.wake else { return false };
        let told =
            if asleep { wake.about_to_sleep().await } else { wake.awake().await.map(|()| false) };
        match told {
            Ok(newly) => newly,
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "wake-up connection lost; polling until it is back"
                );
                self.wake = None;
                false
            }
        }
    }
}

/// Waits; true when woken by a commit.
async fn wait(wake: &mut Option<WakeUp>, longest: Duration) -> bool {
    let Some(listening) = wake else {
        sleep(longest).await;
        return false;
    };
    match listening.wait(longest).await {
        Ok(woken) => woken,
        Err(error) => {
            warn!(
                error = &error as &dyn std::error::Error,
                "wake-up connection lost; polling until it is back"
            );
            *wake = None;
            false
        }
    }
}
