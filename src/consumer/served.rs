//! What this worker serves: each (tool, version) with its contract, its numbers and its share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::tool::Serving;

/// How long a tool pauses after 401 or 403: credentials do not come back by hammering.
const BREAKER_PAUSE: Duration = Duration::from_secs(30);

/// Everything this worker serves.
#[derive(Debug, Default)]
pub struct Served {
    versions: BTreeMap<(String, String), Arc<Serving>>,
    lanes: BTreeMap<String, Arc<Lane>>,
    /// Rung whenever a place becomes free.
    freed: Arc<Notify>,
}

/// One tool's share of the worker, all its versions together.
#[derive(Debug)]
pub(super) struct Lane {
    limit: u32,
    running: AtomicU32,
    closed_until: Mutex<Option<Instant>>,
    freed: Arc<Notify>,
}

impl Served {
    /// Adds a version. The tool's share of the process is the largest that a version asks for.
    pub fn add(&mut self, serving: Serving) {
        let contract = &serving.contract.contract;
        let (tool, version) = (contract.tool.to_string(), contract.version.to_string());
        let limit =
            contract.concurrency.process.max(self.lanes.get(&tool).map_or(1, |lane| lane.limit));
        let (running, closed_until) = (AtomicU32::new(0), Mutex::new(None));
        let lane = Lane { limit, running, closed_until, freed: Arc::clone(&self.freed) };
        self.lanes.insert(tool.clone(), Arc::new(lane));
        self.versions.insert((tool, version), Arc::new(serving));
    }

    /// The version, if this worker serves it.
    #[must_use]
    pub fn get(&self, tool: &str, version: &str) -> Option<&Arc<Serving>> {
        self.versions.get(&(tool.to_owned(), version.to_owned()))
    }

    /// Everything that is served.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Serving>> {
        self.versions.values().map(Arc::clone).collect()
    }

    /// Every (tool, version).
    #[must_use]
    pub fn versions(&self) -> Vec<(String, String)> {
        self.versions.keys().cloned().collect()
    }

    /// Each tool with the number of deliveries to hold: what runs, and as much again to go on with.
    pub(super) fn prefetches(&self) -> Vec<(String, u16)> {
        let prefetch =
            |lane: &Lane| u16::try_from(lane.limit.saturating_mul(2)).unwrap_or(u16::MAX);
        self.lanes.iter().map(|(tool, lane)| (tool.clone(), prefetch(lane))).collect()
    }

    pub(super) fn lane(&self, tool: &str) -> Option<&Arc<Lane>> {
        self.lanes.get(tool)
    }

    /// Rung whenever a place becomes free: when an attempt has been settled, not when its effect
    /// ends, since it keeps its place until then.
    pub(super) fn freed(&self) -> Arc<Notify> {
        Arc::clone(&self.freed)
    }

    /// How many operations have a place, all tools together.
    pub(super) fn running(&self) -> u32 {
        self.lanes.values().map(|lane| lane.running.load(Ordering::Acquire)).sum()
    }

    /// When the next pause ends, if a tool pauses: nothing else would wake what waits for it.
    pub(super) fn next_opening(&self) -> Option<Instant> {
        let now = Instant::now();
        self.lanes.values().filter_map(|lane| lane.closed_until().filter(|at| *at > now)).min()
    }
}

impl Lane {
    /// How many more of the tool's operations may start now. After a pause one goes first, to see.
    pub(super) fn room(&self) -> u32 {
        let running = self.running.load(Ordering::Acquire);
        let limit = match self.closed_until() {
            Some(until) if Instant::now() < until => 0,
            Some(_) => 1,
            None => self.limit,
        };
        limit.saturating_sub(running)
    }

    fn closed_until(&self) -> Option<Instant> {
        *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(self))
    }

    /// The downstream does not accept our credentials: stop claiming for a while.
    pub(super) fn close(&self) {
        *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now() + BREAKER_PAUSE);
    }

    /// The downstream took a call: claim as usual.
    pub(super) fn open(&self) {
        *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// One operation's place in its tool's share, until dropped.
#[derive(Debug)]
pub(super) struct Running(Arc<Lane>);

impl Running {
    pub(super) fn lane(&self) -> &Lane {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}
