//! One delivery and its acknowledgement.
//!
//! An acknowledgement belongs to the channel that brought the delivery. When that channel is gone
//! the broker has taken the message back and will deliver it again; acknowledging it then does
//! nothing, which is harmless because the record is the truth. There is no `multiple` here: no
//! acknowledgement ever covers a neighbour.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use lapin::{
    Acker, Channel,
    options::{BasicAckOptions, BasicNackOptions},
};
use tokio::time::timeout;

use super::{Broker, BrokerError, IncomingMessage};

/// What keeps a channel, and the connection below it, open while deliveries are unfinished.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) channel: Channel,
    pub(super) broker: Broker,
}

/// A message in our hands that the broker still owns.
#[derive(Debug)]
pub struct Delivery {
    /// The message.
    pub message: IncomingMessage,
    /// How to give it back or have it removed.
    pub handle: AckHandle,
}

/// Acknowledges one delivery, on the channel that brought it.
///
/// Dropped unused, the delivery stays with us until its channel closes.
#[derive(Debug)]
pub struct AckHandle {
    acker: Acker,
    line: Arc<Line>,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckResult {
    /// Handed to the broker. There is no answer to an acknowledgement: if the connection breaks at
    /// this moment the message comes again.
    Acked,
    /// The channel is gone; the message comes again.
    ChannelGone,
}

impl Delivery {
    pub(super) fn new(tool: &str, delivery: lapin::message::Delivery, line: Arc<Line>) -> Self {
        let message = IncomingMessage {
            tool: tool.to_owned(),
            body: delivery.data,
            redelivered: delivery.redelivered,
            routing_key: delivery.routing_key.to_string(),
            properties: delivery.properties,
        };
        Self { message, handle: AckHandle { acker: delivery.acker, line } }
    }

    /// Acknowledges the message: call it only after what happened has been committed.
    ///
    /// # Errors
    /// As [`AckHandle::ack`].
    pub async fn ack(self) -> Result<AckResult, BrokerError> {
        self.handle.ack().await
    }

    /// Gives the message back to its queue.
    ///
    /// # Errors
    /// As [`AckHandle::release`].
    pub async fn release(self) -> Result<AckResult, BrokerError> {
        self.handle.release().await
    }
}

impl AckHandle {
    /// Whether the channel is gone, so that the broker has taken the message back already.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.acker.poisoned() || !self.line.broker.is_usable()
    }

    /// Acknowledges the message: call it only after what happened has been committed.
    ///
    /// # Errors
    /// [`BrokerError::Timeout`] when it could not be written in time. It may still be; the message
    /// may come again.
    pub async fn ack(self) -> Result<AckResult, BrokerError> {
        let acked = self.acker.ack(BasicAckOptions::default());
        settle(acked, "acknowledge", self.deadline()).await
    }

    /// Acknowledges many at once: all are written before the first is awaited, none waits for an
    /// answer from the broker, and one that fails does not touch the others. The results stand in
    /// the order of the handles.
    pub async fn ack_all(
        handles: impl IntoIterator<Item = Self>,
    ) -> Vec<Result<AckResult, BrokerError>> {
        join_all(handles.into_iter().map(Self::ack)).await
    }

    /// Gives the message back to its queue: for what was not started when a process stops.
    ///
    /// A negative acknowledgement rather than a rejection, because RabbitMQ 4.3 counts a rejection
    /// towards the delivery limit and this not.
    ///
    /// # Errors
    /// As [`AckHandle::ack`].
    pub async fn release(self) -> Result<AckResult, BrokerError> {
        let requeue = BasicNackOptions { multiple: false, requeue: true };
        let released = self.acker.nack(requeue);
        settle(released, "release", self.deadline()).await
    }

    fn deadline(&self) -> Duration {
        self.line.broker.settings().connect_timeout
    }
}

async fn settle(
    answer: impl Future<Output = lapin::Result<bool>>,
    action: &'static str,
    waited: Duration,
) -> Result<AckResult, BrokerError> {
    match timeout(waited, answer).await {
        Ok(Ok(true)) => Ok(AckResult::Acked),
        // `false` is the library's word for a channel that had closed before; an error means that
        // it closed while the frame was waiting to be written.
        Ok(Ok(false) | Err(_)) => Ok(AckResult::ChannelGone),
        Err(_) => Err(BrokerError::Timeout { action, waited }),
    }
}
