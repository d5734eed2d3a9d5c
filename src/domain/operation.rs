//! The operation record as decisions see it.
//!
//! Everything here is read under a row lock that the caller holds until the decision is written;
//! `now` is the database's time of that read.

use std::fmt;

use uuid::Uuid;

use super::attempt::Job;
use super::fingerprint::Fingerprint;
use super::lifecycle::State;
use super::reason::Reason;

/// A point in time by the database's clock: microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time moved ahead by `by`.
    #[must_use]
    pub fn after(self, by: std::time::Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// This time moved back by `by`.
    #[must_use]
    pub fn before(self, by: std::time::Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        let micros = u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0);
        std::time::Duration::from_micros(micros)
    }
}

fn micros(by: std::time::Duration) -> i64 {
    i64::try_from(by.as_micros()).unwrap_or(i64::MAX)
}

/// The fencing token: `claim_epoch`, one higher with each claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl Token {
    /// The token of the next claim.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Who holds the record, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The worker's identity, unique to a process start.
    pub owner: String,
    /// When others may take over.
    pub until: Timestamp,
}

/// One operation's record, without its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Operation {
    /// The same record, safe to put into URLs and logs.
    pub id: Uuid,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The environment that it belongs to.
    pub environment: String,
    /// The whole operation key. Never logged.
    pub key: String,
    /// The tool that makes the effect.
    pub tool: String,
    /// The contract version that the request is read under.
    pub tool_version: String,
    /// Digest of the material request; absent until the first claim of an SQL submission.
    pub fingerprint: Option<Fingerprint>,
    /// A digest a material pointer, as JSON text.
    pub digests: Option<String>,
    /// Where in its life the operation is.
    pub state: State,
    /// Why it is there, when there is a reason to tell.
    pub reason: Option<Reason>,
    /// No claim before this time.
    pub due_at: Timestamp,
    /// The claim's lease, while there is one.
    pub lease: Option<Lease>,
    /// The fencing token of the last claim.
    pub token: Token,
    /// Sends that were or may have been made.
    pub attempts: u32,
    /// Claims lost in a row to dead, frozen or panicking workers.
    pub lost_claims: u32,
    /// Waits in a row that were no attempts.
    pub deferrals: u32,
    /// When it was inserted or last reopened.
    pub opened_at: Timestamp,
    /// Set by the first send, cleared only by proof that no attempt so far had an effect.
    pub first_sent_at: Option<Timestamp>,
    /// When no attempt so far can still make an effect, those that run now left out; absent when
    /// nothing unproved was sent.
    pub attempts_over_at: Option<Timestamp>,
    /// When the downstream first saw our key; never cleared.
    pub key_first_used_at: Option<Timestamp>,
    /// The key towards the downstream and the id of the secret it was derived with.
    pub downstream_key: Option<DownstreamKey>,
    /// When the last outbox row for it was written.
    pub queued_at: Timestamp,
    /// How often the sweep has published it again since.
    pub sweeps: u32,
    /// Effects with one ordering key happen one at a time, in commit order.
    pub order: Option<Order>,
    /// The job that the provider owns, or owned.
    pub job: Option<ProviderJob>,
    /// Questions in a row that nobody could answer.
    pub lookups: u32,
    /// When an unknown one is looked up next; absent when only a person can end it.
    pub next_lookup_at: Option<Timestamp>,
    /// Since when it has waited for a person: unknown or parked.
    pub unresolved_since: Option<Timestamp>,
    /// What makes another operation its twin, for tools that hold twins.
    pub twin: Option<Twin>,
    /// Who asked for it.
    pub actor: Option<String>,
    /// The downstream's reference for the effect.
    pub effect_reference: Option<String>,
    /// The kept response as JSON text.
    pub response: Option<String>,
    /// There was a response that could not be kept.
    pub response_dropped: bool,
    /// Whether its endings are announced by result events.
    pub results: bool,
    /// The trace that the submission belongs to.
    pub traceparent: Option<String>,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

/// The opaque key that the downstream sees; the same for a record for ever.
#[derive(Clone, PartialEq, Eq)]
pub struct DownstreamKey {
    /// The key itself. Never logged.
    pub key: String,
    /// Which deployment secret it was derived with.
    pub secret_id: String,
}

/// A job that the provider owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderJob {
    /// The provider's name for it.
    pub id: Job,
    /// When we learned of it.
    pub accepted_at: Timestamp,
    /// No other attempt is unproved: if the job fails, nothing was done.
    pub alone: bool,
}

/// What an operation shares with its twins, and whom it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twin {
    /// Digest of tenant, environment, tool and material arguments.
    pub digest: String,
    /// The one that it is held behind, or was rejected for.
    pub held_behind: Option<Uuid>,
    /// Nothing holds it back any more: at a claim no twin stood before it, or an operator said so.
    /// Those that wait are held behind it, whatever their age.
    pub released: bool,
}

/// An operation's place among those with its ordering key.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// The ordering key.
    pub key: String,
    /// Rises with each commit under this key.
    pub number: i64,
    /// Waits for an earlier one to finish.
    pub waiting: bool,
    /// An operator let the rest pass.
    pub released: bool,
}

/// Shows what is safe in logs: never the key, the downstream's key or the response.
impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .field("state", &self.state)
            .field("reason", &self.reason)
            .field("token", &self.token)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

impl Operation {
    /// Whether a live claim stands at `now`.
    #[must_use]
    pub fn leased_at(&self, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|lease| now < lease.until)
    }

    /// Whether some attempt may have had an effect that nobody has proved.
    #[must_use]
    pub fn may_have_been_sent(&self) -> bool {
        self.first_sent_at.is_some()
    }

    /// Notes that no attempt so far had an effect, by proof.
    pub(crate) fn nothing_was_done(&mut self) {
        self.first_sent_at = None;
        self.attempts_over_at = None;
    }

    /// Notes that an attempt can make an effect until `at`.
    pub(crate) fn may_act_until(&mut self, at: Timestamp) {
        self.attempts_over_at = self.attempts_over_at.max(Some(at));
    }

    /// Moves to `state` for `reason`, giving up the lease.
    pub(crate) fn enter(&mut self, state: State, reason: Option<Reason>) {
        self.state = state;
        self.reason = reason;
        self.lease = None;
        if !state.is_pending() {
            self.lookups = 0;
            self.next_lookup_at = None;
        }
    }
}
