//! Result events, beside the operations: one batch at a time, in a task of its own and over a channel
//! of its own, so that no operation waits for whatever becomes of it.
//!
//! What may go wrong: the exchange is gone or declared otherwise, or a listener's queue gives no
//! confirm. The events then wait in the outbox, and single ones are tried, less and less often,
//! until one is answered. An event may be published twice, under the same message id.
//!
//! Absent on purpose: `mandatory` (no listener is not an error), a window (whose queues these are is
//! not known here), giving up.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{error, warn};
use uuid::Uuid;

use super::publish::unconfirmed;
use super::{Counts, Relay, backoff};
use crate::broker::{Broker, BrokerError, EventPublisher, OutgoingEvent, PublishResult};
use crate::store::{self, Noted, RESULTS, StoreError, Taken, Unconfirmed};

/// The first wait after a failure; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// What a task comes back with.
#[derive(Debug)]
struct Ended {
    /// Can be used again if the batch ended completely.
    publisher: Option<EventPublisher>,
    rows: Vec<Taken>,
    results: Result<Vec<PublishResult>, BrokerError>,
}

/// The channel of result events: waits to be opened, is free, or is under way in a task.
#[derive(Debug, Default)]
pub(super) struct Results {
    publisher: Option<EventPublisher>,
    /// At most one. It ends with the relay.
    under_way: JoinSet<Ended>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Results {
    /// What was learned of a broker that is gone says nothing about the next one.
    pub(super) fn forget(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    /// How many events may be taken now.
    pub(super) fn room(&self, batch: u32) -> Option<(String, i64)> {
        let usable = self.publisher.as_ref().is_some_and(EventPublisher::is_usable);
        let most = if self.failures == 0 { batch } else { 1 };
        let free = usable && self.under_way.is_empty() && !self.waits();
        free.then(|| (RESULTS.to_owned(), i64::from(most)))
    }

    fn waits(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// Begins to open a channel if there is none, which also declares the exchange: listeners may
    /// bind to it before there is an event.
    pub(super) fn open(&mut self, broker: &Broker) {
        let usable = self.publisher.as_ref().is_some_and(EventPublisher::is_usable);
        if usable || !self.under_way.is_empty() || self.waits() {
            return;
        }
        self.publisher = None;
        let broker = broker.clone();
        self.under_way.spawn(async move {
            let (publisher, results) = match EventPublisher::open(&broker).await {
                Ok(publisher) => (Some(publisher), Ok(Vec::new())),
                Err(error) => (None, Err(error)),
            };
            Ended { publisher, rows: Vec::new(), results }
        });
    }

    /// Begins to publish `rows`. Without a channel they come back when their lease ends.
    pub(super) fn publish(&mut self, rows: Vec<Taken>) {
        if rows.is_empty() {
            return;
        }
        let Some(mut publisher) = self.publisher.take() else { return };
        self.under_way.spawn(async move {
            let events: Vec<OutgoingEvent> = rows.iter().filter_map(event).collect();
            let results = publisher.publish_batch(&events).await;
            Ended { publisher: Some(publisher), rows, results }
        });
    }

    /// What has ended meanwhile.
    fn ended(&mut self) -> Option<Ended> {
        let ended = self.under_way.try_join_next()?;
        self.learn(ended)
    }

    /// Waits for what is under way, but not longer than for a confirm.
    async fn last(&mut self, confirm_timeout: Duration) -> Option<Ended> {
        let ended = timeout(confirm_timeout, self.under_way.join_next()).await.ok()??;
        self.learn(ended)
    }

    fn learn(&mut self, ended: Result<Ended, tokio::task::JoinError>) -> Option<Ended> {
        let mut ended = match ended {
            Ok(ended) => ended,
            Err(fault) => {
                error!(%fault, "a batch of result events was lost; it comes back with its lease");
                return None;
            }
        };
        self.publisher = ended.publisher.take();
        let answered = |result: &PublishResult| match result {
            PublishResult::Confirmed | PublishResult::Nacked | PublishResult::Unroutable => true,
            PublishResult::Unconfirmed | PublishResult::Unpublishable(_) => false,
        };
        let unanswered = |results: &[PublishResult]| {
            results.contains(&PublishResult::Unconfirmed) && !results.iter().any(answered)
        };
        match &ended.results {
            Ok(results) if unanswered(results) => self.failed("no confirm", None),
            Ok(results) if results.iter().any(answered) => self.forget(),
            Ok(_) => {}
            Err(error) => self.failed("not sent", Some(error)),
        }
        Some(ended)
    }

    fn failed(&mut self, what: &str, why: Option<&BrokerError>) {
        self.failures = self.failures.saturating_add(1);
        let wait = backoff(self.failures, FIRST_WAIT);
        self.not_before = Some(Instant::now() + wait);
        warn!(
            error = why.map(|why| why as &dyn std::error::Error),
            failures = self.failures,
            "result events cannot be published ({what}); they wait in the outbox"
        );
    }
}

impl Relay {
    /// Gives each row of a batch that has ended its end.
    pub(super) async fn settle_events(&mut self, counts: &mut Counts) -> Result<(), StoreError> {
        match self.results.ended() {
            Some(ended) => self.settle_batch(ended, counts).await,
            None => Ok(()),
        }
    }

    /// The same for what is still under way when the relay stops.
    pub(super) async fn settle_last_events(&mut self) -> Result<(), StoreError> {
        let longest = self.settings.broker.confirm_timeout;
        match self.results.last(longest).await {
            Some(ended) => self.settle_batch(ended, &mut Counts::default()).await,
            None => Ok(()),
        }
    }

    async fn settle_batch(&mut self, ended: Ended, counts: &mut Counts) -> Result<(), StoreError> {
        let (mut gone, mut later, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        let results = ended.results.unwrap_or_default();
        for (at, row) in ended.rows.iter().enumerate() {
            match results.get(at) {
                Some(PublishResult::Confirmed) => gone.push(row.id),
                Some(PublishResult::Unpublishable(why)) => {
                    gone.push(row.id);
                    notes.push(unpublishable(row, why.code()));
                }
                Some(PublishResult::Unroutable) => later.push(unconfirmed(row, "unroutable")),
                Some(PublishResult::Nacked) => later.push(unconfirmed(row, "nacked")),
                Some(PublishResult::Unconfirmed) => later.push(unconfirmed(row, "unconfirmed")),
                None => later.push(unconfirmed(row, "not_sent")),
            }
        }
        counts.confirmed += gone.len() - notes.len();
        counts.given_back += later.len();
        self.end_events(&gone, &later, notes).await
    }

    async fn end_events(
        &mut self,
        gone: &[Uuid],
        later: &[Unconfirmed],
        notes: Vec<Noted>,
    ) -> Result<(), StoreError> {
        if gone.is_empty() && later.is_empty() {
            return Ok(());
        }
        self.link
            .transaction(async |connection| {
                store::note(connection, notes.clone()).await?;
                store::remove(connection, gone).await?;
                store::give_back(connection, later).await
            })
            .await
    }
}

/// An event that can never be put on the wire. Its operation has ended and is not touched; the trace
/// keeps what the listeners missed.
fn unpublishable(row: &Taken, why: &'static str) -> Noted {
    error!(operation_id = %row.operation, why, "result event can never be published; given up");
    Noted {
        operation: row.operation,
        event: "result_unpublishable",
        epoch: 0,
        owner: None,
        detail: Some(format!("{{\"why\":\"{why}\"}}")),
    }
}

fn event(row: &Taken) -> Option<OutgoingEvent> {
    let event = row.event.as_ref()?;
    Some(OutgoingEvent {
        message_id: row.id,
        routing_key: event.routing_key.clone(),
        body: event.body.clone(),
        tenant: row.tenant.clone(),
        operation_key: row.key.clone(),
        traceparent: row.traceparent.clone(),
    })
}
