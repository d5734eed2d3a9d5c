//! Publishing with confirms, and matching what comes back to what was sent.
//!
//! Every operation message is `mandatory`. The broker then answers an unroutable one with a return *and* an
//! acknowledgement, and the client library hands a return to whichever confirm is completed next:
//! with several messages under way, or with one acknowledgement for many, that is somebody else's.
//! So returns are collected over the whole batch and matched by their own message id, and only then
//! is a verdict given.
//!
//! A channel whose batch did not end completely is never used again: frames of a publish that was
//! given up may still be sent, and a confirm that comes later would be counted for another message.
//!
//! Result events go over a channel of their own, without `mandatory`: an event that nobody listens to
//! is confirmed, and an exchange that is gone closes no channel that operations go over.

use std::collections::HashSet;

use futures::{StreamExt, stream::FuturesUnordered};
use lapin::{
    Channel, Confirmation,
    message::BasicReturnMessage,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{
    Broker, BrokerError, OutgoingEvent, OutgoingMessage,
    outgoing::{Encoded, Unencodable},
    topology::short,
};

/// What became of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishResult {
    /// Stored by the broker, in at least one queue (an event: in those that listen). The outbox row may go. An alternate exchange that
    /// an operator's policy gives to ours counts as routing: the message is where the policy put it.
    Confirmed,
    /// No queue is bound for the tool: not stored. Try later.
    Unroutable,
    /// The broker refused to store it (queue full or gone, node in trouble). Try later.
    Nacked,
    /// No answer: it may or may not have been stored. Try later, with the same message id.
    Unconfirmed,
    /// It can never be put on the wire. Park it.
    Unpublishable(Unencodable),
}

/// Publishes operation messages over one channel with confirms. Several may share a connection.
#[derive(Debug)]
pub struct Publisher(Line);

/// Publishes result events over one channel with confirms. Several may share a connection.
#[derive(Debug)]
pub struct EventPublisher(Line);

/// A channel with confirms to one exchange.
struct Line {
    broker: Broker,
    channel: Channel,
    exchange: String,
    options: BasicPublishOptions,
    spent: bool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("exchange", &self.exchange)
            .field("usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// Declares the base topology (somebody may have deleted the exchange) and opens a channel.
    ///
    /// # Errors
    /// [`BrokerError::Blocked`] while the broker has an alarm; the others as usual. Nothing was
    /// published in any case.
    pub async fn open(broker: &Broker) -> Result<Self, BrokerError> {
        if broker.blocked() {
            return Err(BrokerError::Blocked);
        }
        broker.declare_base().await?;
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        Line::open(broker, broker.names().operations(), mandatory).await.map(Self)
    }

    /// Whether another batch may be published. If not, open a new publisher.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.0.is_usable()
    }

    /// Publishes all messages at once and waits for their confirms, with one deadline for the whole
    /// batch (`confirm_timeout`). The results stand in the order of the messages.
    ///
    /// # Errors
    /// Only when nothing at all was sent: the publisher is not usable any more, or
    /// [`BrokerError::Blocked`].
    pub async fn publish_batch(
        &mut self,
        messages: &[OutgoingMessage],
    ) -> Result<Vec<PublishResult>, BrokerError> {
        let frame_max = self.0.broker.frame_max();
        let encoded = messages.iter().map(|message| message.encode(frame_max)).collect();
        let ids: Vec<Uuid> = messages.iter().map(|message| message.message_id).collect();
        self.0.publish(&ids, encoded).await
    }
}

impl EventPublisher {
    /// Declares the exchange of result events and opens a channel.
    ///
    /// # Errors
    /// As [`Publisher::open`]. [`BrokerError::Differs`] when the exchange is not ours.
    pub async fn open(broker: &Broker) -> Result<Self, BrokerError> {
        if broker.blocked() {
            return Err(BrokerError::Blocked);
        }
        broker.declare_results().await?;
        let options = BasicPublishOptions::default();
        Line::open(broker, broker.names().results(), options).await.map(Self)
    }

