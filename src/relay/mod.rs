//! Outbox rows → RabbitMQ with confirms → removed.
//!
//! A pass takes due rows (their `due_at` moves ahead by the relay's lease), publishes them as one
//! batch, and removes those that the broker confirmed. Result events go beside them (`results`). No database transaction or row lock is held
//! while the broker is awaited. Any number of relays run side by side: no leader, and all they
//! remember is a hint (`mark`, `window`) that may be lost at any time.
//!
//! What may go wrong: a row is published twice (a relay that died or stalled between the publish and
//! the removal), under the same message id; consumers absorb it. A row is never lost: it goes only
//! after its own confirm.
//!
//! Absent on purpose: order (the claim keeps it), giving up (a row that fails because of the broker
//! is tried for ever), and decisions about operations, except that a message which can never be put
//! on the wire parks its record.

mod idle;
mod mark;
mod publish;
mod results;
mod window;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};
use uuid::Uuid;

use crate::broker::{Broker, BrokerError, BrokerSettings, Publisher};
use crate::shutdown;
use crate::store::{self, Ask, DatabaseUrl, Link, RESULTS, StoreError};
use idle::Idle;
use mark::Mark;
use results::Results;
use window::Windows;

/// How a relay works.
#[derive(Debug, Clone)]
pub struct RelaySettings {
    /// The database.
    pub database: DatabaseUrl,
    /// A direct connection for wake-ups; `None`: poll.
    pub listen: Option<DatabaseUrl>,
    /// The broker, on a connection for publishing alone.
    pub broker: BrokerSettings,
    /// Messages of one queue kept ahead of its consumers. Default 2,000.
    pub window: u32,
    /// Rows of one publish. Default 500.
    pub batch: u32,
    /// Longest sleep of an idle relay. Default 1 s.
    pub poll: Duration,
    /// How long taken rows are ours. Must outlast the confirm time-out. Default 30 s.
    pub lease: Duration,
}

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows taken.
    pub taken: usize,
    /// Rows confirmed and removed.
    pub confirmed: usize,
    /// Rows given back for a later try.
    pub given_back: usize,
    /// Rows whose record was parked.
    pub parked: usize,
    /// Whether a queue has as many messages ahead of its consumers as it may have.
    pub full: bool,
}

