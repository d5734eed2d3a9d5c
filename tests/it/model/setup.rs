//! What a run of the model is about: one contract, one kind of downstream, and what may go wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox::domain::claim::Purpose;
use oncebox::domain::contract::AbsentRule;
use oncebox::domain::fingerprint::{Fingerprint, Material};
use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::{Operation, Timestamp, Token};
use oncebox::domain::rule::{AttemptRule, LookupRule, PollRule, Resend};
use uuid::Uuid;

use super::world::{Budget, Row, START, Told, Verb, World, ticks};

/// One contract, its downstream, and the bounds of the run.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) rule: AttemptRule,
    pub(super) service: Service,
    /// The provider makes a job of it.
    pub(super) jobs: bool,
    /// A second request for what is done is answered *already done*.
    pub(super) says_already: bool,
    /// Somebody else has done it before.
    pub(super) done_by_another: bool,
    pub(super) asks_grant: bool,
    pub(super) asks_approval: bool,
    /// Records, all with the same arguments.
    pub(super) operations: usize,
    /// Time passes from one moment that matters to the next, not by ticks: fewer states.
    pub(super) jumps: bool,
    /// Memories of workers at once.
    pub(super) workers: usize,
    /// How long a worker may be frozen after its lease.
    pub(super) longest_freeze: Duration,
    pub(super) budget: Budget,
    /// What operators may do, within the budget.
    pub(super) verbs: &'static [Verb],
    /// States that the run must come to: without them it would prove nothing.
    pub(super) must_reach: &'static [State],
}

/// What the downstream does with a key that it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// It does not look at keys: each request is an effect.
    Blind,
    /// It answers a request as it answered the first one, for this long after that one.
    Remembers(Duration),
    /// The effect is a state: a second request changes nothing.
    Natural,
}

const VERBS: [Verb; 6] = [
    Verb::Retry,
    Verb::Reopen,
    Verb::Release,
    Verb::Resolve(Told::Applied),
    Verb::Resolve(Told::NotApplied),
    Verb::Resolve(Told::Compensated),
];

/// How long the downstream of the model remembers a key.
pub(super) const WINDOW: u32 = 8;

impl Setup {
    /// One worker's memory, nothing goes wrong.
    pub(super) fn new(name: &'static str, service: Service) -> Self {
        let resend = match service {
            Service::Blind => Resend::Never,
            Service::Remembers(window) => Resend::Within(window),
            Service::Natural => Resend::Always,
        };
        Self {
            name,
            rule: rule(resend),
            service,
            jobs: false,
            says_already: false,
            done_by_another: false,
            asks_grant: false,
            asks_approval: false,
            operations: 1,
            jumps: false,
            workers: 2,
            longest_freeze: rule(resend).stall_margin,
            budget: Budget::NONE,
            verbs: &VERBS,
            must_reach: &[],
        }
    }

    pub(super) fn with_lookup(mut self, authoritative: bool, when_absent: AbsentRule) -> Self {
        let visible_after = ticks(1);
        self.rule.lookup = Some(LookupRule {
            authoritative,
            visible_after,
            when_absent,
            by_key: true,
            by_receipt: false,
            by_job: false,
        });
        self
    }

    pub(super) fn with_jobs(mut self) -> Self {
        self.jobs = true;
        self.rule.poll = Some(PollRule { every: ticks(1), give_up: ticks(3) });
        self
    }

    /// The first state of a run.
    pub(super) fn begin(&self) -> World {
        World {
            now: START,
            rows: (0..self.operations).map(row).collect(),
            attempts: Vec::new(),
            wire: Vec::new(),
            inquiry: None,
            granted: true,
            approval: None,
            left: self.budget,
            forgets: matches!(self.service, Service::Remembers(_)),
            broken: None,
        }
    }

    /// How long an effect may be invisible.
    pub(super) fn visible_after(&self) -> Duration {
        self.rule.lookup.map(|lookup| lookup.visible_after).unwrap_or_default()
    }

    /// How long a provider's job may run.
    pub(super) fn jobs_take(&self) -> Duration {
        self.rule.poll.map(|poll| poll.give_up).unwrap_or_default()
    }

    /// Whether a request that may arrive until `until` under a key first seen at `first` is recognised.
    pub(super) fn recognises(&self, first: Timestamp, until: Timestamp) -> bool {
        match self.service {
            Service::Blind => false,
            Service::Remembers(window) => until <= first.after(window),
            Service::Natural => true,
        }
    }

    /// How long after its first byte the downstream may begin to act on a request. One that looks at
    /// keys does so when the request arrives; a slow one may take up to the stall margin longer than
    /// anybody waits.
    pub(super) fn may_take(&self) -> Duration {
        match self.service {
            Service::Remembers(_) => self.rule.timeout,
            Service::Blind | Service::Natural => self.rule.timeout + self.rule.stall_margin,
        }
    }

    /// Whether the sent mark needs a write of its own before this attempt may send.
    pub(super) fn has_to_mark(&self, purpose: Purpose, marked: bool) -> bool {
        purpose == Purpose::Send && !marked && !self.rule.marks_in_claim()
    }
}

/// The numbers are small, and relate as those of a real contract: time-out < lease − margin,
/// stall margin ≥ time-out, window > several attempts.
fn rule(resend: Resend) -> AttemptRule {
    AttemptRule {
        resend,
        lookup: None,
        poll: None,
        asks_before_send: false,
        twins: None,
        initial: ticks(1),
        max: ticks(1),
        multiplier: 1.0,
        jitter: 0.0,
        attempts: 2,
        give_up: ticks(2),
        lease: ticks(3),
        timeout: ticks(1),
        margin: ticks(1),
        stall_margin: ticks(2),
    }
}

/// What the arguments of every record give.
pub(super) fn material() -> Material {
    let fingerprint = Fingerprint::parse(&format!("sha256:1:{}", "a".repeat(64))).unwrap();
    Material { fingerprint, digests: BTreeMap::from([("/n".to_owned(), "d".to_owned())]) }
}

/// The record's id; its number is in it.
pub(super) fn id(number: usize) -> Uuid {
    Uuid::from_u128(number as u128 + 1)
}

/// A record as the SQL door inserts it.
fn row(number: usize) -> Row {
    let record = Operation {
        id: id(number),
        tenant: "acme".to_owned(),
        environment: "prod".to_owned(),
        key: format!("acme:prod:run:step{number}"),
        tool: "tickets.create".to_owned(),
        tool_version: "1".to_owned(),
        fingerprint: None,
        digests: None,
        state: State::Queued,
        reason: None,
        due_at: START,
        lease: None,
        token: Token(0),
        attempts: 0,
        lost_claims: 0,
        deferrals: 0,
        opened_at: START,
        first_sent_at: None,
        attempts_over_at: None,
        key_first_used_at: None,
        downstream_key: None,
        queued_at: START,
        sweeps: 0,
        order: None,
        job: None,
        lookups: 0,
        next_lookup_at: None,
        unresolved_since: None,
        twin: None,
        actor: Some("agent".to_owned()),
        effect_reference: None,
        response: None,
        response_dropped: false,
        results: false,
        traceparent: None,
        updated_at: START,
    };
    Row {
        record: Arc::new(record),
        effects: Vec::new(),
        jobs: Vec::new(),
        seen_at: None,
        unproved: Vec::new(),
        told: false,
        released: false,
    }
}
