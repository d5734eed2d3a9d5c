//! What a test does behind oncebox's back: queues that it looks at, empties, deletes and fills, and
//! rows that it writes.

use std::process::{Command, Stdio};
use std::time::Duration;

use lapin::options::{
    BasicGetOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use oncebox::broker::{AmqpUrl, BrokerSettings};
use oncebox::relay::{Relay, RelaySettings};
use oncebox::store::DatabaseUrl;
use uuid::Uuid;

use super::servers::Servers;
use super::world::World;

/// The test's own connection to the broker.
pub(crate) struct Wire {
    connection: Connection,
    prefix: String,
}

/// A message as it lay in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) operation: Uuid,
    pub(crate) message_id: String,
}

impl Wire {
    pub(crate) async fn of(world: &World) -> Self {
        let connection =
            Connection::connect(&world.amqp, ConnectionProperties::default()).await.unwrap();
        Self { connection, prefix: world.prefix.clone() }
    }

    /// A channel for one thing: a refusal closes it.
    pub(crate) async fn channel(&self) -> Channel {
        self.connection.create_channel().await.unwrap()
    }

    pub(crate) fn queue(&self, tool: &str) -> String {
        format!("{}oncebox.{tool}", self.prefix)
    }

    pub(crate) fn exchange(&self) -> String {
        format!("{}oncebox.operations", self.prefix)
    }

    /// How many messages wait in a tool's queue; none in one that is missing.
    pub(crate) async fn ready(&self, tool: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let channel = self.channel().await;
        let looked =
            channel.queue_declare(self.queue(tool).into(), passive, FieldTable::default()).await;
        let Ok(queue) = looked else { return 0 };
        channel.close(200, "looked".into()).await.unwrap();
        queue.message_count()
    }

    /// Takes at most `most` messages out of a tool's queue, for good.
    pub(crate) async fn take(&self, tool: &str, most: usize) -> Vec<Seen> {
        let (channel, mut seen) = (self.channel().await, Vec::new());
        while seen.len() < most {
            let options = BasicGetOptions { no_ack: true };
            let Ok(Some(message)) = channel.basic_get(self.queue(tool).into(), options).await
            else {
                break;
            };
            seen.push(read(&message.delivery));
        }
        channel.close(200, "taken".into()).await.ok();
        seen
    }

    pub(crate) async fn delete_queue(&self, tool: &str) {
        let options = QueueDeleteOptions::default();
        self.channel().await.queue_delete(self.queue(tool).into(), options).await.unwrap();
    }

    pub(crate) async fn purge(&self, tool: &str) -> u32 {
        self.channel().await.queue_purge(self.queue(tool).into(), Default::default()).await.unwrap()
    }

    pub(crate) async fn delete_exchange(&self) {
        let options = ExchangeDeleteOptions::default();
        self.channel().await.exchange_delete(self.exchange().into(), options).await.unwrap();
    }

    pub(crate) async fn unbind(&self, tool: &str) {
        let (queue, exchange) = (self.queue(tool).into(), self.exchange().into());
        let table = FieldTable::default();
        self.channel().await.queue_unbind(queue, exchange, tool.into(), table).await.unwrap();
    }

    /// A tool's queue as somebody else declared it: full at `most` messages, and then it refuses.
    pub(crate) async fn declare_small(&self, tool: &str, most: i32) {
        let text = |value: &str| AMQPValue::LongString(value.into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text("classic"));
        arguments.insert("x-max-length".into(), AMQPValue::LongInt(most));
        arguments.insert("x-overflow".into(), text("reject-publish"));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let channel = self.channel().await;
        channel.queue_declare(self.queue(tool).into(), durable, arguments).await.unwrap();
        let (options, table) = (QueueBindOptions::default(), FieldTable::default());
        let (queue, exchange) = (self.queue(tool).into(), self.exchange().into());
        channel.queue_bind(queue, exchange, tool.into(), options, table).await.unwrap();
    }
}

