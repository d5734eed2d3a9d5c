//! What nobody works on: published again, under bounds, so that losing every message in the broker
//! loses no operation; and dead letters, kept where they can be looked at.
//!
//! - `sweep`: queued or scheduled, due, no outbox row, last message older than a minute doubled with
//!   each sweep. `maintain.page` records a pass, in the order of their last message.
//! - expired leases: at once.
//! - what waits for a date: a job's poll, an unanswered request for approval, a held twin.
//! - waiters of an ordering key whose turn has come: their wake-up is part of the settle before
//!   them, so this finds only what a fault lost.
//! - `oncebox.dead` is drained into `dead_letters`.
//!
//! Any number of processes may do it: each row is locked, looked at again and counted in the
//! statement that publishes it.

mod dead;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::broker::BrokerSettings;
use crate::shutdown;
use crate::store::{self, DatabaseUrl, Link, Looked, StoreError};

/// Least age of a waiter's last message before it is published from here.
const WAITER_AGE_SECONDS: f64 = 5.0;

/// How maintain works.
#[derive(Debug, Clone)]
pub struct MaintainSettings {
    /// The database.
    pub database: DatabaseUrl,
    /// The broker, on a connection for draining dead letters alone.
    pub broker: BrokerSettings,
    /// Between passes. Default 1 s.
    pub every: Duration,
    /// Records that one pass looks at. Default 5,000.
    pub page: u32,
}

/// What one pass published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records whose message was lost.
    pub swept: u64,
    /// Records whose lease ran out.
    pub expired: u64,
    /// Records whose turn had come.
    pub waiters: u64,
    /// Records whose date had come.
    pub dated: u64,
}

/// The sweeper: one database connection and where its sweep goes on.
#[derive(Debug)]
pub struct Sweeper {
    link: Link,
    page: i64,
    from: Option<Looked>,
}

/// Runs the sweep and the drain until `shutdown` says stop. Reconnects by itself, for ever.
pub async fn run(settings: MaintainSettings, mut shutdown: watch::Receiver<bool>) {
    let drain = tokio::spawn(dead::run(settings.clone(), shutdown.clone()));
    let mut sweeper = Sweeper::new(&settings.database, settings.page);
    while !shutdown::is_asked(&shutdown) {
        match sweeper.run_once().await {
            Ok(counts) if counts == Counts::default() => {}
            Ok(Counts { swept, expired, waiters, dated }) => {
                info!(swept, expired, waiters, dated, "published again")
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "sweep failed; trying again")
            }
        }
        drop(timeout(settings.every, shutdown::asked(&mut shutdown)).await);
    }
    drop(drain.await);
}

impl Sweeper {
    /// A sweeper that connects at its first pass.
    #[must_use]
    pub fn new(database: &DatabaseUrl, page: u32) -> Self {
        Self {
            link: Link::new(database, "maintain", Duration::from_secs(30)),
            page: i64::from(page.max(1)),
            from: None,
        }
    }

    /// One pass. A part that fails does not keep the others from their work.
    ///
    /// # Errors
    /// What the other parts published stays published; the rest is found by the next pass.
    pub async fn run_once(&mut self) -> Result<Counts, StoreError> {
        let (page, from) = (self.page, self.from);
        let expired = self
            .link
            .transaction(async |connection| store::publish_expired_leases(connection, page).await)
            .await;
        let swept = self
            .link
            .transaction(async |connection| store::sweep(connection, from, page).await)
            .await;
        if let Ok(swept) = swept {
            self.from = swept.next;
        }
        let waiters = self
            .link
            .transaction(async |connection| {
                store::publish_waiters(connection, WAITER_AGE_SECONDS, page).await
            })
            .await;
        let dated = self
            .link
            .transaction(async |connection| {
                store::publish_dated(connection, WAITER_AGE_SECONDS, page).await
            })
            .await;
        let swept = swept?.published;
        Ok(Counts { swept, expired: expired?, waiters: waiters?, dated: dated? })
    }
}
