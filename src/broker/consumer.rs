//! Consuming the queues of several tools over one connection.
//!
//! Each tool has a channel of its own (a *lane*), so that a consumer time-out, a deleted queue or a
//! queue with foreign arguments hurts that tool only; one whose queue gives no answer goes on over a
//! connection of its own ([`SilentQueues`]). Lanes repair themselves and report what
//! happened; the loss of the connection ends everything here, and the caller connects again.

use std::time::Duration;

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{Broker, BrokerError, Delivery, Loss, SilentQueues, lane::Lane};

/// Events nobody has fetched yet; more are only logged.
const EVENTS_KEPT: usize = 256;

/// Something that happened to a lane. It has been logged and, where possible, repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerEvent {
    /// The broker closed the tool's channel, for example because an acknowledgement took too long;
    /// everything unfinished on it will be delivered again.
    ChannelClosed {
        /// The tool.
        tool: String,
        /// The broker's own words.
        reason: String,
    },
    /// The broker cancelled the consumer: the queue was deleted, or an acknowledgement took too
    /// long (RabbitMQ 4.3).
    Cancelled {
        /// The tool.
        tool: String,
    },
    /// The tool cannot be consumed at present (its queue has other arguments, a permission is
    /// missing, it gives no answer, …); it is tried again with backoff, the other tools go on.
    Unserved {
        /// The tool.
        tool: String,
        /// Why, and for a queue in the wrong shape its name.
        reason: String,
    },
    /// The tool is consumed again.
    Resumed {
        /// The tool.
        tool: String,
    },
    /// The connection was lost; the consumer has ended.
    ConnectionLost,
}

/// Why [`Consumer::recv`] has nothing more to give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerEnd {
    /// The connection is lost: connect again and start again.
    #[error("the consumer's connection was lost: {}", .0.reason)]
    ConnectionLost(Loss),
    /// [`Consumer::stop_consuming`] was called and everything buffered has been handed out.
    #[error("the consumer was stopped")]
    Stopped,
}

/// Consumes several tools' queues.
#[derive(Debug)]
pub struct Consumer {
    broker: Broker,
    deliveries: mpsc::Receiver<Delivery>,
    events: Option<mpsc::Receiver<ConsumerEvent>>,
    reporter: Reporter,
    stop: watch::Sender<bool>,
    /// One count for every lane whose consumer the broker knows no more.
    cancelled: watch::Receiver<usize>,
    lanes: JoinSet<()>,
}

impl Consumer {
    /// Starts one lane for each tool, with its prefetch (at least 1). Returns at once: lanes declare
    /// their queues and begin by themselves, and a tool that cannot be served hurts no other.
    ///
    /// # Errors
    /// When the base topology cannot be declared; nothing was started.
    pub async fn start(broker: &Broker, tools: &[(String, u16)]) -> Result<Self, BrokerError> {
        Self::start_knowing(broker, tools, &SilentQueues::default()).await
    }

    /// [`Consumer::start`] with what former consumers learned of queues that give no answer. Whoever
    /// connects again after a loss passes the same here each time.
    ///
    /// # Errors
    /// As [`Consumer::start`].
    pub async fn start_knowing(
        broker: &Broker,
        tools: &[(String, u16)],
        silent: &SilentQueues,
    ) -> Result<Self, BrokerError> {
        broker.declare_base().await?;
        let room: usize = tools.iter().map(|(_, prefetch)| usize::from((*prefetch).max(1))).sum();
        let (sender, deliveries) = mpsc::channel(room.max(1));
        let (reporter, events) = Reporter::new();
        let stop = watch::Sender::new(false);
        let cancelled = watch::Sender::new(0);
        let mut lanes = JoinSet::new();
        for (tool, prefetch) in tools {
            let lane = Lane {
                tool: tool.clone(),
                prefetch: (*prefetch).max(1),
                broker: broker.clone(),
                sender: sender.clone(),
                reporter: reporter.clone(),
                silent: silent.clone(),
                stop: stop.subscribe(),
                cancelled: Some(cancelled.clone()),
            };
            lanes.spawn(lane.run());
        }
        Ok(Self {
            broker: broker.clone(),
            deliveries,
            events: Some(events),
            reporter,
            stop,
            cancelled: cancelled.subscribe(),
            lanes,
        })
    }

    /// The next delivery. Deliveries of a channel that is gone are passed over: they come again.
    /// Safe to drop and call again.
    ///
    /// # Errors
    /// [`ConsumerEnd`] when there will be no more.
    pub async fn recv(&mut self) -> Result<Delivery, ConsumerEnd> {
        loop {
            tokio::select! {
                biased;
                next = self.deliveries.recv() => match next {
                    Some(delivery) if delivery.handle.is_stale() => {}
                    Some(delivery) => return Ok(delivery),
                    None if self.broker.is_usable() => return Err(ConsumerEnd::Stopped),
                    None => return Err(ConsumerEnd::ConnectionLost(self.broker.lost().await)),
                },
                loss = self.broker.lost() => {
                    self.reporter.report(ConsumerEvent::ConnectionLost);
                    return Err(ConsumerEnd::ConnectionLost(loss));
                }
            }
        }
    }

    /// A delivery that is here already, without waiting for one.
    pub fn try_recv(&mut self) -> Option<Delivery> {
        loop {
            match self.deliveries.try_recv() {
                Ok(delivery) if delivery.handle.is_stale() => {}
                Ok(delivery) => return Some(delivery),
                Err(_) => return None,
            }
        }
    }

    /// The events of all lanes, once. Whoever does not fetch them finds them in the log.
    pub fn events(&mut self) -> Option<mpsc::Receiver<ConsumerEvent>> {
        self.events.take()
    }

    /// Cancels all consumers, so that the broker sends nothing more. What is buffered here can be
    /// fetched with [`Consumer::recv`] until it answers [`ConsumerEnd::Stopped`], and be released;
    /// what is under way can still be acknowledged. Returns when the broker has confirmed, or after
    /// `within`, and says whether it has.
    pub async fn stop_consuming(&mut self, within: Duration) -> bool {
        self.stop.send_replace(true);
        let (lanes, mut cancelled) = (self.lanes.len(), self.cancelled.clone());
        let all = cancelled.wait_for(|count| *count >= lanes);
        matches!(timeout_at(Instant::now() + within, all).await, Ok(Ok(_)))
    }
}

/// Tells the log and whoever listens.
#[derive(Clone, Debug)]
pub(super) struct Reporter(mpsc::Sender<ConsumerEvent>);

impl Reporter {
    fn new() -> (Self, mpsc::Receiver<ConsumerEvent>) {
        let (sender, receiver) = mpsc::channel(EVENTS_KEPT);
        (Self(sender), receiver)
    }

    pub(super) fn report(&self, event: ConsumerEvent) {
        match &event {
            ConsumerEvent::ChannelClosed { tool, reason } => {
                tracing::warn!(tool, reason, "consumer channel closed");
            }
            ConsumerEvent::Cancelled { tool } => tracing::warn!(tool, "consumer cancelled"),
            ConsumerEvent::Unserved { tool, reason } => {
                tracing::error!(tool, reason, "tool cannot be consumed");
            }
            ConsumerEvent::Resumed { tool } => tracing::info!(tool, "consuming again"),
            ConsumerEvent::ConnectionLost => tracing::warn!("consumer connection lost"),
        }
        // Nobody listening, or nobody fetching: the log has it.
        drop(self.0.try_send(event));
    }
}
