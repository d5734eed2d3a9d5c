//! From the broker to claims: no more is claimed than can start now.
//!
//! Deliveries wait here, unclaimed, until their tool has room. A busy row is asked for again after a
//! moment; after a second its message is put off in the database and acked. What finds no place under
//! its contract's bound over all processes stays here unclaimed, for half a minute at most.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, warn};
use uuid::Uuid;

use super::arrived::Arrived;
use super::batch::{BUSY_AGAIN, BUSY_LATER, FULL_LATER};
use super::claim::{self, Claiming, Verdict};
use super::start::Starter;
use super::{Stop, WorkerSettings, ack_all, pause, refused};
use crate::broker::{AckHandle, Broker, Consumer, Delivery, SilentQueues};
use crate::chance;
use crate::store::{self, DeadLetter, Link, StoreError};

/// The worker's hands: what has arrived and is not claimed.
pub(super) struct Intake {
    claiming: Claiming,
    starter: Starter,
    link: Link,
    concurrency: u32,
    batch: usize,
    waiting: BTreeMap<String, VecDeque<Arrived>>,
    busy: VecDeque<(Instant, Arrived)>,
    alone: VecDeque<Arrived>,
    /// One that has killed workers before runs now, or did a moment ago: nothing starts beside it.
    solitary: bool,
    /// Rung when there is room again.
    room: Arc<Notify>,
    /// When room was last looked for.
    looked: Instant,
    silent: SilentQueues,
    stop: Stop,
}

impl Intake {
    pub(super) fn new(
        settings: &WorkerSettings,
        claiming: Claiming,
        starter: Starter,
        stop: Stop,
    ) -> Self {
        Self {
            room: claiming.served.freed(),
            claiming,
            starter,
            link: Link::new(&settings.database, "worker claim", Duration::from_secs(20)),
            concurrency: settings.concurrency,
            batch: usize::try_from(settings.batch).unwrap_or(200).max(1),
            waiting: BTreeMap::new(),
            busy: VecDeque::new(),
            alone: VecDeque::new(),
            solitary: false,
            looked: Instant::now(),
            silent: SilentQueues::default(),
            stop,
        }
    }

    /// What goes on when nothing is consumed any more.
    pub(super) fn into_starter(self) -> Starter {
        self.starter
    }

