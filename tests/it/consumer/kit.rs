//! What several modules here need: short leases, workers as processes, messages by hand, Rust tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use oncebox::broker::Names;
use oncebox::domain::attempt::{Receipt, Response};
use oncebox::ingress::Submission;
use oncebox::store;
use oncebox::tool::{Attempted, Call, Gate, Sending, Tool};
use sqlx::{Executor as _, PgConnection, Row as _};
use uuid::Uuid;

use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::process::{Process, oncebox};
use crate::support::world::World;

/// The margin that goes with [`QUICK`].
pub(crate) const MARGIN: &[(&str, &str)] = &[("worker.margin", "1s"), ("worker.drain", "5s")];

/// A lease of two seconds, and retries without long waits.
pub(crate) const QUICK: &str = "lease: 2s\nretry: {initial: 100ms, max: 300ms, jitter: 0}";

/// Retries without long waits.
pub(crate) const RETRY: &str = "retry: {initial: 100ms, max: 300ms, jitter: 0}";

/// The tickets' contract with a time-out that fits a short lease.
pub(crate) fn quick_tickets(downstream: &Downstream) -> String {
    tickets(&downstream.url, QUICK).replace("timeout: 2s", "timeout: 900ms")
}

/// The mails' contract, likewise.
pub(crate) fn quick_mails(downstream: &Downstream) -> String {
    mails(&downstream.url, QUICK).replace("timeout: 2s", "timeout: 900ms")
}

/// A tool without downstream, for code in Rust: its effect class and what else its contract says.
pub(crate) fn rust_contract(name: &str, effect_class: &str, more: &str) -> String {
    format!(
        r#"
name: {name}
version: "1"
purpose: Do something in Rust.
use_when: [a test asks]
do_not_use_when: [nobody asks]
operation_key:
  created_by: workflow step
  reused_by: every retry of that step
  new_key_when: a second one is wanted
  scope: [tenant, environment, workflow_id, step_id]
effect_class: {effect_class}
repeat_side_effects: none
arguments: {{type: object, additionalProperties: false, required: [n], properties: {{n: {{type: string}}}}}}
fingerprint: {{fields: [/n]}}
owner: {{reconciliation: support, respond_within: 4h, next_review: 2027-03-01}}
{more}
"#
    )
}

/// The same of an effect that nobody can ask about. Not `append`: each request would then wait for an
/// approval.
pub(crate) fn blind_rust_contract(name: &str, more: &str) -> String {
    rust_contract(name, "key_based", &format!("twins: {{hold: false}}\n{more}"))
}

/// Registers a contract and puts its file where roles of this test find it, under a margin of 1 s.
pub(crate) async fn contract(world: &World, yaml: &str) {
    contract_in(world, &world.contracts, yaml).await;
}

/// The same with the file in another directory.
pub(crate) async fn contract_in(world: &World, directory: &std::path::Path, yaml: &str) {
    let read = oncebox::contract_file::read(yaml, Duration::from_secs(1))
        .unwrap_or_else(|e| panic!("{e:?}"));
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join(format!("{}@{}.yaml", read.tool, read.version)), yaml).unwrap();
    let digest = read.material_digest();
    let mut connection = world.connect().await;
    store::register(
        &mut connection,
        read.tool.as_str(),
        read.version.as_str(),
        yaml,
        &digest,
        store::Immaterial::of(&read),
    )
    .await
    .unwrap();
}

/// A worker as a process of its own, under `name`.
pub(crate) fn worker(world: &World, name: &str) -> Process {
    roles(world, "worker", &[("ONCEBOX_WORKER_NAME", name)])
}

/// Roles as a process, with more settings.
pub(crate) fn roles(world: &World, roles: &str, more: &[(&str, &str)]) -> Process {
    let mut command = oncebox(world, &["run", "--role", roles]);
    command.env("ONCEBOX_WORKER_MARGIN", "1s").env("ONCEBOX_WORKER_DRAIN", "5s");
    command.envs(more.iter().copied());
    Process::start(command)
}

