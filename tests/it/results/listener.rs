//! A listener: a queue of a test's own, bound to the exchange of results.

use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use oncebox::broker::Broker;
use serde_json::Value;

use crate::support::eventually;
use crate::support::world::World;

/// An event as a listener gets it.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) routing_key: String,
    pub(super) message_id: String,
    pub(super) kind: String,
    pub(super) content_type: String,
    pub(super) persistent: bool,
    pub(super) headers: Value,
    pub(super) body: Value,
}

pub(super) struct Listener {
    channel: Channel,
    queue: String,
    _connection: Connection,
}

pub(super) fn exchange(world: &World) -> String {
    format!("{}oncebox.results", world.prefix)
}

/// A channel of a connection of its own.
pub(super) async fn channel(world: &World) -> (Connection, Channel) {
    let connection =
        Connection::connect(&world.amqp, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

pub(super) async fn delete_exchange(world: &World) {
    let (_connection, channel) = channel(world).await;
    let options = ExchangeDeleteOptions::default();
    channel.exchange_delete(exchange(world).into(), options).await.unwrap();
}

/// Declares the exchange as somebody else would.
pub(super) async fn declare_otherwise(world: &World) {
    let (_connection, channel) = channel(world).await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (kind, table) = (ExchangeKind::Fanout, FieldTable::default());
    channel.exchange_declare(exchange(world).into(), kind, durable, table).await.unwrap();
}

/// Whether the exchange is there.
pub(super) async fn exchange_exists(world: &World) -> bool {
    let (_connection, channel) = channel(world).await;
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let (kind, table) = (ExchangeKind::Topic, FieldTable::default());
    channel.exchange_declare(exchange(world).into(), kind, passive, table).await.is_ok()
}

impl Listener {
    /// Listens to what matches `pattern`, before there is a relay.
    pub(super) async fn to(world: &World, pattern: &str) -> Self {
        let broker = Broker::connect(&world.broker("listener")).await.unwrap();
        broker.declare_results().await.unwrap();
        broker.close().await;
        let (connection, channel) = channel(world).await;
        let queue = format!("{}listener", world.prefix);
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        channel.queue_declare(queue.as_str().into(), durable, arguments).await.unwrap();
        let listener = Self { channel, queue, _connection: connection };
        listener.bind(world, pattern).await;
        listener
    }

    pub(super) async fn bind(&self, world: &World, pattern: &str) {
        let (queue, exchange) = (self.queue.as_str().into(), exchange(world).into());
        let (options, table) = (QueueBindOptions::default(), FieldTable::default());
        self.channel.queue_bind(queue, exchange, pattern.into(), options, table).await.unwrap();
    }

    /// The next event, if there is one.
    pub(super) async fn next(&self) -> Option<Heard> {
        let options = BasicGetOptions { no_ack: true };
        let got = self.channel.basic_get(self.queue.as_str().into(), options).await.unwrap()?;
        let (delivery, properties) = (&got.delivery, &got.delivery.properties);
        let text = |value: &Option<lapin::types::ShortString>| value.as_ref().unwrap().to_string();
        let headers = properties.headers().as_ref().unwrap();
        // Those that the queue adds itself are no texts.
        let headers = headers.inner().iter().filter_map(|(name, value)| match value {
            AMQPValue::LongString(text) => Some((name.to_string(), Value::from(text.to_string()))),
            _ => None,
        });
        Some(Heard {
            routing_key: delivery.routing_key.to_string(),
            message_id: text(properties.message_id()),
            kind: text(properties.kind()),
            content_type: text(properties.content_type()),
            persistent: *properties.delivery_mode() == Some(2),
            headers: Value::Object(headers.collect()),
            body: serde_json::from_slice(&delivery.data).unwrap(),
        })
    }

    /// Waits for `count` events and makes sure that there is no other.
    pub(super) async fn hears(&self, count: usize) -> Vec<Heard> {
        let mut heard = Vec::new();
        eventually("all events have come", 30, async || {
            heard.extend(self.next().await);
            (heard.len() >= count).then_some(())
        })
        .await;
        assert!(self.next().await.is_none(), "more than {count} events");
        heard
    }
}
