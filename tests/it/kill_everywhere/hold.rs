//! Exchanges that the world holds, so that something can happen to whoever waits for their end.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::faults::{Fault, Ill};
use super::sluice::{ACK, Gate, PUBLISH, Sluice};
use super::stage::Stage;
use crate::support::cutter::Cutter;
use crate::support::downstream::Downstream;
use crate::support::eventually;
use crate::support::wire;
use crate::support::world::World;

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// The commit of a transaction that makes this change: it waits inside the server.
    Commit(Change),
    /// A call of this kind waits at the downstream's door.
    Call(&'static str),
    /// Messages on their way to the broker.
    Publish,
    /// The broker's confirms on their way back.
    Confirm,
    /// A worker's acks on their way to the broker.
    Ack,
}

/// A change of a row, as a trigger sees it: its event and its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) event: &'static str,
    pub(super) when: &'static str,
}

/// The ways that a process which is to be hurt takes to the servers.
pub(super) struct Ways {
    postgres: Cutter,
    pub(super) database: String,
    rabbit: Sluice,
    pub(super) amqp: String,
}

impl Ways {
    pub(super) async fn to(world: &World) -> Self {
        let (postgres, database) = Cutter::before(&world.database).await;
        let rabbit = Sluice::before(&wire::host_of(&world.amqp)).await;
        let amqp = wire::through(&world.amqp, rabbit.address());
        Self { postgres, database, rabbit, amqp }
    }

    /// Ends all connections to PostgreSQL of this moment.
    pub(super) fn cut_postgres(&self) {
        self.postgres.cut();
    }

    /// Ends all connections to the broker of this moment.
    pub(super) fn cut_rabbit(&self) {
        self.rabbit.cut();
    }
}

/// A standing order to hold an exchange.
pub(super) struct Hold<'a> {
    exchange: Exchange,
    stage: &'a Stage,
    /// Has the lock that held commits wait for.
    lock: Option<PgConnection>,
    calls_before: u64,
    calls_held: AtomicU64,
}

/// Locks that transactions of this database wait for before the barrier.
const BEFORE_THE_BARRIER: &str = "from pg_locks l join pg_database d on d.oid = l.database \
    where d.datname = current_database() and l.locktype = 'advisory' and l.objid = 7";

impl<'a> Hold<'a> {
    pub(super) async fn of(exchange: Exchange, stage: &'a Stage) -> Self {
        let Stage { world, ways, downstream, .. } = stage;
        let (mut lock, mut calls_before) = (None, 0);
        match exchange {
            Exchange::Commit(change) => lock = Some(barrier(world, change).await),
            Exchange::Call(kind) => {
                downstream.control(json!({"pause": {"on": kind, "hold": true}})).await;
                calls_before = calls(downstream, kind).await;
            }
            Exchange::Publish => ways.rabbit.forth(Gate::HeldFrom(PUBLISH)),
            Exchange::Confirm => ways.rabbit.back(Gate::HeldFrom(ACK)),
            Exchange::Ack => ways.rabbit.forth(Gate::HeldFrom(ACK)),
        }
        let calls_held = AtomicU64::new(0);
        Self { exchange, stage, lock, calls_before, calls_held }
    }

    /// Waits until so many operations stand there.
    pub(super) async fn reached(&self, operations: usize) {
        eventually("the step is reached", 90, async || self.stands(operations).await.then_some(()))
            .await;
    }

    async fn stands(&self, operations: usize) -> bool {
        let forth = || self.stage.ways.rabbit.held().0 >= operations;
        match self.exchange {
            Exchange::Commit(_) => {
                let waiting = number(self.stage, "and not l.granted").await;
                usize::try_from(waiting).unwrap() >= operations
            }
            Exchange::Call(kind) => {
                let held = calls(&self.stage.downstream, kind).await - self.calls_before;
                self.calls_held.store(held, Ordering::SeqCst);
                usize::try_from(held).unwrap() >= operations
            }
            Exchange::Publish | Exchange::Ack => forth(),
            // The worker beside has had the messages; nothing of it has come back to the relay.
            Exchange::Confirm => self.stage.ways.rabbit.held().1 > 0 && self.nobody_pending().await,
        }
    }

