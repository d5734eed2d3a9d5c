//! Publishes what was taken, and gives every row its end: removed, given back, or parked.
//!
//! Whatever fails on the way, rows that were not sent are given back at once, and what is left
//! without an end comes back when its lease ends.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;
use uuid::Uuid;

use super::{Counts, Relay, RelayError, backoff, declare};
use crate::broker::{Broker, BrokerError, OutgoingMessage, PublishResult};
use crate::domain::parking::park;
use crate::domain::reason::Reason;
use crate::store::{self, StoreError, Taken, Unconfirmed};

/// A row that was due for longer than this tells the sweep when it was published. Half of the minute
/// after which the sweep takes a message for lost.
const LATE: Duration = Duration::from_secs(30);

/// A queue that is declared again in the very moment of its deletion is delivered to consumers of the
/// deleted one, which never see it (RabbitMQ 3.10). This long they have to hear of the deletion;
/// shorter than the first backoff of the message.
const BEFORE_DECLARING: Duration = Duration::from_millis(300);

impl Relay {
    /// Publishes `rows`, taken at `began`, a batch at a time.
    pub(super) async fn publish(
        &mut self,
        broker: &Broker,
        rows: &[Taken],
        began: Instant,
        counts: &mut Counts,
    ) -> Result<(), RelayError> {
        let size = usize::try_from(self.settings.batch).unwrap_or(500).max(1);
        let ours = self.settings.lease.saturating_sub(self.settings.broker.confirm_timeout);
        let mut rest = rows;
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at(size.min(rest.len()));
            let unsent = |row| unconfirmed(row, "not_sent");
            if began.elapsed() >= ours {
                // Confirms could come after the end of the lease, when another relay has the rows.
                return Ok(self.give_back(rest.iter().map(unsent).collect(), counts).await?);
            }
            let Some(publisher) = &mut self.publisher else {
                return Err(RelayError::Broker(BrokerError::Blocked));
            };
            let messages: Vec<OutgoingMessage> = batch.iter().map(message).collect();
            let sent = publisher.publish_batch(&messages).await;
            match sent {
                Ok(results) => self.settle(broker, batch, &results, counts).await?,
                Err(error) => {
                    // Nothing of it was sent: it need not wait for the end of the lease.
                    self.give_back(rest.iter().map(unsent).collect(), counts).await?;
                    return Err(error.into());
                }
            }
            rest = behind;
        }
        Ok(())
    }

    async fn settle(
        &mut self,
        broker: &Broker,
        rows: &[Taken],
        results: &[PublishResult],
        counts: &mut Counts,
    ) -> Result<(), RelayError> {
        self.windows.published(rows, results, Instant::now());
        let (mut confirmed, mut later, mut never) = (Vec::new(), Vec::new(), Vec::new());
        for (row, result) in rows.iter().zip(results) {
            match result {
                PublishResult::Confirmed => confirmed.push(row),
                PublishResult::Unroutable => later.push(unconfirmed(row, "unroutable")),
                PublishResult::Nacked => later.push(unconfirmed(row, "nacked")),
                PublishResult::Unconfirmed => later.push(unconfirmed(row, "unconfirmed")),
                PublishResult::Unpublishable(_) => never.push(row),
            }
        }
        self.remove(&confirmed, counts).await?;
        self.give_back(later, counts).await?;
        for row in never {
            match self.park(row).await {
                Ok(()) => counts.parked += 1,
                // The row comes back with its lease; the others are not held up.
                Err(error) => warn!(
                    operation_id = %row.operation,
                    error = &error as &dyn std::error::Error,
                    "an operation whose message cannot be published is not parked yet"
                ),
            }
        }
        for tool in repair(broker, rows, results).await? {
            self.windows.no_answer(tool, Instant::now());
        }
        Ok(())
    }

    async fn remove(&mut self, rows: &[&Taken], counts: &mut Counts) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        counts.confirmed += rows.len();
        let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
        let late = |row: &&&Taken| row.waited >= LATE || row.attempts > 0;
        let late: Vec<Uuid> = rows.iter().filter(late).map(|row| row.operation).collect();
        self.link
            .transaction(async |connection| {
                store::remove(connection, &ids).await?;
                if late.is_empty() {
                    return Ok(());
                }
                store::published_late(connection, &late).await
            })
            .await
    }

    async fn give_back(
        &mut self,
        rows: Vec<Unconfirmed>,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        counts.given_back += rows.len();
        warn!(
            rows = rows.len(),
            first = rows.first().map(|row| row.error),
            "messages not confirmed; kept for a later try"
        );
        self.link.transaction(async |connection| store::give_back(connection, &rows).await).await
    }

    /// Parks the record of a message that can never be put on the wire, and removes the row.
    async fn park(&mut self, row: &Taken) -> Result<(), StoreError> {
        warn!(operation_id = %row.operation, "message can never be published; its operation is parked");
        let (id, operation): (Uuid, Uuid) = (row.id, row.operation);
        self.link
            .transaction(async |connection| {
                let locked = store::lock_all(connection, &[operation]).await?;
                let step = locked
                    .first()
                    .and_then(|loaded| park(&loaded.operation, loaded.now, Reason::Unpublishable));
                store::write(connection, &step.iter().collect::<Vec<_>>()).await?;
                store::remove(connection, &[id]).await
            })
            .await?;
        Ok(())
    }
}

/// An unroutable message means that somebody took the queue or its binding away. Tells which queues
/// gave no answer.
async fn repair<'a>(
    broker: &Broker,
    rows: &'a [Taken],
    results: &[PublishResult],
) -> Result<Vec<&'a str>, RelayError> {
    let unroutable = rows.iter().zip(results).filter(|(_, r)| **r == PublishResult::Unroutable);
    let tools: BTreeSet<&str> = unroutable.map(|(row, _)| row.queue.as_str()).collect();
    if !tools.is_empty() {
        sleep(BEFORE_DECLARING).await;
    }
    let mut silent = Vec::new();
    for tool in tools {
        warn!(tool, "message was unroutable; declaring its queue again");
        if !declare(broker, tool).await? {
            silent.push(tool);
        }
    }
    Ok(silent)
}

fn message(row: &Taken) -> OutgoingMessage {
    OutgoingMessage {
        message_id: row.id,
        tool: row.queue.clone(),
        operation_id: row.operation,
        tenant: row.tenant.clone(),
        operation_key: row.key.clone(),
        traceparent: row.traceparent.clone(),
    }
}

pub(super) fn unconfirmed(row: &Taken, error: &'static str) -> Unconfirmed {
    Unconfirmed {
        id: row.id,
        leased_until: row.leased_until,
        wait: backoff(row.attempts.saturating_add(1), Duration::from_millis(500)),
        error,
    }
}