/// Submits a ticket or mail (or an `n` for a Rust tool) for `step`.
pub(crate) async fn submit(world: &World, tool: &str, step: &str) {
    world.submit(&submission(world, tool, step)).await.unwrap();
}

pub(crate) fn submission(world: &World, tool: &str, step: &str) -> Submission {
    let arguments = match tool {
        "tickets.create" => format!(r#"{{"subject":"{step}","body":"b"}}"#),
        "mail.send" => format!(r#"{{"to":"a","subject":"{step}"}}"#),
        _ => format!(r#"{{"n":"{step}"}}"#),
    };
    world.submission(tool, step, &arguments)
}

/// Submits one ticket for each step in one transaction.
pub(crate) async fn submit_all(world: &World, tool: &str, steps: impl Iterator<Item = String>) {
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    let publisher = oncebox::ingress::Publisher::default();
    for step in steps {
        publisher.submit(&mut connection, &submission(world, tool, &step)).await.unwrap();
    }
    connection.execute("commit").await.unwrap();
}

/// The columns of one step's record that tests look at.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: Uuid,
    pub(crate) status: String,
    pub(crate) phase: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) receipt: Option<String>,
    pub(crate) response: Option<String>,
    pub(crate) response_dropped: bool,
    pub(crate) owner: Option<String>,
    pub(crate) epoch: i64,
    pub(crate) attempts: i32,
    pub(crate) lost_claims: i32,
    pub(crate) sent: bool,
}

pub(crate) async fn record(world: &World, step: &str) -> Record {
    let row = sqlx::query(
        "select operation_id, status, phase, reason, effect_reference, response_json::text as response, response_dropped, \
                owner, claim_epoch, attempts, lost_claims, first_sent_at is not null as sent \
         from oncebox.operations where operation_key = $1",
    )
    .bind(format!("acme:test:run:{step}"))
    .fetch_one(&mut world.connect().await)
    .await
    .unwrap();
    Record {
        id: row.get("operation_id"),
        status: row.get("status"),
        phase: row.get("phase"),
        reason: row.get("reason"),
        receipt: row.get("effect_reference"),
        response: row.get("response"),
        response_dropped: row.get("response_dropped"),
        owner: row.get("owner"),
        epoch: row.get("claim_epoch"),
        attempts: row.get("attempts"),
        lost_claims: row.get("lost_claims"),
        sent: row.get("sent"),
    }
}

/// Waits until the step's record is as `wanted` says.
pub(crate) async fn until(
    world: &World,
    step: &str,
    what: &str,
    wanted: impl Fn(&Record) -> bool,
) -> Record {
    crate::support::eventually(what, 30, async || {
        let found = record(world, step).await;
        wanted(&found).then_some(found)
    })
    .await
}

/// Waits until the step's record has this status.
pub(crate) async fn ends(world: &World, step: &str, status: &str) -> Record {
    until(world, step, &format!("{step} is {status}"), |record| record.status == status).await
}

/// Waits until `count` calls have arrived at the downstream.
pub(crate) async fn arrived(downstream: &Downstream, count: u64) {
    crate::support::eventually(&format!("{count} calls have arrived"), 20, async || {
        (downstream.effects().await["requests"].as_u64() >= Some(count)).then_some(())
    })
    .await;
}

/// Locks the step's record in a transaction that stays open until the connection is dropped.
pub(crate) async fn hold_row(world: &World, step: &str) -> PgConnection {
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    sqlx::query("select from oncebox.operations where operation_key = $1 for update")
        .bind(format!("acme:test:run:{step}"))
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

/// A channel to publish by hand with.
pub(crate) async fn channel(world: &World) -> Channel {
    let connection =
        Connection::connect(&world.amqp, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(Default::default()).await.unwrap();
    channel
}

/// Publishes `body` for `tool`, past the outbox, with an envelope's usual properties.
pub(crate) async fn publish(world: &World, channel: &Channel, tool: &str, body: &[u8]) {
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
        .with_type("oncebox.operation.v1".into())
        .with_message_id(Uuid::new_v4().to_string().into());
    let exchange = Names::new(&world.prefix).unwrap().operations();
    let confirm = channel
        .basic_publish(
            exchange.as_str().into(),
            tool.into(),
            BasicPublishOptions { mandatory: true, ..Default::default() },
            body,
            properties,
        )
        .await
        .unwrap()
        .await
        .unwrap();
    assert!(confirm.is_ack() && confirm.take_message().is_none(), "{tool} takes it");
}

/// The body that names the step's record.
pub(crate) async fn envelope(world: &World, step: &str) -> Vec<u8> {
    let Record { id, .. } = record(world, step).await;
    envelope_of(id, "acme", &format!("acme:test:run:{step}"))
}

pub(crate) fn envelope_of(id: Uuid, tenant: &str, key: &str) -> Vec<u8> {
    format!(r#"{{"operation_id":"{id}","tenant":"{tenant}","operation_key":"{key}"}}"#).into_bytes()
}

/// Declares what a relay or worker would, so that messages can be published before one runs.
pub(crate) async fn declare(world: &World, tools: &[&str]) {
    let broker = oncebox::broker::Broker::connect(&world.broker("test")).await.unwrap();
    broker.declare_base().await.unwrap();
    for tool in tools {
        broker.declare_tool(tool).await.unwrap();
    }
    broker.close().await;
}

/// A tool written in Rust: what it does behind its gate is a closure over the call.
pub(crate) struct Scripted<F>(pub(crate) F);

#[async_trait]
impl<F, A> Tool for Scripted<F>
where
    F: Fn(Call, Gate) -> A + Send + Sync,
    A: Future<Output = Attempted> + Send,
{
    async fn call(&self, call: &Call, gate: Gate) -> Attempted {
        (self.0)(call.clone(), gate).await
    }
}

/// A tool that counts itself: opens its gate, does `work`, is applied.
pub(crate) fn counting<A>(
    effects: &Arc<AtomicU64>,
    work: impl Fn(String) -> A + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    A: Future<Output = ()> + Send + 'static,
{
    let effects = Arc::clone(effects);
    Arc::new(Scripted(move |call: Call, gate: Gate| {
        let (effects, working) = (Arc::clone(&effects), work(n(&call)));
        async move {
            let sending = match gate.open().await {
                Ok(sending) => sending,
                Err(closed) => return closed,
            };
            effects.fetch_add(1, Ordering::SeqCst);
            working.await;
            applied(sending, &call)
        }
    }))
}

/// The argument that tells a test's operations apart.
pub(crate) fn n(call: &Call) -> String {
    call.arguments.member("n").and_then(|n| n.as_str()).unwrap().to_owned()
}

pub(crate) fn applied(sending: Sending, call: &Call) -> Attempted {
    sending.applied(Receipt::new(format!("R-{}", n(call))).unwrap(), Response::None)
}

/// Makes every write that moves a record to this `status` or `phase` wait inside its transaction
/// until the answer is dropped: so a process can be ended exactly there.
pub(crate) async fn stop_before(world: &World, moved_to: &'static str) -> PgConnection {
    let mut connection = world.connect().await;
    let barrier = format!(
        "create function oncebox.test_barrier() returns trigger language plpgsql as \
           $$ begin perform pg_advisory_xact_lock_shared(7); return new; end $$; \
         create trigger test_barrier before update on oncebox.operations for each row \
           when (new.status = '{moved_to}' or (new.phase = '{moved_to}' and old.phase is distinct from new.phase)) \
           execute function oncebox.test_barrier(); \
         select pg_advisory_lock(7)"
    );
    connection.execute(sqlx::AssertSqlSafe(barrier)).await.unwrap();
    connection
}

/// Waits until a write stands before the barrier.
pub(crate) async fn stands_there(world: &World) {
    let waiting = "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
        where d.datname = current_database() and l.locktype = 'advisory' and l.objid = 7 and not l.granted";
    crate::support::eventually("a write stands before the barrier", 20, async || {
        (world.count(waiting).await > 0).then_some(())
    })
    .await;
}
