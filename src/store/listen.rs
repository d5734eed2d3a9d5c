//! The wake-up of an idle relay: a hint, never the truth.
//!
//! While it sleeps, a relay holds an advisory lock on its own direct connection; a commit that finds
//! the lock held sends a notification (`oncebox.wake_relay`, ADR 0004). A lost notification costs
//! one poll interval, no more.

use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::time::{Instant, timeout};

use super::{DatabaseUrl, StoreError};

/// The advisory lock that says "a relay sleeps": the bytes of "oncebox" as a number.
const SLEEPING: i64 = 31_365_095_596_650_360;

/// No answer for so long: the connection is gone without a word, and whoever waits for it is stuck.
const ANSWER: Duration = Duration::from_secs(2);

/// Longest wait for the connection itself.
const CONNECT: Duration = Duration::from_secs(10);

/// How often a sleeping relay asks again, only to see that its connection still answers.
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// A direct connection that listens. Without one (behind a transaction pooler) the relay polls.
#[derive(Debug)]
pub struct WakeUp {
    listener: PgListener,
    /// When the lock was asked for and got.
    holds_since: Option<Instant>,
}

impl WakeUp {
    /// Connects and listens.
    ///
    /// # Errors
    /// Nobody will wake us; poll, and try again later.
    pub async fn listen(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(url.options("oncebox relay wake-up")?);
        let listening = async {
            let mut listener =
                PgListener::connect_with(&pool).await.map_err(StoreError::Connect)?;
            // A silent reconnect inside would lose notifications and the lock without our notice.
            listener.eager_reconnect(false);
            listener.listen("oncebox_outbox").await?;
            Ok(Self { listener, holds_since: None })
        };
        timeout(CONNECT, listening).await.map_err(|_| StoreError::Deadline)?
    }

    /// Says that this relay is about to sleep: commits from now on notify. True when it newly says so:
    /// scan once more.
    ///
    /// # Errors
    /// The connection is gone; make a new one.
    pub async fn about_to_sleep(&mut self) -> Result<bool, StoreError> {
        if self.holds_since.is_some_and(|asked| asked.elapsed() < ASK_AGAIN) {
            return Ok(false);
        }
        // False when another relay sleeps too: then commits notify already, and wake us all. False
        // also when a commit asks this very moment. So it is asked before every sleep until it is had.
        let asked = sqlx::query_scalar("select pg_try_advisory_lock($1)")
            .bind(SLEEPING)
            .fetch_one(&mut self.listener);
        let held: bool = timeout(ANSWER, asked).await.map_err(|_| StoreError::Deadline)??;
        let newly = held && self.holds_since.is_none();
        self.holds_since = held.then(Instant::now);
        Ok(newly)
    }

    /// Says that this relay works: commits need not notify.
    ///
    /// # Errors
    /// The connection is gone; make a new one.
    pub async fn awake(&mut self) -> Result<(), StoreError> {
        if self.holds_since.take().is_some() {
            let told = sqlx::query("select pg_advisory_unlock_all()").execute(&mut self.listener);
            timeout(ANSWER, told).await.map_err(|_| StoreError::Deadline)??;
        }
        Ok(())
    }

    /// Waits for a notification, at most `longest`. True when one came.
    ///
    /// # Errors
    /// The connection is gone; make a new one, then scan.
    pub async fn wait(&mut self, longest: Duration) -> Result<bool, StoreError> {
        match timeout(longest, self.listener.try_recv()).await {
            Err(_) => Ok(false),
            Ok(Ok(Some(_))) => {
                // One wake-up is enough for all that came together.
                while self.listener.next_buffered().is_some() {}
                Ok(true)
            }
            Ok(Ok(None)) => Err(StoreError::Deadline),
            Ok(Err(error)) => Err(StoreError::Connect(error)),
        }
    }
}