    /// Whether another batch may be published. If not, open a new publisher.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.0.is_usable()
    }

    /// Publishes all events at once, as [`Publisher::publish_batch`] does. None is ever unroutable.
    ///
    /// # Errors
    /// As [`Publisher::publish_batch`].
    pub async fn publish_batch(
        &mut self,
        events: &[OutgoingEvent],
    ) -> Result<Vec<PublishResult>, BrokerError> {
        let frame_max = self.0.broker.frame_max();
        let encoded = events.iter().map(|event| event.encode(frame_max)).collect();
        let ids: Vec<Uuid> = events.iter().map(|event| event.message_id).collect();
        self.0.publish(&ids, encoded).await
    }
}

impl Line {
    async fn open(
        broker: &Broker,
        exchange: String,
        options: BasicPublishOptions,
    ) -> Result<Self, BrokerError> {
        let channel = broker.channel().await?;
        let select = channel.confirm_select(ConfirmSelectOptions::default());
        broker.request(&channel, "switch confirms on", select).await?;
        Ok(Self { broker: broker.clone(), channel, exchange, options, spent: false })
    }

    fn is_usable(&self) -> bool {
        !self.spent && self.broker.is_usable() && self.channel.status().connected()
    }

    async fn publish(
        &mut self,
        ids: &[Uuid],
        encoded: Vec<Result<Encoded, Unencodable>>,
    ) -> Result<Vec<PublishResult>, BrokerError> {
        if self.broker.blocked() {
            return Err(BrokerError::Blocked);
        }
        if !self.is_usable() {
            let (action, reason) = ("publish", "closed before".to_owned());
            return Err(if self.broker.is_usable() {
                BrokerError::ChannelClosed { action, code: 0, reason }
            } else {
                BrokerError::ConnectionLost { action, reason }
            });
        }
        // Dropped half-way, this future leaves frames and confirms behind that nobody can account
        // for: the channel counts as spent until the batch has ended completely.
        self.spent = true;
        let deadline = Instant::now() + self.broker.settings().confirm_timeout;
        let batch = self.send(&encoded, deadline).await?;
        self.spent = !batch.complete();
        Ok(batch.verdicts(ids))
    }

    async fn send(
        &self,
        encoded: &[Result<Encoded, Unencodable>],
        deadline: Instant,
    ) -> Result<Batch, BrokerError> {
        let (exchange, options) = (short(&self.exchange)?, self.options);
        let mut batch = Batch::default();
        // The first poll of each future hands its frames over before it waits for anything, so all
        // messages are on their way before the first confirm is looked at.
        let mut under_way = FuturesUnordered::new();
        for (index, message) in encoded.iter().enumerate() {
            batch.answers.push(match message {
                Err(reason) => Answer::NeverSent(*reason),
                Ok(_) => Answer::None,
            });
            let Ok(Encoded { routing_key, properties, body }) = message else { continue };
            let (exchange, routing_key) = (exchange.clone(), routing_key.clone());
            let properties = properties.clone();
            under_way.push(async move {
                let publish =
                    self.channel.basic_publish(exchange, routing_key, options, body, properties);
                let confirmation = match publish.await {
                    Ok(confirm) => confirm.await,
                    Err(error) => Err(error),
                };
                (index, confirmation)
            });
        }
        while let Ok(Some((index, confirmation))) = timeout_at(deadline, under_way.next()).await {
            batch.record(index, confirmation);
        }
        Ok(batch)
    }
}

/// How the confirm of one message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    NeverSent(Unencodable),
    None,
    /// With the message id of the return it happened to carry.
    Ack {
        carried: Option<Uuid>,
    },
    Nack,
}

/// What came back for one batch so far.
#[derive(Debug, Default)]
struct Batch {
    answers: Vec<Answer>,
    returned: HashSet<Uuid>,
    /// A return that is not ours to tell apart. It cannot happen: we set every message id.
    nameless_return: bool,
}