    /// Consumes until the connection is lost or the worker stops. What was not started then goes
    /// back to its queue.
    pub(super) async fn consume(&mut self, broker: &Broker) {
        let tools = self.claiming.served.prefetches();
        let mut consumer = match Consumer::start_knowing(broker, &tools, &self.silent).await {
            Ok(consumer) => consumer,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "cannot consume; trying again");
                drop(timeout(Duration::from_secs(1), self.stop.asked()).await);
                return;
            }
        };
        let mut failures = 0_u32;
        let mut stop = self.stop.clone();
        while !stop.is_asked() {
            tokio::select! {
                arrived = consumer.recv() => match arrived {
                    Ok(delivery) => self.take(delivery, &mut consumer).await,
                    Err(_) => break,
                },
                () = self.room.notified() => {}
                () = self.next_try() => {}
                () = stop.asked() => break,
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
            if self.stop.is_asked() || handles.iter().all(AckHandle::is_stale) {
                return;
            }
        }
        ack_all(handles).await;
    }

    /// Waits until a busy row is to be asked for again, or a tool's pause ends.
    async fn next_try(&self) {
        let busy = self.busy.front().map(|(at, _)| *at);
        match busy.into_iter().chain(self.claiming.served.next_opening(self.looked)).min() {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Claims and starts until nothing more can start.
    async fn start_what_can(&mut self) -> Result<(), StoreError> {
        self.busy_again();
        self.looked = Instant::now();
        let idle = self.claiming.served.running() == 0;
        self.solitary &= !idle;
        if idle && let Some(arrived) = self.alone.pop_front() {
            self.claim(vec![arrived], true).await?;
            self.solitary = self.claiming.served.running() > 0;
            // Nothing may have come of it; then the next one is not to wait for a ring.
            self.room.notify_one();
            return Ok(());
        }
        if self.solitary || !self.alone.is_empty() {
            // Nothing new starts until that one has had the worker to itself.
            return Ok(());
        }
        loop {
            self.looked = Instant::now();
            let startable = self.startable();
            if startable.is_empty() {
                return Ok(());
            }
            self.claim(startable, false).await?;
            if !self.alone.is_empty() {
                self.room.notify_one();
                return Ok(());
            }
        }
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
        let free = self.concurrency.saturating_sub(self.claiming.served.running());
        let mut free = usize::try_from(free).unwrap_or(usize::MAX).min(self.batch);
        for waiting in self.waiting.values_mut() {
            waiting.retain(|arrived| !arrived.handle.is_stale());
        }
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
            (Err(error), _) if refused(&error) => return self.set_aside(asks, alone, &error).await,
            (Err(error), _) => {
                self.put_back(asks);
                return Err(error);
            }
            (Ok(()), None) => HashMap::new(),
        };
        self.carry_out(asks, verdicts, asked).await
    }

    /// A batch that will be refused again is claimed one by one; the message of a record that can
    /// never be claimed is kept for an operator, so that it stops nobody.
    async fn set_aside(
        &mut self,
        mut asks: Vec<Arrived>,
        alone: bool,
        why: &StoreError,
    ) -> Result<(), StoreError> {
        match asks.pop() {
            Some(only) if asks.is_empty() => {
                error!(operation_id = %only.operation, error = why as &dyn std::error::Error,
                    "an operation cannot be claimed; its message is kept in dead_letters");
                self.bury(vec![(only.letter("unclaimable"), only.handle)]).await;
                Ok(())
            }
            last => {
                for arrived in asks.into_iter().chain(last) {
                    Box::pin(self.claim(vec![arrived], alone)).await?;
                }
                Ok(())
            }
        }
    }

    /// The answer to the commit was lost: which claims stand is read from the records. What is not
    /// known to stand is asked for again.
    async fn find_out(&mut self, mut verdicts: HashMap<Uuid, Verdict>) -> HashMap<Uuid, Verdict> {
        let runs = verdicts.iter().filter_map(|(id, verdict)| match verdict {
            Verdict::Run(started) => Some((*id, started.run.ticket.token.0)),
            Verdict::Ack | Verdict::Busy | Verdict::Alone | Verdict::Full => None,
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
                    if self.stop.is_asked() {
                        // What is claimed now and not started runs out by itself.
                        break HashSet::new();
                    }
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
        let (mut acks, mut put_off, mut full) = (Vec::new(), Vec::new(), Vec::new());
        for mut arrived in asks {
            let operation = arrived.operation;
            // A second delivery of the same operation in one batch finds its verdict taken: in flight.
            match verdicts.remove(&operation) {
                Some(Verdict::Run(started)) => {
                    self.starter.start(*started, arrived.handle, asked).await;
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
                Some(Verdict::Full) => {
                    verdicts.insert(operation, Verdict::Full);
                    arrived.found_no_place();
                    full.push(arrived);
                }
            }
        }
        ack_all(acks).await;
        let held = self.wait_for_places(full);
        let busy = self.put_off(put_off, BUSY_LATER).await;
        let full = self.put_off(held, FULL_LATER.mul_f64(0.5 + chance::sample())).await;
        busy.and(full)
    }

    /// Keeps what found no place; hands out what has been held too long. No more of the tool is asked
    /// for until there may be a place, and what the broker holds for it stays there.
    ///
    /// It goes to the end: what needs no place, such as the poll of a provider's job, is not to wait
    /// behind it until there is one.
    fn wait_for_places(&mut self, full: Vec<Arrived>) -> Vec<Arrived> {
        let tools: HashSet<String> =
            full.iter().map(|arrived| arrived.message.tool.clone()).collect();
        for arrived in full {
            self.waiting.entry(arrived.message.tool.clone()).or_default().push_back(arrived);
        }
        let mut held = Vec::new();
        for tool in tools {
            let waiting = self.waiting.remove(&tool).unwrap_or_default();
            let (long, short): (VecDeque<_>, VecDeque<_>) =
                waiting.into_iter().partition(Arrived::held_too_long);
            held.extend(long);
            self.waiting.insert(tool, short);
        }
        held
    }

    /// Writes a message delayed by `wait` for what cannot be claimed now, and acks.
    async fn put_off(&mut self, arrived: Vec<Arrived>, wait: Duration) -> Result<(), StoreError> {
        if arrived.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = arrived.iter().map(|arrived| arrived.operation).collect();
        let written = self
            .link
            .transaction(async |connection| store::enqueue_later(connection, &ids, wait).await)
            .await;
        if let Err(error) = written {
            self.put_back(arrived);
            return Err(error);
        }
        ack_all(arrived.into_iter().map(|arrived| arrived.handle).collect()).await;
        Ok(())
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
}
