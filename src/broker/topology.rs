//! Exchanges and queues: what they are called, how they are declared, how full they are.
//!
//! Nothing is ever deleted or changed here. Every group of declarations runs on a channel of its
//! own, because a difference closes the channel and must not hurt anybody else.
//!
//! A message that reaches the delivery limit moves to `oncebox.dead`, and from there, when even the
//! drain cannot take it, to `oncebox.unreadable`, which nobody consumes. Both steps are dead-lettered
//! at least once: the broker keeps the message until the next queue has it.

use lapin::{
    Channel, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{Broker, BrokerError};

/// Deliveries after which the broker takes a message away from a tool's queue: a backstop only.
/// Attempts are counted in PostgreSQL, and an operation that keeps killing its worker is parked
/// after 5 lost claims, long before.
pub const DELIVERY_LIMIT: i32 = 20;
/// Deliveries after which a message leaves `oncebox.dead`. A message that cannot be parsed costs the
/// drain one connection each; a good one that was given back because it could not be stored is
/// counted too (RabbitMQ 3.10 and 4.0), so the number must not be small.
pub const DEAD_DELIVERY_LIMIT: i32 = 20;

/// Room for `oncebox.` and a tool's name of 64 bytes in an AMQP short string of 255.
const MAX_PREFIX_BYTES: usize = 128;
const MAX_TOOL_BYTES: usize = 64;
/// Queue names that this layer uses itself.
const RESERVED_TOOLS: &[&str] = &["dead", "results", "operations", "unreadable"];

/// The names on one broker, prefix included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// Names with a prefix, which may be empty.
    ///
    /// # Errors
    /// [`BrokerError::Settings`] when names with this prefix could not be used.
    pub fn new(prefix: &str) -> Result<Self, BrokerError> {
        let bad = |reason| BrokerError::Settings { setting: "broker prefix", reason };
        if prefix.len() > MAX_PREFIX_BYTES {
            return Err(bad("longer than 128 bytes"));
        }
        if prefix.starts_with("amq.") {
            return Err(bad("starts with amq., which the broker keeps to itself"));
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if !prefix.chars().all(plain) {
            return Err(bad("holds another character than a-z 0-9 . _ -"));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The exchange that operation messages are published to.
    #[must_use]
    pub fn operations(&self) -> String {
        self.with_prefix("operations")
    }

    /// The exchange that result events are published to.
    #[must_use]
    pub fn results(&self) -> String {
        self.with_prefix("results")
    }

    /// The dead-letter exchange and the queue behind it.
    #[must_use]
    pub fn dead(&self) -> String {
        self.with_prefix("dead")
    }

    /// The queue of messages that not even the drain can take.
    #[must_use]
    pub fn unreadable(&self) -> String {
        self.with_prefix("unreadable")
    }

    /// A tool's queue.
    #[must_use]
    pub fn tool(&self, tool: &str) -> String {
        self.with_prefix(tool)
    }

    fn with_prefix(&self, name: &str) -> String {
        format!("{}oncebox.{name}", self.prefix)
    }
}

impl Broker {
    /// Declares everything that operations need and that does not depend on a tool. Idempotent.
    ///
    /// # Errors
    /// [`BrokerError::Differs`] names what exists with other properties; the others as usual.
    pub async fn declare_base(&self) -> Result<(), BrokerError> {
        let names = self.names();
        let to = Declaring::begin(self).await?;
        to.exchange(&names.operations(), ExchangeKind::Topic).await?;
        to.exchange(&names.dead(), ExchangeKind::Fanout).await?;
        for (queue, arguments) in base_queues(names) {
            to.queue(&queue, arguments).await?;
        }
        to.bind(&names.dead(), &names.dead(), "").await?;
        to.end().await
    }

    /// Declares the exchange of result events. Idempotent. Apart from the base, so that one which
    /// somebody declared otherwise stops no operation.
    ///
    /// # Errors
    /// [`BrokerError::Differs`] when it exists with other properties; the others as usual.
    pub async fn declare_results(&self) -> Result<(), BrokerError> {
        let to = Declaring::begin(self).await?;
        to.exchange(&self.names().results(), ExchangeKind::Topic).await?;
        to.end().await
    }

    /// Declares a tool's queue and binds it. Idempotent; the base has to be there.
    ///
    /// # Errors
    /// [`BrokerError::Differs`] when the queue exists with other arguments: this tool is unserved,
    /// the others are not touched. The others as usual.
    pub async fn declare_tool(&self, tool: &str) -> Result<(), BrokerError> {
        check_tool(tool)?;
        let (names, queue) = (self.names(), self.names().tool(tool));
        let to = Declaring::begin(self).await?;
        to.queue(&queue, tool_arguments(names)).await?;
        to.bind(&queue, &names.operations(), tool).await?;
        to.end().await
    }

    /// What of the base and of the exchange of result events is missing or differs from what this
    /// release declares. Creates nothing.
    ///
    /// # Errors
    /// The connection is gone, or the broker refuses to tell.
    pub async fn check_base(&self) -> Result<Vec<BrokerError>, BrokerError> {
        let mut wrong = Vec::new();
        for (exchange, kind) in exchanges(self.names()) {
            wrong.extend(self.check_exchange(&exchange, kind).await?);
        }
        for (queue, arguments) in base_queues(self.names()) {
            wrong.extend(self.check_queue(&queue, arguments).await?);
        }
        Ok(wrong)
    }

    /// How a tool's queue is missing or differs from what this release declares. Creates nothing.
    ///
    /// # Errors
    /// The connection is gone, or the broker refuses to tell.
    pub async fn check_tool(&self, tool: &str) -> Result<Option<BrokerError>, BrokerError> {
        check_tool(tool)?;
        self.check_queue(&self.names().tool(tool), tool_arguments(self.names())).await
    }

    async fn check_exchange(
        &self,
        name: &str,
        kind: ExchangeKind,
    ) -> Result<Option<BrokerError>, BrokerError> {
        let to = Declaring::begin(self).await?;
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let look =
            to.channel.exchange_declare(short(name)?, kind.clone(), passive, FieldTable::default());
        let found = self.request(&to.channel, "look at an exchange", look).await;
        match found.map_err(|error| error.about(name)) {
            Err(error) => wrong_only(error),
            // It exists, so declaring it compares and creates nothing.
            Ok(()) => match to.exchange(name, kind).await {
                Err(error) => wrong_only(error),
                Ok(()) => to.end().await.map(|()| None),
            },
        }
    }

    async fn check_queue(
        &self,
        name: &str,
        arguments: FieldTable,
    ) -> Result<Option<BrokerError>, BrokerError> {
        match self.count(name).await {
            Err(error) => wrong_only(error),
            Ok(_) => {
                let to = Declaring::begin(self).await?;
                match to.queue(name, arguments).await {
                    Err(error) => wrong_only(error),
                    Ok(()) => to.end().await.map(|()| None),
                }
            }
        }
    }

    /// How many messages wait in a tool's queue, those in consumers' hands not counted.
    ///
    /// # Errors
    /// [`BrokerError::Missing`] when there is no such queue: nothing can be published to it either.
    pub async fn ready_count(&self, tool: &str) -> Result<u32, BrokerError> {
        check_tool(tool)?;
        self.count(&self.names().tool(tool)).await
    }

    /// How many dead letters wait for the drain.
    ///
    /// # Errors
    /// As [`Broker::ready_count`].
    pub async fn dead_count(&self) -> Result<u32, BrokerError> {
        self.count(&self.names().dead()).await
    }

    /// How many messages wait for a person, because no oncebox process can take them.
    ///
    /// # Errors
    /// As [`Broker::ready_count`].
    pub async fn unreadable_count(&self) -> Result<u32, BrokerError> {
        self.count(&self.names().unreadable()).await
    }

    async fn count(&self, queue: &str) -> Result<u32, BrokerError> {
        let mut kept = self.counting().await;
        let channel = match kept.take() {
            Some(channel) if channel.status().connected() => channel,
            Some(_) | None => self.channel().await?,
        };
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let look = channel.queue_declare(short(queue)?, passive, FieldTable::default());
        let found = self.request(&channel, "look at a queue", look).await;
        let found = found.map_err(|error| error.about(queue))?;
        *kept = Some(channel);
        Ok(found.message_count())
    }
}

/// A channel for one group of declarations. The first difference closes it, and nobody else's.
struct Declaring<'a> {
    broker: &'a Broker,
    channel: Channel,
}

impl<'a> Declaring<'a> {
    async fn begin(broker: &'a Broker) -> Result<Self, BrokerError> {
        Ok(Self { broker, channel: broker.channel().await? })
    }

    async fn exchange(&self, name: &str, kind: ExchangeKind) -> Result<(), BrokerError> {
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let arguments = FieldTable::default();
        let declare = self.channel.exchange_declare(short(name)?, kind, durable, arguments);
        let declared = self.request("declare an exchange", declare).await;
        declared.map_err(|error| error.about(name))
    }

    async fn queue(&self, name: &str, arguments: FieldTable) -> Result<(), BrokerError> {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declare = self.channel.queue_declare(short(name)?, durable, arguments);
        let declared = self.request("declare a queue", declare).await;
        declared.map(|_queue| ()).map_err(|error| error.about(name))
    }

    async fn bind(&self, queue: &str, exchange: &str, key: &str) -> Result<(), BrokerError> {
        let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
        let bind = self.channel.queue_bind(
            short(queue)?,
            short(exchange)?,
            short(key)?,
            options,
            arguments,
        );
        let bound = self.request("bind a queue", bind).await;
        bound.map_err(|error| error.about(queue))
    }

    async fn end(self) -> Result<(), BrokerError> {
        self.request("close a channel", self.channel.close(200, "done".into())).await
    }

    async fn request<T>(
        &self,
        action: &'static str,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, BrokerError> {
        self.broker.request(&self.channel, action, answer).await
    }
}

/// A finding about the topology is an answer; anything else is a failure to find out.
fn wrong_only(error: BrokerError) -> Result<Option<BrokerError>, BrokerError> {
    match error {
        BrokerError::Missing { .. } | BrokerError::Differs { .. } => Ok(Some(error)),
        BrokerError::Settings { .. }
        | BrokerError::Connect { .. }
        | BrokerError::Refused { .. }
        | BrokerError::ConnectionLost { .. }
        | BrokerError::ChannelClosed { .. }
        | BrokerError::Timeout { .. }
        | BrokerError::Blocked => Err(error),
    }
}

fn exchanges(names: &Names) -> [(String, ExchangeKind); 3] {
    [
        (names.operations(), ExchangeKind::Topic),
        (names.results(), ExchangeKind::Topic),
        (names.dead(), ExchangeKind::Fanout),
    ]
}

/// In the order in which they refer to each other.
fn base_queues(names: &Names) -> [(String, FieldTable); 2] {
    // The default exchange routes by queue name, so this step needs no binding.
    let to_unreadable = DeadLetters {
        exchange: "",
        routing_key: Some(names.unreadable()),
        delivery_limit: DEAD_DELIVERY_LIMIT,
    };
    [(names.unreadable(), quorum(None)), (names.dead(), quorum(Some(to_unreadable)))]
}

fn tool_arguments(names: &Names) -> FieldTable {
    quorum(Some(DeadLetters {
        exchange: &names.dead(),
        routing_key: None,
        delivery_limit: DELIVERY_LIMIT,
    }))
}

struct DeadLetters<'a> {
    exchange: &'a str,
    routing_key: Option<String>,
    delivery_limit: i32,
}

fn quorum(dead_letters: Option<DeadLetters<'_>>) -> FieldTable {
    let text = |value: &str| AMQPValue::LongString(value.into());
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    if let Some(DeadLetters { exchange, routing_key, delivery_limit }) = dead_letters {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(delivery_limit));
        arguments.insert("x-dead-letter-exchange".into(), text(exchange));
        if let Some(key) = routing_key {
            arguments.insert("x-dead-letter-routing-key".into(), text(&key));
        }
        // At-least-once dead-lettering is refused without this overflow rule, which has no effect
        // of its own on a queue without a length limit.
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        arguments.insert("x-overflow".into(), text("reject-publish"));
    }
    arguments
}

fn check_tool(tool: &str) -> Result<(), BrokerError> {
    let bad = |reason| BrokerError::Settings { setting: "tool name", reason };
    if tool.is_empty() || tool.len() > MAX_TOOL_BYTES {
        return Err(bad("not 1 to 64 bytes long"));
    }
    if RESERVED_TOOLS.contains(&tool) {
        return Err(bad("reserved"));
    }
    // `*` and `#` would turn the binding into a pattern that takes other tools' messages.
    if !tool.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b)) {
        return Err(bad("holds a character outside a-z, 0-9, _ . -"));
    }
    Ok(())
}

pub(super) fn short(name: &str) -> Result<ShortString, BrokerError> {
    ShortString::try_new(name)
        .map_err(|_too_long| BrokerError::Settings { setting: "name", reason: "over 255 bytes" })
}
