//! The broker layer tells the truth about what happened to a message, in bounded time, and one bad
//! message, queue, channel or connection hurts nothing beside it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]
#![allow(clippy::disallowed_methods, reason = "tests find their services through the environment")]

mod consuming;
mod node_wide;
mod publishing;
mod settings;
mod silent_queue;
mod strange;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use oncebox::broker::{
    AckHandle, AckResult, AmqpUrl, Broker, BrokerError, BrokerSettings, Consumer, ConsumerEnd,
    ConsumerEvent, DeadQueue, Delivery, OutgoingMessage, PublishResult, Publisher,
    topology::DELIVERY_LIMIT,
};
use tokio::{sync::mpsc, time::timeout};
use uuid::Uuid;

use crate::{
    raw_amqp::{self, RawChannel},
    support::cutter::Cutter,
};

const SOON: Duration = Duration::from_secs(20);

fn amqp_url() -> String {
    std::env::var("AMQP_URL").expect("AMQP_URL names a broker for tests")
}

/// `user:password@host:port` of the tests' broker.
fn amqp_authority() -> (String, String) {
    let url = amqp_url();
    let rest = url.strip_prefix("amqp://").expect("a plain AMQP URL");
    let authority = rest.split('/').next().unwrap();
    let (login, host) = authority.rsplit_once('@').unwrap_or(("guest:guest", authority));
    (login.to_owned(), host.to_owned())
}

fn settings_for(prefix: &str) -> BrokerSettings {
    settings_at(&amqp_url(), prefix)
}

fn settings_at(url: &str, prefix: &str) -> BrokerSettings {
    BrokerSettings {
        url: AmqpUrl::new(url),
        prefix: prefix.to_owned(),
        connect_timeout: Duration::from_secs(10),
        heartbeat: Duration::from_secs(10),
        confirm_timeout: Duration::from_secs(10),
        name: format!("oncebox test {prefix}"),
    }
}

async fn fresh() -> Broker {
    connect(&format!("t{}.", Uuid::new_v4().simple())).await
}

async fn connect(prefix: &str) -> Broker {
    Broker::connect(&settings_for(prefix)).await.expect("a connection")
}

fn message(tool: &str) -> OutgoingMessage {
    let operation_id = Uuid::now_v7();
    OutgoingMessage {
        message_id: Uuid::now_v7(),
        tool: tool.to_owned(),
        operation_id,
        tenant: "acme".to_owned(),
        operation_key: format!("acme:test:w:{operation_id}"),
        traceparent: None,
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// Looks again until the condition holds.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn publish(broker: &Broker, messages: &[OutgoingMessage]) -> Vec<PublishResult> {
    let mut publisher = Publisher::open(broker).await.expect("a publisher");
    soon("confirms", publisher.publish_batch(messages)).await.expect("published")
}

async fn publish_to(broker: &Broker, tool: &str, count: usize) -> HashSet<String> {
    broker.declare_base().await.unwrap();
    broker.declare_tool(tool).await.unwrap();
    let messages: Vec<_> = (0..count).map(|_| message(tool)).collect();
    let results = publish(broker, &messages).await;
    assert!(results.iter().all(|result| *result == PublishResult::Confirmed), "{results:?}");
    messages.into_iter().map(|message| message.operation_key).collect()
}

fn tools(names: &[(&str, u16)]) -> Vec<(String, u16)> {
    names.iter().map(|(name, prefetch)| ((*name).to_owned(), *prefetch)).collect()
}

async fn receive(consumer: &mut Consumer, what: &str) -> Delivery {
    soon(what, consumer.recv()).await.expect("a delivery")
}

async fn event(
    events: &mut mpsc::Receiver<ConsumerEvent>,
    wanted: impl Fn(&ConsumerEvent) -> bool,
) -> ConsumerEvent {
    soon("an event", async {
        loop {
            let event = events.recv().await.expect("the consumer lives");
            if wanted(&event) {
                return event;
            }
        }
    })
    .await
}

async fn side_channel() -> lapin::Channel {
    let connection = lapin::Connection::connect(&amqp_url(), Default::default()).await.unwrap();
    // The channel keeps the connection open.
    connection.create_channel().await.unwrap()
}

async fn delete_on_the_side(broker: &Broker, delete: impl AsyncFnOnce(&lapin::Channel)) {
    assert!(broker.is_usable());
    delete(&side_channel().await).await;
}
