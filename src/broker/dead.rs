//! Draining `oncebox.dead`.
//!
//! One message at a time, on a connection that the drain has for itself: a dead letter may be just
//! the kind that kills the connection. It then costs one connection a try, alone, and after
//! [`super::topology::DEAD_DELIVERY_LIMIT`] tries the broker moves it to `oncebox.unreadable`, where
//! it waits for a person. So draining cannot loop.

use std::{sync::Arc, time::Duration};

use lapin::{
    options::BasicGetOptions,
    types::{AMQPValue, FieldTable},
};
use tokio::time::{Instant, sleep};

use super::{
    AckResult, Broker, BrokerError, Delivery, delivery::Line, header_text, topology::short,
};

/// How often an empty queue is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The queue of dead letters, being drained.
#[derive(Debug)]
pub struct DeadQueue {
    line: Arc<Line>,
    queue: String,
}

/// A dead letter, with the broker's account of how it came here.
#[derive(Debug)]
pub struct DeadMessage {
    /// The bytes, exactly as received.
    pub body: Vec<u8>,
    /// Properties and headers as JSON that any text column can store.
    pub headers: serde_json::Value,
    /// The queue it first died in, if the broker says so.
    pub original_queue: Option<String>,
    /// Why (`delivery_limit`, `rejected`, `expired`, `maxlen`), if the broker says so.
    pub reason: Option<String>,
    /// The message id, telemetry only.
    pub message_id: Option<String>,
    delivery: Delivery,
}

impl DeadQueue {
    /// Declares the base topology and opens a channel. Give it a connection of its own.
    ///
    /// # Errors
    /// As for every request; nothing was taken.
    pub async fn open(broker: &Broker) -> Result<Self, BrokerError> {
        broker.declare_base().await?;
        let channel = broker.channel().await?;
        let line = Arc::new(Line { channel, broker: broker.clone() });
        Ok(Self { queue: broker.names().dead(), line })
    }

    /// The next dead letter, or `None` when none came within `within`.
    ///
    /// # Errors
    /// [`BrokerError::ConnectionLost`] also when the next letter cannot be parsed: connect again and
    /// go on, the broker counts the tries.
    pub async fn next_dead(&self, within: Duration) -> Result<Option<DeadMessage>, BrokerError> {
        let until = Instant::now() + within;
        loop {
            let Line { channel, broker } = &*self.line;
            let get = channel.basic_get(short(&self.queue)?, BasicGetOptions::default());
            let got = broker.request(channel, "fetch a dead letter", get).await;
            if let Some(message) = got.map_err(|error| error.about(&self.queue))? {
                return Ok(Some(DeadMessage::new(
                    &self.queue,
                    message.delivery,
                    self.line.clone(),
                )));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            sleep(left.min(LOOK_AGAIN)).await;
        }
    }
}

impl DeadMessage {
    fn new(queue: &str, delivery: lapin::message::Delivery, line: Arc<Line>) -> Self {
        let headers = delivery.properties.headers().as_ref();
        let death = headers.and_then(first_death);
        let told = |latest: &str, inside: &str| {
            text(headers.and_then(|headers| headers.inner().get(latest)))
                .or_else(|| text(death.and_then(|death| death.inner().get(inside))))
        };
        let (original_queue, reason) =
            (told("x-first-death-queue", "queue"), told("x-first-death-reason", "reason"));
        let delivery = Delivery::new(queue, delivery, line);
        Self {
            body: delivery.message.body.clone(),
            headers: delivery.message.headers_json(),
            original_queue,
            reason,
            message_id: delivery.message.message_id(),
            delivery,
        }
    }

    /// Removes it from the queue: only after its bytes have been stored.
    ///
    /// # Errors
    /// As [`super::AckHandle::ack`].
    pub async fn ack(self) -> Result<AckResult, BrokerError> {
        self.delivery.ack().await
    }

    /// Puts it back, because it could not be stored.
    ///
    /// # Errors
    /// As [`super::AckHandle::release`].
    pub async fn release(self) -> Result<AckResult, BrokerError> {
        self.delivery.release().await
    }
}

fn first_death(headers: &FieldTable) -> Option<&FieldTable> {
    let AMQPValue::FieldArray(deaths) = headers.inner().get("x-death")? else { return None };
    match deaths.as_slice().last()? {
        AMQPValue::FieldTable(death) => Some(death),
        _ => None,
    }
}

fn text(value: Option<&AMQPValue>) -> Option<String> {
    match value? {
        AMQPValue::LongString(text) => {
            Some(header_text::printable(&String::from_utf8_lossy(text.as_bytes())))
        }
        AMQPValue::ShortString(text) => Some(header_text::printable(text.as_str())),
        _ => None,
    }
}
