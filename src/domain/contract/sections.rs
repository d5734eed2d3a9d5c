//! The smaller sections of a contract.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

use super::EffectClass;
use super::downstream::HttpCall;
use super::template::{TextTemplate, UrlTemplate};

/// The four answers about operation keys that a reviewer asks for. Nothing acts on them; people
/// and models read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationKeyNotes {
    /// What makes the key.
    pub created_by: String,
    /// What uses it again.
    pub reused_by: String,
    /// When a new one is right.
    pub new_key_when: String,
}

/// When to try again, and when to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryRule {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// How much longer each wait is; at least 1.
    pub multiplier: f64,
    /// Which part of a wait is random, 0 to 1.
    pub jitter: f64,
    /// How many attempts may be sent; at least 1.
    pub attempts: u32,
    /// When to give up an operation of which nothing was sent.
    pub give_up: Duration,
}

/// How many effects may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// In one process; at least 1.
    pub process: u32,
    /// In all of them; at least 1. None: no bound.
    pub total: Option<u32>,
}

/// The guard against the same call under a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twins {
    /// Whether a twin is held.
    pub hold: bool,
    /// How long an applied operation still counts as a twin.
    pub within: Duration,
    /// Whether the contract has the section, or only the class's default applies.
    pub stated: bool,
}

/// A question about the target's state. A status in neither list is no answer: a server that fails,
/// a redirect or a refused credential says nothing about the state, so it neither holds nor fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The request.
    pub http: HttpCall,
    /// The statuses that mean: it holds.
    pub pass: Vec<u16>,
    /// The statuses that mean: it does not hold.
    pub fail: Vec<u16>,
}

/// Who says whether the actor may. All that are named must allow; at least one is.
#[derive(Clone, Debug, PartialEq)]
pub struct Authorization {
    /// Rows in table `grants`.
    pub grants: bool,
    /// Another service.
    pub http: Option<Policy>,
    /// The name of an [`Authorizer`](crate::tool::Authorizer) in this process.
    pub code: Option<String>,
}

/// A policy service in the form of OPA's data API: a POST with `{"input": {...}}`, answered 200 with
/// `{"result": true}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The address.
    pub url: UrlTemplate,
    /// Header fields.
    pub headers: Vec<(String, TextTemplate)>,
    /// The longest wait for the decision, connecting included.
    pub timeout: Duration,
}

/// Which requests need a person's approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Places with the values that need one; empty: every request does.
    pub when: BTreeMap<Pointer, Vec<Json>>,
    /// How long the request waits for an answer.
    pub wait: Duration,
    /// How long an answer holds.
    pub expires: Duration,
}

/// How the provider's events settle operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The provider's name in the URL.
    pub provider: String,
    /// What each event type means.
    pub events: BTreeMap<String, WebhookMeaning>,
    /// Where an event names the operation.
    pub operation_key: Pointer,
    /// Where it holds the effect's reference.
    pub receipt: Option<Pointer>,
    /// Where it says which event is newer.
    pub sequence: Option<Pointer>,
    /// How long an event waits for its operation.
    pub wait: Duration,
}

/// What an event type means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookMeaning {
    /// Proof of the effect.
    Applied,
    /// It failed for good.
    FailedPermanent,
    /// For the trace only.
    Progress,
    /// Nothing.
    Ignore,
}

/// How long what is kept. Not carried out in this release: nothing is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The result, from the last transition; `None`: for ever.
    pub result: Option<Duration>,
    /// The tombstone; `None`: for ever.
    pub tombstone: Option<Duration>,
    /// What a late key gets.
    pub late_arrival: LateArrival,
}

/// What a submission gets whose record is only a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateArrival {
    /// `expired_operation`
    Reject,
    /// The effect's reference.
    ReplayReference,
    /// A look-up.
    Reconcile,
}

/// Whom an `unknown` goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The team or person.
    pub reconciliation: String,
    /// How soon they answer.
    pub respond_within: Option<Duration>,
    /// When the contract is looked at again, `YYYY-MM-DD`.
    pub next_review: Option<String>,
}

/// A claim's length unless the contract names one.
pub(super) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

impl Default for RetryRule {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(5 * 60),
            multiplier: 2.0,
            jitter: 0.5,
            attempts: 12,
            give_up: Duration::from_hours(72),
        }
    }
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { process: 16, total: None }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { result: None, tombstone: None, late_arrival: LateArrival::Reject }
    }
}

impl Twins {
    /// What applies to a class when the contract is silent.
    #[must_use]
    pub fn default_of(class: EffectClass) -> Self {
        Self { hold: class.holds_twins(), within: Duration::ZERO, stated: false }
    }
}
