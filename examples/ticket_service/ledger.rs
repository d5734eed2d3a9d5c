//! What the service has done: its effects, counted where they happen.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One thing that happened to the world.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) kind: Kind,
    pub(crate) key: String,
    /// The receipt: `ticket_id` or `message_id`.
    pub(crate) id: String,
    /// The caller's own name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reference: Option<String>,
    /// The job that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<String>,
    pub(crate) request: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Ticket,
    Mail,
}

/// What a request asks for.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    /// Under which it counts: the `Idempotency-Key`, else the reference, else the subject line.
    pub(crate) key: String,
    pub(crate) reference: Option<String>,
    /// To compare a repetition with.
    pub(crate) request: Value,
}

impl Effect {
    /// The answer that the caller gets, now and for a repeated key.
    pub(crate) fn answer(&self) -> Value {
        match self.kind {
            Kind::Ticket => json!({"ticket_id": self.id, "status": "open"}),
            Kind::Mail => json!({"message_id": self.id}),
        }
    }
}

/// What a request came to.
pub(crate) enum Outcome {
    New(Effect),
    Repeated(Effect),
    /// The key is taken by a request with another body; nothing happened.
    Mismatch,
}

/// What a ticket is asked for by.
pub(crate) enum By {
    Key(String),
    Reference(String),
    /// The receipt.
    Id(String),
}

/// A ticket, and when this process learned of it.
struct Ticket {
    effect: Effect,
    made: Instant,
}

/// All effects counted; the tickets with what they are found by, the first of a key or reference.
#[derive(Default)]
pub(crate) struct Ledger {
    total: u64,
    by_key: BTreeMap<String, u64>,
    tickets: Vec<Ticket>,
    keys: HashMap<String, usize>,
    references: HashMap<String, usize>,
    ids: HashMap<String, usize>,
}

impl Ledger {
    /// Continues from the lines of a journal.
    ///
    /// # Errors
    /// When a line is not an effect.
    pub(crate) fn replay(lines: &str) -> serde_json::Result<Self> {
        let mut ledger = Self::default();
        for line in lines.lines() {
            ledger.record(&serde_json::from_str(line)?);
        }
        Ok(ledger)
    }

    /// Makes the effect that is wanted, unless `deduplicate` and its key says it was made.
    pub(crate) fn apply(&mut self, wanted: &Wanted, deduplicate: bool) -> Outcome {
        let earlier = self.keys.get(&wanted.key).and_then(|index| self.tickets.get(*index));
        match earlier.filter(|_| deduplicate) {
            Some(earlier) if earlier.effect.request != wanted.request => Outcome::Mismatch,
            Some(earlier) => Outcome::Repeated(earlier.effect.clone()),
            None => Outcome::New(self.make(wanted, None)),
        }
    }

    /// Makes the effect, whatever was made before.
    pub(crate) fn make(&mut self, wanted: &Wanted, job: Option<&str>) -> Effect {
        let Wanted { kind, key, reference, request } = wanted.clone();
        let prefix = if kind == Kind::Ticket { 'T' } else { 'M' };
        let id = format!("{prefix}-{}", self.total + 1);
        let effect = Effect { kind, key, id, reference, job: job.map(str::to_owned), request };
        self.record(&effect);
        effect
    }

    /// The ticket, if it was made at least `age` ago.
    pub(crate) fn ticket(&self, by: &By, age: Duration) -> Option<&Effect> {
        let index = match by {
            By::Key(key) => self.keys.get(key),
            By::Reference(reference) => self.references.get(reference),
            By::Id(id) => self.ids.get(id),
        };
        let ticket = self.tickets.get(*index?)?;
        (ticket.made.elapsed() >= age).then_some(&ticket.effect)
    }

    pub(crate) fn tickets(&self) -> impl Iterator<Item = &Effect> {
        self.tickets.iter().map(|ticket| &ticket.effect)
    }

    pub(crate) fn summary(&self, requests: u64, most_at_once: &Value) -> Value {
        json!({
            "total": self.total,
            "by_key": self.by_key,
            "requests": requests,
            "most_at_once": most_at_once,
        })
    }

    fn record(&mut self, effect: &Effect) {
        self.total += 1;
        *self.by_key.entry(effect.key.clone()).or_default() += 1;
        if effect.kind == Kind::Ticket {
            let index = self.tickets.len();
            self.keys.entry(effect.key.clone()).or_insert(index);
            self.ids.insert(effect.id.clone(), index);
            if let Some(reference) = &effect.reference {
                self.references.entry(reference.clone()).or_insert(index);
            }
            self.tickets.push(Ticket { effect: effect.clone(), made: Instant::now() });
        }
    }
}