    async fn nobody_pending(&self) -> bool {
        let pending = "select count(*) from oncebox.operations where status = 'pending'";
        self.stage.count(pending).await == 0
    }

    /// The exchange is carried out, or is not, and whoever is cut off never sees its answer. The
    /// process has been killed or stopped before, if that is the fault.
    pub(super) async fn end(mut self, fault: Fault) {
        let cut = fault.ill == Ill::Cut;
        match self.exchange {
            Exchange::Commit(_) => self.end_commits(fault).await,
            Exchange::Call(kind) => self.end_calls(kind, fault).await,
            Exchange::Publish | Exchange::Ack | Exchange::Confirm if !fault.done => {
                self.stage.ways.rabbit.cut();
            }
            Exchange::Publish | Exchange::Ack => {
                if cut {
                    self.stage.ways.rabbit.back(Gate::Lost);
                }
                self.stage.ways.rabbit.forth(Gate::Open);
                self.until_arrived().await;
            }
            Exchange::Confirm => {
                self.stage.ways.rabbit.back(Gate::Open);
                self.until_arrived().await;
            }
        }
        if cut && matches!(self.exchange, Exchange::Publish | Exchange::Ack | Exchange::Confirm) {
            self.stage.ways.rabbit.cut();
        }
        self.stage.ways.rabbit.forth(Gate::Open);
        self.stage.ways.rabbit.back(Gate::Open);
    }

    async fn until_arrived(&self) {
        let left = async || (self.stage.ways.rabbit.held() == (0, 0)).then_some(());
        eventually("what was held is let go", 10, left).await;
    }

    async fn end_commits(&mut self, fault: Fault) {
        let mut lock = self.lock.take().expect("a barrier stands");
        if !fault.done {
            let end = format!(
                "select pg_terminate_backend(l.pid) {BEFORE_THE_BARRIER} and not l.granted"
            );
            lock.execute(sqlx::AssertSqlSafe(end)).await.unwrap();
            self.until_locks("and not l.granted").await;
        }
        let cut = fault.done && fault.ill == Ill::Cut;
        self.stage.ways.postgres.swallow_answers(cut);
        lock.close().await.unwrap();
        if cut {
            self.until_locks("").await;
            self.stage.ways.postgres.cut();
            self.stage.ways.postgres.swallow_answers(false);
        }
    }

    async fn until_locks(&self, which: &str) {
        eventually("nobody is at the barrier", 20, async || {
            (number(self.stage, which).await == 0).then_some(())
        })
        .await;
    }

    async fn end_calls(&self, kind: &str, fault: Fault) {
        let times = self.calls_held.load(Ordering::SeqCst);
        let spoil = match (fault.done, fault.ill) {
            (false, _) => Some("drop_before_effect"),
            (true, Ill::Cut) => Some("drop_response"),
            (true, Ill::Killed | Ill::Paused) => None,
        };
        if let Some(spoil) = spoil {
            self.stage.downstream.control(json!({"on": kind, spoil: true, "times": times})).await;
        }
        self.stage.downstream.control(json!({"pause": {"on": kind, "hold": false}})).await;
    }
}

/// Makes the commit of every transaction with this change wait until the lock is free.
async fn barrier(world: &World, Change { event, when }: Change) -> PgConnection {
    let mut connection = world.connect().await;
    let barrier = format!(
        "create function oncebox.test_barrier() returns trigger language plpgsql as \
           $$ begin perform pg_advisory_xact_lock_shared(7); return null; end $$; \
         create constraint trigger test_barrier after {event} deferrable initially deferred \
           for each row when ({when}) execute function oncebox.test_barrier(); \
         select pg_advisory_lock(7)"
    );
    connection.execute(sqlx::AssertSqlSafe(barrier)).await.unwrap();
    connection
}

async fn number(stage: &Stage, which: &str) -> i64 {
    stage.count(format!("select count(distinct l.pid) {BEFORE_THE_BARRIER} {which}")).await
}

/// How many calls of this kind have arrived so far.
async fn calls(downstream: &Downstream, kind: &str) -> u64 {
    let calls = downstream.ask("GET", "/calls", &[], "").await.json();
    calls[kind].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
}
