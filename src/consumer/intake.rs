//! From the broker to claims: no more is claimed than can start now.
//!
//! Deliveries wait here, unclaimed, until their tool has room. A busy row is asked for again after a
//! moment; after a second its message is put off in the database and acked.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;
use uuid::Uuid;

use super::arrived::Arrived;
use super::claim::{self, Claiming, Started, Verdict};
use super::effect::{Guard, Passage, attempt};
use super::lease::Leases;
use super::mark::ToMark;
use super::settle::Finished;
use super::transact::ToCommit;
use super::{WorkerSettings, ack_all, pause};
use crate::broker::{AckHandle, Broker, Consumer, Delivery};
use crate::domain::rule::Resend;
use crate::store::{self, DeadLetter, Link, StoreError};
use crate::tool::{Call, ToolKind};

/// How soon a busy row is asked for again.
const BUSY_AGAIN: Duration = Duration::from_millis(50);

/// How long a message is put off whose row stays busy.
const BUSY_LATER: Duration = Duration::from_secs(1);

/// How long deliveries wait here at the longest before somebody looks whether they can start.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// The worker's hands: what has arrived, what is claimed, what runs.
pub(super) struct Intake {
    claiming: Claiming,
    link: Link,
    concurrency: u32,
    batch: usize,
    margin: Duration,
    leases: Leases,
    finished: mpsc::Sender<Finished>,
    marker: mpsc::Sender<ToMark>,
    committer: mpsc::Sender<ToCommit>,
    waiting: BTreeMap<String, VecDeque<Arrived>>,
    busy: VecDeque<(Instant, Arrived)>,
    alone: VecDeque<Arrived>,
    effects: JoinSet<()>,
    /// Rung when an operation is settled: there is room again.
    room: Arc<Notify>,
}

impl Intake {
    pub(super) fn new(
        settings: &WorkerSettings,
        claiming: Claiming,
        leases: Leases,
        finished: mpsc::Sender<Finished>,
        marker: mpsc::Sender<ToMark>,
        committer: mpsc::Sender<ToCommit>,
    ) -> Self {
        Self {
            claiming,
            link: Link::new(&settings.database, "worker claim", Duration::from_secs(20)),
            concurrency: settings.concurrency,
            batch: usize::try_from(settings.batch).unwrap_or(200).max(1),
            margin: settings.margin,
            leases,
            finished,
            marker,
            committer,
            waiting: BTreeMap::new(),
            busy: VecDeque::new(),
            alone: VecDeque::new(),
            effects: JoinSet::new(),
            room: Arc::new(Notify::new()),
        }
    }

