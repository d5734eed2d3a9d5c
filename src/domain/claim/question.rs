//! What a claim is decided from, besides the record and its contract's rule.

use std::time::Duration;

use uuid::Uuid;

use crate::domain::fingerprint::Material;
use crate::domain::operation::DownstreamKey;
use crate::domain::permission::Permission;

/// What the record's own arguments gave under its own contract version, just now.
#[derive(Debug, Clone, Copy)]
pub enum Recomputed<'a> {
    /// They fit the contract; this is their digest.
    Valid(&'a Material),
    /// They do not fit the contract, or no request can be built from them.
    Invalid,
}

/// What the row lock found of the operations before this one in its ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// All earlier ones are finished, or there is no order.
    Finished,
    /// An earlier one is unfinished, and its row is locked too.
    Unfinished,
}

/// What the datastore found of an operation's twins: those of the same tenant, environment, tool and
/// material arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twins {
    /// None stands before it, or the tool holds none.
    Free,
    /// This one, older or here first, is unfinished.
    Behind(Uuid),
    /// This one has been applied.
    Applied(Uuid),
}

/// What stands round a record, read under its row lock.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// Of its ordering key.
    pub predecessor: Predecessor,
    /// Of its twins.
    pub twins: Twins,
    /// Of grants and approvals.
    pub permission: Permission,
    /// How long a request for approval waits.
    pub approval_wait: Duration,
}

/// Who asks, and with what.
pub struct Claimant<'a> {
    /// The worker's identity, unique to a process start.
    pub owner: &'a str,
    /// Nothing else runs beside this operation in the worker.
    pub alone: bool,
    /// Makes the key towards the downstream, asked for only if the record has none and needs one.
    pub downstream_key: &'a dyn Fn() -> DownstreamKey,
}
