//! Faults to order, for the next calls or for the calls of one subject.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::calls::Call;

/// One rule, as posted to `/control`. Rules are tried in the order of their arrival; the first that
/// matches a call decides about it, with all of its members together.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rule {
    /// A name to remove it by. A rule of the same name takes its place.
    pub(crate) name: Option<String>,

    // Which calls.
    /// Only calls of this kind; without it those that make effects, not those that ask.
    pub(crate) on: Option<Call>,
    /// Only this subject (see [`Call`]).
    pub(crate) key: Option<String>,
    /// Only subjects that contain this text.
    pub(crate) key_contains: Option<String>,
    /// Only every n-th of the calls that match so far: 3 means the 3rd, the 6th, …
    pub(crate) every: Option<u64>,
    /// Only that many calls; then the rule is gone.
    pub(crate) times: Option<u64>,

    // Before the effect.
    pub(crate) delay_ms_before_effect: u64,
    /// No effect, and no answer until `/reset`; then the connection is closed.
    pub(crate) hang: bool,
    /// Close the connection; no effect, no answer.
    pub(crate) drop_before_effect: bool,
    /// Answer this status (with `retry_after` and `body`); no effect.
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Option<Value>,
    /// Answer 307 to this location; no effect here. A client that follows it finds out for itself.
    pub(crate) redirect: Option<String>,

    // The effect and after.
    /// Act as if the request had arrived twice.
    pub(crate) duplicate: bool,
    pub(crate) delay_ms_after_effect: u64,
    /// Close the connection without an answer.
    pub(crate) drop_response: bool,
    /// Answer this status (with `retry_after` and `body`) although the effect was made.
    pub(crate) status_after_effect: Option<u16>,
    pub(crate) garbage: Option<Garbage>,
    /// Answer correctly, with this many bytes of padding.
    pub(crate) oversized: Option<usize>,
    /// Promise the whole body, send half of it, close.
    pub(crate) truncate: bool,
}

/// How an answer is spoilt.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Garbage {
    /// A success whose body is no JSON.
    Body,
    /// A success whose body is JSON without the receipt, the job or the result.
    Receipt,
    /// Bytes that are no HTTP.
    Wire,
}

/// Which calls are held.
#[derive(Clone, Default)]
struct Paused {
    all: bool,
    some: BTreeSet<Call>,
}

struct Standing {
    rule: Rule,
    seen: u64,
}

/// The rules in force, and whether calls are held.
pub(crate) struct Faults {
    rules: Mutex<Vec<Standing>>,
    paused: watch::Sender<Paused>,
    resets: watch::Sender<u64>,
}

impl Faults {
    pub(crate) fn none() -> Self {
        Self {
            rules: Mutex::new(Vec::new()),
            paused: watch::Sender::new(Paused::default()),
            resets: watch::Sender::new(0),
        }
    }

    pub(crate) fn add(&self, rule: Rule) {
        if let Some(name) = &rule.name {
            self.remove(name);
        }
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(Standing { rule, seen: 0 });
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|standing| standing.rule.name.as_deref() != Some(name));
    }

    /// Holds every call, or those of one kind, until told otherwise.
    pub(crate) fn pause(&self, call: Option<Call>, hold: bool) {
        self.paused.send_modify(|paused| match (call, hold) {
            (None, hold) => paused.all = hold,
            (Some(call), true) => drop(paused.some.insert(call)),
            (Some(call), false) => drop(paused.some.remove(&call)),
        });
    }

    pub(crate) fn clear(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.paused.send_replace(Paused::default());
        self.resets.send_modify(|resets| *resets += 1);
    }

    /// Holds the caller while its kind of call is paused.
    pub(crate) async fn until_resumed(&self, call: Call) {
        let free = |paused: &Paused| !paused.all && !paused.some.contains(&call);
        // The sender lives in `self`, so the wait cannot fail.
        drop(self.paused.subscribe().wait_for(free).await);
    }

    /// Holds the caller until the next reset.
    pub(crate) async fn until_reset(&self) {
        // As above.
        drop(self.resets.subscribe().changed().await);
    }

    /// The rule that decides about this call, used up by one; the default rule does nothing.
    pub(crate) fn take(&self, call: Call, subject: &str) -> Rule {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let found = rules.iter_mut().enumerate().find_map(|(index, standing)| {
            standing.hits(call, subject).then(|| (index, standing.rule.clone()))
        });
        let Some((index, rule)) = found else { return Rule::default() };
        if rules.get_mut(index).is_some_and(Standing::use_up) {
            rules.remove(index);
        }
        rule
    }
}

impl Standing {
    fn hits(&mut self, call: Call, subject: &str) -> bool {
        let kind = self.rule.on.map_or(call.makes_effects(), |on| on == call);
        let whole = self.rule.key.as_ref().is_none_or(|key| key == subject);
        let part = self.rule.key_contains.as_ref();
        let named = whole && part.is_none_or(|part| subject.contains(part.as_str()));
        if !kind || !named {
            return false;
        }
        self.seen += 1;
        self.rule.every.is_none_or(|every| every != 0 && self.seen.is_multiple_of(every))
    }

    /// Counts one use and says whether it was the last.
    fn use_up(&mut self) -> bool {
        self.rule.times = self.rule.times.map(|times| times.saturating_sub(1));
        self.rule.times == Some(0)
    }
}