impl Batch {
    fn record(&mut self, index: usize, confirmation: lapin::Result<Confirmation>) {
        let answer = match confirmation {
            Ok(Confirmation::Ack(carried)) => Answer::Ack { carried: self.collect(carried) },
            Ok(Confirmation::Nack(carried)) => {
                self.collect(carried);
                Answer::Nack
            }
            // Without confirms nothing is known, and an error tells nothing about this message.
            Ok(Confirmation::NotRequested) | Err(_) => Answer::None,
        };
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = answer;
        }
    }

    fn collect(&mut self, carried: Option<BasicReturnMessage>) -> Option<Uuid> {
        let returned = carried?;
        let id = returned.delivery.properties.message_id().as_ref();
        let id = id.and_then(|id| Uuid::try_parse(id.as_str()).ok());
        match id {
            Some(id) => {
                self.returned.insert(id);
            }
            None => self.nameless_return = true,
        }
        Some(id.unwrap_or_default())
    }

    fn complete(&self) -> bool {
        !self.nameless_return && self.answers.iter().all(|answer| *answer != Answer::None)
    }

    /// The verdicts, in the order of the messages.
    ///
    /// The broker sends a return before the acknowledgement of the same message, and every
    /// acknowledgement takes one waiting return with it, if there is one. So a message's own return
    /// has been seen by the end of a complete batch. In an incomplete one it may still wait behind
    /// others, but only if its acknowledgement took somebody else's: then nothing is certain.
    fn verdicts(&self, ids: &[Uuid]) -> Vec<PublishResult> {
        let complete = self.complete();
        let verdict = |(id, answer): (&Uuid, &Answer)| match *answer {
            Answer::NeverSent(reason) => PublishResult::Unpublishable(reason),
            Answer::None => PublishResult::Unconfirmed,
            Answer::Nack => PublishResult::Nacked,
            Answer::Ack { .. } if self.returned.contains(id) => PublishResult::Unroutable,
            Answer::Ack { .. } if self.nameless_return => PublishResult::Unconfirmed,
            Answer::Ack { carried: Some(_) } if !complete => PublishResult::Unconfirmed,
            Answer::Ack { .. } => PublishResult::Confirmed,
        };
        ids.iter().zip(&self.answers).map(verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answers: &[Answer], returned: &[u128], expected: &[PublishResult]) {
        let ids: Vec<_> = (1..=answers.len() as u128).map(Uuid::from_u128).collect();
        let batch = Batch {
            answers: answers.to_vec(),
            returned: returned.iter().map(|id| Uuid::from_u128(*id)).collect(),
            nameless_return: false,
        };
        assert_eq!(batch.verdicts(&ids), expected, "{answers:?} {returned:?}");
    }

    #[test]
    fn a_return_counts_for_its_own_message() {
        use PublishResult::{Confirmed, Nacked, Unconfirmed, Unpublishable, Unroutable};
        let ack = Answer::Ack { carried: None };
        let ack_with = |id| Answer::Ack { carried: Some(Uuid::from_u128(id)) };
        check(&[ack, ack], &[], &[Confirmed, Confirmed]);
        check(&[ack_with(2), ack], &[2], &[Confirmed, Unroutable]);
        check(&[ack_with(1), ack], &[1], &[Unroutable, Confirmed]);
        check(&[ack, Answer::None], &[], &[Confirmed, Unconfirmed]);
        check(&[ack_with(2), Answer::None], &[2], &[Unconfirmed, Unconfirmed]);
        check(&[ack_with(1), Answer::None], &[1], &[Unroutable, Unconfirmed]);
        check(&[Answer::Nack, ack], &[], &[Nacked, Confirmed]);
        let too_long = Unencodable::RoutingKeyTooLong;
        check(&[Answer::NeverSent(too_long), ack], &[], &[Unpublishable(too_long), Confirmed]);
    }
}
