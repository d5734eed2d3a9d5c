//! What this worker serves: each (tool, version) with its contract, its numbers and its share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::share::Share;
use crate::domain::claim::Purpose;
use crate::serving::Serving;

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
    /// Its part in what all processes may do at once, where the contract bounds that.
    share: Option<Share>,
    running: AtomicU32,
    /// Of these, polls: they own no claim, so that they have no part in the share.
    polling: AtomicU32,
    closed_until: Mutex<Option<Instant>>,
    freed: Arc<Notify>,
}

impl Served {
    /// Adds a version. The tool's share of the process is the largest that a version asks for, the
    /// bound over all processes the smallest: the downstream is the same for all of them.
    pub fn add(&mut self, serving: Serving) {
        let contract = &serving.contract.contract;
        let (tool, version) = (contract.tool.to_string(), contract.version.to_string());
        let earlier = self.lanes.get(&tool);
        let limit = contract.concurrency.process.max(earlier.map_or(1, |lane| lane.limit));
        let total = earlier.and_then(|lane| lane.share()).map(|share| share.total);
        let total = contract.concurrency.total.into_iter().chain(total).min();
        let share = total.map(Share::new);
        let (running, polling) = (AtomicU32::new(0), AtomicU32::new(0));
        let (closed_until, freed) = (Mutex::new(None), Arc::clone(&self.freed));
        let lane = Lane { limit, share, running, polling, closed_until, freed };
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
        let prefetch = |lane: &Lane| {
            let most = lane.share().map_or(lane.limit, |share| lane.limit.min(share.total));
            u16::try_from(most.saturating_mul(2)).unwrap_or(u16::MAX)
        };
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

    /// When the first pause after `since` ends, or a view of a bounded tool is old: nothing else would
    /// wake what waits for it. `since` is when room was last looked for, so that an end which passed
    /// in between is not missed.
    pub(super) fn next_opening(&self, since: Instant) -> Option<Instant> {
        let openings = |lane: &Arc<Lane>| {
            let old_at = lane.share().and_then(Share::old_at);
            lane.closed_until().into_iter().chain(old_at).filter(|at| *at > since).min()
        };
        self.lanes.values().filter_map(openings).min()
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
        let here = limit.saturating_sub(running);
        let claimed = running.saturating_sub(self.polling.load(Ordering::Acquire));
        self.share().map_or(here, |share| here.min(share.room(claimed)))
    }

    pub(super) fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    fn closed_until(&self) -> Option<Instant> {
        *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>, purpose: Purpose) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        let polls = purpose == Purpose::Poll;
        if polls {
            self.polling.fetch_add(1, Ordering::AcqRel);
        }
        Running { lane: Arc::clone(self), polls }
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
pub(super) struct Running {
    lane: Arc<Lane>,
    polls: bool,
}

impl Running {
    pub(super) fn lane(&self) -> &Lane {
        &self.lane
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.lane.running.fetch_sub(1, Ordering::AcqRel);
        if self.polls {
            self.lane.polling.fetch_sub(1, Ordering::AcqRel);
        } else if let Some(share) = self.lane.share() {
            share.freed();
        }
        self.lane.freed.notify_one();
    }
}
