//! What kind of effect a tool has, and what that allows after a lost answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The kind of a tool's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing.
    Read,
    /// Sets a target to a value: repeating it ends in the same state.
    NaturalIdempotent,
    /// Creates or commands something under a key.
    KeyBased,
    /// Adds to something: every repetition adds again.
    Append,
    /// Cannot be undone, or is seen by others at once.
    Irreversible,
    /// Writes to this very database, in the settling transaction.
    Transactional,
}

/// What recovery may do with an operation that may have been sent, when nothing can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recoverability {
    /// It was never sent: effect and settlement are one commit. An expired lease is a plain claim.
    Transactional,
    /// Send again, at any time.
    ResendAlways,
    /// Send again under the same downstream key, while the downstream still remembers it: the
    /// attempt's end, margin included, must lie within `window` of the key's first use.
    ResendWithin {
        /// How long the downstream remembers a key.
        window: Duration,
    },
    /// Never send again: unknown, and an operator decides.
    None,
}

impl EffectClass {
    /// Every class.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::NaturalIdempotent,
        Self::KeyBased,
        Self::Append,
        Self::Irreversible,
        Self::Transactional,
    ];

    /// The word for it in contracts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::NaturalIdempotent => "natural_idempotent",
            Self::KeyBased => "key_based",
            Self::Append => "append",
            Self::Irreversible => "irreversible",
            Self::Transactional => "transactional",
        }
    }

    /// Whether twins are held unless the contract says otherwise.
    #[must_use]
    pub fn holds_twins(self) -> bool {
        match self {
            Self::KeyBased | Self::Irreversible => true,
            Self::Read | Self::NaturalIdempotent | Self::Append | Self::Transactional => false,
        }
    }
}
