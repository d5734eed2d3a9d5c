//! What the service has done: its effects, counted where they happen.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One thing that happened to the world.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) kind: Kind,
    pub(crate) key: String,
    /// The receipt: `ticket_id` or `message_id`.
    pub(crate) id: String,
    pub(crate) request: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Ticket,
    Mail,
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

/// All effects, and the tickets by their key.
#[derive(Default)]
pub(crate) struct Ledger {
    total: u64,
    by_key: BTreeMap<String, u64>,
    tickets: HashMap<String, Effect>,
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

    /// Makes the effect that `request` asks for, unless `deduplicate` and its key says it was made.
    pub(crate) fn apply(
        &mut self,
        kind: Kind,
        key: &str,
        request: &Value,
        deduplicate: bool,
    ) -> Outcome {
        match self.tickets.get(key) {
            Some(earlier) if deduplicate && earlier.request != *request => Outcome::Mismatch,
            Some(earlier) if deduplicate => Outcome::Repeated(earlier.clone()),
            _ => {
                let prefix = if kind == Kind::Ticket { 'T' } else { 'M' };
                let id = format!("{prefix}-{}", self.total + 1);
                let effect = Effect { kind, key: key.to_owned(), id, request: request.clone() };
                self.record(&effect);
                Outcome::New(effect)
            }
        }
    }

    pub(crate) fn ticket(&self, key: &str) -> Option<&Effect> {
        self.tickets.get(key)
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
            self.tickets.entry(effect.key.clone()).or_insert_with(|| effect.clone());
        }
    }
}