/// Why a pass did not come to its end. What was taken and not removed comes back by itself.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The database failed.
    #[error("relay: the outbox cannot be worked on")]
    Store(#[from] StoreError),
    /// The broker failed; rows are not taken until it answers.
    #[error("relay: the broker cannot be published to")]
    Broker(#[from] BrokerError),
}

/// One relay: a database connection, a broker connection, and hints.
#[derive(Debug)]
pub struct Relay {
    settings: RelaySettings,
    link: Link,
    broker: Option<Broker>,
    publisher: Option<Publisher>,
    windows: Windows,
    results: Results,
    mark: Mark,
    strangers_at: Option<Instant>,
}

/// How often rows are looked for whose queue belongs to no registered tool. Nothing of ours writes
/// such rows; when a person does, they wait visibly instead of silently.
const STRANGERS_EVERY: Duration = Duration::from_secs(10);

/// Longest wait before a row that was not confirmed is tried again, and between connection tries.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Runs a relay until `shutdown` says stop. Reconnects by itself, for ever.
pub async fn run(settings: RelaySettings, mut shutdown: watch::Receiver<bool>) {
    let mut relay = Relay::new(settings);
    let mut idle = Idle::new(relay.settings.listen.clone(), relay.settings.poll);
    let mut failures = 0_u32;
    while !shutdown::is_asked(&shutdown) {
        match relay.run_once().await {
            Ok(counts) => {
                if failures > 0 {
                    info!("relay works again");
                }
                failures = 0;
                let due = if counts.taken == 0 { relay.next_due().await } else { None };
                idle.after(counts, due, &mut shutdown).await;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                warn!(
                    error = &error as &dyn std::error::Error,
                    failures, "relay pass failed; trying again"
                );
                let wait = backoff(failures, Duration::from_millis(100));
                drop(timeout(wait, shutdown::asked(&mut shutdown)).await);
            }
        }
    }
    if let Err(error) = relay.settle_last_events().await {
        warn!(
            error = &error as &dyn std::error::Error,
            "the last result events will be published once more"
        );
    }
    if let Some(broker) = relay.broker.take() {
        broker.close().await;
    }
}

impl Relay {
    /// A relay that connects at its first pass.
    #[must_use]
    pub fn new(settings: RelaySettings) -> Self {
        let link = Link::new(&settings.database, "relay", Duration::from_secs(20));
        let windows = Windows::new(settings.window, settings.batch);
        Self {
            settings,
            link,
            broker: None,
            publisher: None,
            windows,
            results: Results::default(),
            mark: Mark::default(),
            strangers_at: None,
        }
    }

    /// One pass: take, publish, remove.
    ///
    /// # Errors
    /// Nothing is lost: what was taken comes back when its lease ends.
    pub async fn run_once(&mut self) -> Result<Counts, RelayError> {
        let mut counts = Counts::default();
        self.settle_events(&mut counts).await?;
        let broker = self.connected().await?;
        self.results.open(&broker);
        self.learn_tools(&broker).await?;
        self.windows.measure(&broker).await?;
        counts.full = self.windows.full();
        let asks = self.asks().await?;
        if asks.is_empty() {
            return Ok(counts);
        }
        let lease = self.settings.lease;
        let began = Instant::now();
        let rows = self
            .link
            .transaction(async |connection| store::take(connection, &asks, lease).await)
            .await?;
        self.mark.scanned(&asks, &rows, began.elapsed());
        counts.taken = rows.len();
        let (events, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.event.is_some());
        self.results.publish(events);
        self.publish(&broker, &rows, began, &mut counts).await?;
        Ok(counts)
    }

    /// How long until the next delayed row falls due.
    async fn next_due(&mut self) -> Option<Duration> {
        let (mut queues, within) = (self.windows.queues(), self.settings.poll);
        queues.push(RESULTS.to_owned());
        self.link
            .transaction(async |connection| store::next_due(connection, &queues, within).await)
            .await
            .ok()
            .flatten()
    }

    /// The broker and a publisher that can be used; nothing is taken before both are there.
    async fn connected(&mut self) -> Result<Broker, RelayError> {
        let broker = match self.broker.take().filter(Broker::is_usable) {
            Some(broker) => broker,
            None => {
                self.publisher = None;
                self.windows.forget();
                self.results.forget();
                Broker::connect(&self.settings.broker).await?
            }
        };
        self.broker = Some(broker.clone());
        if !self.publisher.as_ref().is_some_and(Publisher::is_usable) {
            self.publisher = Some(Publisher::open(&broker).await?);
            self.windows.forget();
        }
        if broker.blocked() {
            return Err(RelayError::Broker(BrokerError::Blocked));
        }
        Ok(broker)
    }

    /// Learns of registered tools, and of queues that rows wait for all the same, and declares
    /// them, so that nothing is unroutable for want of a worker.
    async fn learn_tools(&mut self, broker: &Broker) -> Result<(), RelayError> {
        if self.windows.know_tools_since() < self.settings.poll {
            return Ok(());
        }
        let mut tools = self.link.statement(store::tools).await?;
        if self.strangers_at.is_none_or(|at| at.elapsed() >= STRANGERS_EVERY) {
            self.strangers_at = Some(Instant::now());
            tools.extend(self.link.transaction(store::waiting_queues).await?);
        }
        for tool in self.windows.learn(tools) {
            // One that is silent was declared before.
            if !self.windows.is_silent(&tool, Instant::now()) && !declare(broker, &tool).await? {
                self.windows.no_answer(&tool, Instant::now());
            }
        }
        Ok(())
    }

    async fn asks(&mut self) -> Result<Vec<Ask>, RelayError> {
        if self.mark.wants_horizon() {
            let horizon = self.link.statement(store::horizon).await?;
            self.mark.seen(horizon);
        }
        let mut rooms = self.windows.rooms(Instant::now());
        rooms.extend(self.results.room(self.settings.batch));
        Ok(self.mark.asks(rooms))
    }
}

/// Declares a queue that was found missing.
async fn declare_missing(broker: &Broker, tool: &str) -> Result<bool, BrokerError> {
    warn!(tool, "queue is missing; declaring it again");
    declare(broker, tool).await
}

/// Declares a tool's queue. What the broker refuses for this tool alone is reported, and the others
/// go on: its messages wait as unroutable if they are. False when the queue gave no answer.
async fn declare(broker: &Broker, tool: &str) -> Result<bool, BrokerError> {
    let Err(error) = broker.declare_tool(tool).await else { return Ok(true) };
    let no_answer = matches!(error, BrokerError::Timeout { .. }) && !broker.blocked();
    if !no_answer && !concerns_one_queue(&error) {
        return Err(error);
    }
    warn!(
        tool,
        error = &error as &dyn std::error::Error,
        "queue cannot be declared; used as it is"
    );
    Ok(!no_answer)
}

/// Whether the broker's refusal says nothing about other queues.
fn concerns_one_queue(error: &BrokerError) -> bool {
    match error {
        BrokerError::Settings { .. }
        | BrokerError::Refused { .. }
        | BrokerError::ChannelClosed { .. }
        | BrokerError::Differs { .. }
        | BrokerError::Missing { .. } => true,
        BrokerError::Connect { .. }
        | BrokerError::ConnectionLost { .. }
        | BrokerError::Timeout { .. }
        | BrokerError::Blocked => false,
    }
}

/// Doubles from `first`, up to [`LONGEST_BACKOFF`], moved by up to a quarter so that rows which
/// failed together do not all come back together.
fn backoff(tries: u32, first: Duration) -> Duration {
    let wait = first
        .saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1).min(10)))
        .min(LONGEST_BACKOFF);
    let random = f64::from(Uuid::new_v4().as_bytes().first().copied().unwrap_or(128)) / 255.0;
    wait.mul_f64(0.75 + random / 2.0)
}