    /// Consumes until the connection is lost or `shutdown` says stop. What was not started then goes
    /// back to its queue.
    pub(super) async fn consume(&mut self, broker: &Broker, shutdown: &mut watch::Receiver<bool>) {
        let mut consumer = match Consumer::start(broker, &self.claiming.served.prefetches()).await {
            Ok(consumer) => consumer,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "cannot consume; trying again");
                drop(timeout(Duration::from_secs(1), shutdown.changed()).await);
                return;
            }
        };
        let mut failures = 0_u32;
        while !*shutdown.borrow() {
            tokio::select! {
                arrived = consumer.recv() => match arrived {
                    Ok(delivery) => self.take(delivery, &mut consumer).await,
                    Err(_) => break,
                },
                () = self.room.notified() => {}
                () = self.next_busy() => {}
                // A tool's pause after 401 or 403 ends without anybody saying so.
                () = sleep(LOOK_ANYWAY) => {}
                _ = shutdown.changed() => break,
            }
            match self.start_what_can().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    warn!(
                        error = &error as &dyn std::error::Error,
                        failures, "not claimed; trying again"
                    );
                    pause(failures).await;
                    self.room.notify_one();
                }
            }
        }
        self.give_back(&mut consumer).await;
    }

    /// Takes what is here, without waiting for more.
    async fn take(&mut self, first: Delivery, consumer: &mut Consumer) {
        let mut unreadable = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(delivery) = next {
            match Arrived::read(delivery) {
                Ok(arrived) => {
                    self.waiting.entry(arrived.message.tool.clone()).or_default().push_back(arrived)
                }
                Err(dead) => unreadable.push(*dead),
            }
            taken += 1;
            next = if taken < self.batch { consumer.try_recv() } else { None };
        }
        self.bury(unreadable).await;
    }

    /// Keeps what cannot be understood, then acks it. A failure leaves it unacked: it comes again.
    async fn bury(&mut self, unreadable: Vec<(DeadLetter, AckHandle)>) {
        if unreadable.is_empty() {
            return;
        }
        let (letters, handles): (Vec<DeadLetter>, Vec<AckHandle>) = unreadable.into_iter().unzip();
        warn!(
            count = letters.len(),
            reason = letters.first().map(|letter| &letter.reason),
            "messages cannot be understood; kept in dead_letters"
        );
        let mut failures = 0;
        // They hold up the others only while the database is away, when nothing can go on anyway.
        while let Err(error) =
            self.link.transaction(async |connection| store::bury(connection, &letters).await).await
        {
            failures += 1;
            warn!(
                error = &error as &dyn std::error::Error,
                failures, "dead letters not kept yet; trying again"
            );
            pause(failures).await;
            if handles.iter().all(AckHandle::is_stale) {
                return;
            }
        }
        ack_all(handles).await;
    }

    async fn next_busy(&self) {
        match self.busy.front() {
            Some((at, _)) => tokio::time::sleep_until(*at).await,
            None => std::future::pending().await,
        }
    }

    /// Claims and starts until nothing more can start.
    async fn start_what_can(&mut self) -> Result<(), StoreError> {
        while self.effects.try_join_next().is_some() {}
        self.busy_again();
        if let Some(arrived) = self.next_alone() {
            return self.claim(vec![arrived], true).await;
        }
        if !self.alone.is_empty() {
            // Nothing new starts until that one has had the worker to itself.
            return Ok(());
        }
        loop {
            let startable = self.startable();
            if startable.is_empty() {
                return Ok(());
            }
            self.claim(startable, false).await?;
        }
    }

    fn running(&self) -> u32 {
        u32::try_from(self.effects.len()).unwrap_or(u32::MAX)
    }

    fn next_alone(&mut self) -> Option<Arrived> {
        if self.effects.is_empty() { self.alone.pop_front() } else { None }
    }

    fn busy_again(&mut self) {
        let now = Instant::now();
        while self.busy.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, arrived)) = self.busy.pop_front() {
                self.waiting.entry(arrived.message.tool.clone()).or_default().push_front(arrived);
            }
        }
    }

    /// The deliveries that could start now, tools in turn. Stale ones come again by themselves.
    fn startable(&mut self) -> Vec<Arrived> {
        let mut free = usize::try_from(self.concurrency.saturating_sub(self.running()))
            .unwrap_or(usize::MAX)
            .min(self.batch);
        let mut rooms: HashMap<String, u32> = HashMap::new();
        let mut startable = Vec::new();
        loop {
            let before = startable.len();
            for (tool, waiting) in &mut self.waiting {
                let lane = || self.claiming.served.lane(tool).map_or(1, |lane| lane.room());
                let room = rooms.entry(tool.clone()).or_insert_with(lane);
                if free == 0 || *room == 0 {
                    continue;
                }
                while waiting.front().is_some_and(|arrived| arrived.handle.is_stale()) {
                    waiting.pop_front();
                }
                if let Some(arrived) = waiting.pop_front() {
                    *room -= 1;
                    free -= 1;
                    startable.push(arrived);
                }
            }
            if startable.len() == before {
                return startable;
            }
        }
    }

    async fn claim(&mut self, asks: Vec<Arrived>, alone: bool) -> Result<(), StoreError> {
        let asked = Instant::now();
        let (claiming, link) = (&self.claiming, &mut self.link);
        let mut planned = None;
        let claimed = link
            .transaction(async |connection| {
                planned = Some(claim::claim(connection, &asks, claiming, alone).await?);
                Ok(())
            })
            .await;
        let verdicts = match (claimed, planned) {
            (Ok(()), Some(verdicts)) => verdicts,
            (Err(error), Some(verdicts)) if !error.nothing_written() => {
                self.find_out(verdicts).await
            }
            (Err(error), _) => {
                self.put_back(asks);
                return Err(error);
            }
            (Ok(()), None) => HashMap::new(),
        };
        self.carry_out(asks, verdicts, asked).await
    }

    /// The answer to the commit was lost: which claims stand is read from the records. What is not
    /// known to stand is asked for again.
    async fn find_out(&mut self, mut verdicts: HashMap<Uuid, Verdict>) -> HashMap<Uuid, Verdict> {
        let runs = verdicts.iter().filter_map(|(id, verdict)| match verdict {
            Verdict::Run(started) => Some((*id, started.run.ticket.token.0)),
            Verdict::Ack | Verdict::Busy | Verdict::Alone => None,
        });
        let planned: Vec<(Uuid, i64)> = runs.collect();
        let owner = self.claiming.owner.clone();
        let mut failures = 0;
        let standing = loop {
            let read = self
                .link
                .transaction(async |connection| claim::standing(connection, &planned, &owner).await)
                .await;
            match read {
                Ok(standing) => break standing,
                Err(error) => {
                    failures += 1;
                    warn!(
                        error = &error as &dyn std::error::Error,
                        failures, "claims not read yet; trying again"
                    );
                    pause(failures).await;
                }
            }
        };
        for (id, verdict) in &mut verdicts {
            if !standing.contains(id) {
                *verdict = Verdict::Busy;
            }
        }
        verdicts
    }

    fn put_back(&mut self, asks: Vec<Arrived>) {
        for arrived in asks.into_iter().rev() {
            self.waiting.entry(arrived.message.tool.clone()).or_default().push_front(arrived);
        }
    }

    async fn carry_out(
        &mut self,
        asks: Vec<Arrived>,
        mut verdicts: HashMap<Uuid, Verdict>,
        asked: Instant,
    ) -> Result<(), StoreError> {
        let (mut acks, mut put_off) = (Vec::new(), Vec::new());
        for arrived in asks {
            let operation = arrived.operation;
            // A second delivery of the same operation in one batch finds its verdict taken: in flight.
            match verdicts.remove(&operation) {
                Some(Verdict::Run(started)) => {
                    self.start(*started, arrived.handle, asked).await;
                    verdicts.insert(operation, Verdict::Ack);
                }
                Some(Verdict::Ack) => {
                    acks.push(arrived.handle);
                    verdicts.insert(operation, Verdict::Ack);
                }
                Some(Verdict::Busy) | None => {
                    verdicts.insert(operation, Verdict::Busy);
                    if arrived.busy_too_long() {
                        put_off.push(arrived);
                    } else {
                        self.busy.push_back((Instant::now() + BUSY_AGAIN, arrived));
                    }
                }
                Some(Verdict::Alone) => {
                    verdicts.insert(operation, Verdict::Ack);
                    self.alone.push_back(arrived);
                }
            }
        }
        ack_all(acks).await;
        self.put_off(put_off).await
    }

    /// Writes a delayed message for what stays busy, and acks.
    async fn put_off(&mut self, arrived: Vec<Arrived>) -> Result<(), StoreError> {
        if arrived.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = arrived.iter().map(|arrived| arrived.operation).collect();
        let written = self
            .link
            .transaction(async |connection| {
                store::enqueue_later(connection, &ids, BUSY_LATER).await
            })
            .await;
        if let Err(error) = written {
            self.put_back(arrived);
            return Err(error);
        }
        ack_all(arrived.into_iter().map(|arrived| arrived.handle).collect()).await;
        Ok(())
    }

    /// Starts one attempt.
    async fn start(&mut self, started: Started, handle: AckHandle, asked: Instant) {
        let Started { run, serving, arguments } = started;
        let record = run.step.record;
        let Some(running) =
            self.claiming.served.lane(&record.tool).map(|lane| lane.begin(&self.room))
        else {
            return;
        };
        let held = self.leases.hold(record.id, run.ticket.token.0, serving.rule.lease, asked);
        let call = Call {
            operation_id: record.id,
            tenant: record.tenant,
            environment: record.environment,
            tool: record.tool,
            tool_version: record.tool_version,
            arguments: Arc::new(arguments),
            idempotency_key: record.downstream_key.map(|key| key.key).unwrap_or_default(),
            resend: run.ticket.is_resend(),
            attempt: record.attempts,
            traceparent: record.traceparent,
        };
        let (ticket, rule) = (run.ticket, serving.rule);
        if let ToolKind::Transactional(tool) = serving.tool.kind() {
            let ask = ToCommit { call, ticket, rule, tool: Arc::clone(tool), handle, running };
            drop(self.committer.send(ask).await);
            return;
        }
        let passage = Arc::new(Passage::default());
        let guard = Guard {
            ticket,
            held,
            margin: self.margin,
            window_ends: run.send_within.map(|within| asked + within),
            marker: (rule.resend == Resend::Never).then(|| self.marker.clone()),
            passage: Arc::clone(&passage),
        };
        let finished = self.finished.clone();
        self.effects.spawn(async move {
            let learned = attempt(serving.tool.kind(), &call, guard).await;
            let ticket = passage.ticket(ticket);
            let done =
                Finished { operation: call.operation_id, ticket, learned, rule, handle, running };
            if finished.send(done).await.is_err() {
                warn!(operation_id = %call.operation_id, "the settler is gone; the lease will end");
            }
        });
    }

    /// Stops consuming and gives back what was not started.
    async fn give_back(&mut self, consumer: &mut Consumer) {
        let within = Duration::from_secs(2);
        consumer.stop_consuming(within).await;
        let mut back: Vec<AckHandle> = Vec::new();
        while let Ok(Ok(delivery)) = timeout(within, consumer.recv()).await {
            back.push(delivery.handle);
        }
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        let busy = std::mem::take(&mut self.busy).into_iter().map(|(_, arrived)| arrived);
        let alone = std::mem::take(&mut self.alone);
        back.extend(waiting.chain(busy).chain(alone).map(|arrived| arrived.handle));
        for handle in back.into_iter().filter(|handle| !handle.is_stale()) {
            if let Err(error) = handle.release().await {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "not given back; the broker takes it when the connection ends"
                );
            }
        }
    }

    /// Lets running effects end, at most for `within`; what does not is left to its lease.
    pub(super) async fn drain(mut self, within: Duration) {
        let all = async { while self.effects.join_next().await.is_some() {} };
        if timeout(within, all).await.is_err() {
            warn!(left = self.effects.len(), "effects did not end in time; their leases will");
            self.effects.abort_all();
            sleep(Duration::from_millis(10)).await;
        }
    }
}
