//! How an idle relay sleeps: woken by a commit, else by polls that grow further apart.
//!
//! Notifications are a hint. A commit that asked "does a relay sleep?" right before it did, and
//! became visible right after the last scan, wakes nobody: the first polls after work are therefore
//! milliseconds apart.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::Counts;
use crate::shutdown;
use crate::store::{DatabaseUrl, StoreError, WakeUp};

/// The first wait after work.
const SHORTEST: Duration = Duration::from_millis(4);

/// Longest wait while a window is full: its consumers set the pace, and must not run dry.
const WHILE_FULL: Duration = Duration::from_millis(100);

/// Passes with work in a row after which commits need not notify.
const BUSY_PASSES: u32 = 8;

/// Between tries to get a listening connection.
const LISTEN_AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Idle {
    url: Option<DatabaseUrl>,
    longest: Duration,
    wake: Option<WakeUp>,
    /// A connection on its way. Made beside the passes: a server that does not answer there must
    /// not keep rows waiting.
    connecting: Option<JoinHandle<Result<WakeUp, StoreError>>>,
    tried_at: Option<Instant>,
    wait: Duration,
    busy: u32,
}

impl Idle {
    pub(super) fn new(url: Option<DatabaseUrl>, longest: Duration) -> Self {
        let (wake, connecting, tried_at) = (None, None, None);
        Self { url, longest, wake, connecting, tried_at, wait: SHORTEST, busy: 0 }
    }

    /// After a pass: goes on at once, or sleeps until woken, until a delayed row falls due (`due`),
    /// or until the poll.
    pub(super) async fn after(
        &mut self,
        pass: Counts,
        due: Option<Duration>,
        shutdown: &mut watch::Receiver<bool>,
    ) {
        if pass.taken > 0 {
            self.wait = SHORTEST;
            self.busy = self.busy.saturating_add(1);
            if self.busy >= BUSY_PASSES {
                self.tell(false).await;
            }
            return;
        }
        self.busy = 0;
        let listens_newly = self.listen().await;
        // A full window is no rest: what commits now waits behind a backlog, and need not notify.
        let newly_asleep = self.tell(!pass.full).await;
        if listens_newly || newly_asleep {
            // Commits notify from now on; what committed before is found by one more scan.
            return;
        }
        let longest = if pass.full { WHILE_FULL.min(self.longest) } else { self.longest };
        let wait = self.wait.min(longest).min(due.unwrap_or(longest));
        self.wait = (self.wait * 2).min(longest);
        tokio::select! {
            woken = wait_for(&mut self.wake, wait.max(Duration::from_millis(1))) => {
                if woken {
                    self.wait = SHORTEST;
                }
            }
            () = shutdown::asked(shutdown) => {}
        }
    }

    /// Sees to it that this relay listens. True when it newly does.
    async fn listen(&mut self) -> bool {
        let Some(url) = &self.url else { return false };
        if self.wake.is_some() {
            return false;
        }
        if let Some(task) = self.connecting.take_if(|task| task.is_finished()) {
            match task.await {
                Ok(Ok(wake)) => self.wake = Some(wake),
                Ok(Err(error)) => debug!(
                    error = &error as &dyn std::error::Error,
                    "nobody wakes this relay; it polls"
                ),
                Err(fault) => debug!(%fault, "nobody wakes this relay; it polls"),
            }
            return self.wake.is_some();
        }
        if self.connecting.is_none() && self.tried_at.is_none_or(|at| at.elapsed() >= LISTEN_AGAIN)
        {
            let url = url.clone();
            self.tried_at = Some(Instant::now());
            self.connecting = Some(tokio::spawn(async move { WakeUp::listen(&url).await }));
        }
        false
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
async fn wait_for(wake: &mut Option<WakeUp>, longest: Duration) -> bool {
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