/// A message's own id and the record that its body names.
pub(crate) fn read(delivery: &lapin::message::Delivery) -> Seen {
    let body: serde_json::Value = serde_json::from_slice(&delivery.data).unwrap();
    let message_id = delivery.properties.message_id().as_ref().unwrap().to_string();
    Seen { operation: body["operation_id"].as_str().unwrap().parse().unwrap(), message_id }
}

/// Registers tools that nobody serves: what is published for them stays where a test can see it.
pub(crate) async fn tools(world: &World, names: &[&str]) {
    let mut connection = world.connect().await;
    for name in names {
        sqlx::query(
            "insert into oncebox.contracts (tool_name, tool_version, contract_text, material_digest, is_current) \
             values ($1, '1', 'a test', 'a test', true)",
        )
        .bind(name)
        .execute(&mut connection)
        .await
        .unwrap();
    }
}

/// Submits operations `from..=to` of a tool, in one transaction.
pub(crate) async fn submit(world: &World, tool: &str, from: i32, to: i32) {
    let mut connection = world.connect().await;
    sqlx::query(
        "select count(oncebox.submit('acme', 'test', $1, n::text, $1, '1', '{}')) from generate_series($2, $3) n",
    )
    .bind(tool)
    .bind(from)
    .bind(to)
    .execute(&mut connection)
    .await
    .unwrap();
}

/// A statement on this test's database.
pub(crate) async fn execute(world: &World, sql: &'static str) -> u64 {
    let mut connection = world.connect().await;
    sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected()
}

/// How a relay of a test works: it polls, and gives up confirms early.
pub(crate) fn settings(world: &World) -> RelaySettings {
    RelaySettings {
        database: DatabaseUrl::new(&world.database),
        listen: None,
        broker: BrokerSettings {
            confirm_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(3),
            ..world.broker("relay")
        },
        window: 2_000,
        batch: 500,
        poll: Duration::from_millis(100),
        lease: Duration::from_secs(8),
    }
}

/// The same through a proxy in front of the broker.
pub(crate) fn settings_through(world: &World, proxy: std::net::SocketAddr) -> RelaySettings {
    let mut settings = settings(world);
    settings.broker.url = AmqpUrl::new(through(&world.amqp, proxy));
    settings
}

/// A URL with another host and port.
pub(crate) fn through(url: &str, proxy: std::net::SocketAddr) -> String {
    let host = host_of(url);
    url.replacen(&host, &proxy.to_string(), 1)
}

/// `host:port` of a URL.
pub(crate) fn host_of(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    let authority = rest.split('/').next().unwrap();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

/// Passes of one relay until the outbox is empty. Failed passes are part of it.
pub(crate) async fn work_until_empty(world: &World, relay: &mut Relay, seconds: u64) {
    super::eventually("the outbox is empty", seconds, async || {
        relay.run_once().await.ok();
        (left(world).await == 0).then_some(())
    })
    .await;
}

/// Rows that are not confirmed yet.
pub(crate) async fn left(world: &World) -> i64 {
    world.count("select count(*) from oncebox.outbox").await
}

/// Runs `rabbitmqctl` on a test's own broker, with the surroundings of its process.
pub(crate) async fn rabbitmqctl(servers: &Servers, arguments: &[&str]) {
    let environment =
        std::fs::read(format!("/proc/{}/environ", servers.variable("RABBITMQ_PID"))).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let find =
        "ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmqctl | sort -V | tail -n 1";
    let script = format!("exec ${{RABBITMQ_BIN:-$(dirname \"$({find})\")}}/rabbitmqctl \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "rabbitmqctl"]).args(arguments).stdin(Stdio::null());
    for (name, value) in environment.split('\0').filter_map(|pair| pair.split_once('=')) {
        if name == "HOME" || name.starts_with("RABBITMQ_") || name.starts_with("ERL_EPMD") {
            command.env(name, value);
        }
    }
    command.env_remove("RUNNING_UNDER_SYSTEMD");
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
