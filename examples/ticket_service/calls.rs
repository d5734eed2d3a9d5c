//! The calls there are, and how often each was made.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a call asks for. Its subject, which rules match and by which it is counted, stands behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Call {
    /// A ticket at once; the key.
    Tickets,
    /// A mail; the reference, else the subject line.
    Mail,
    /// A job that makes a ticket later; the key.
    Jobs,
    /// How a job stands; the job.
    Poll,
    /// A look-up; the key, reference or receipt that it names.
    Lookup,
    /// Whether an actor may; the actor, or nothing.
    Policy,
    /// Whether a queue is open; the queue.
    Precondition,
    /// Whether a ticket is as it should be; what names it.
    Postcondition,
}

impl Call {
    /// Whether it is there to make an effect.
    pub(crate) fn makes_effects(self) -> bool {
        match self {
            Self::Tickets | Self::Mail | Self::Jobs => true,
            Self::Poll | Self::Lookup | Self::Policy | Self::Precondition | Self::Postcondition => {
                false
            }
        }
    }
}

/// How often each call was made, by subject: counted as it arrives, whatever becomes of it.
#[derive(Default)]
pub(crate) struct Counts(Mutex<BTreeMap<Call, BTreeMap<String, u64>>>);

impl Counts {
    pub(crate) fn add(&self, call: Call, subject: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(call).or_default().entry(subject.to_owned()).or_default() += 1;
    }

    /// `{call: {subject: n}}`; a call that was never made is left out.
    pub(crate) fn summary(&self) -> Value {
        json!(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
