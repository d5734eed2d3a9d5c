//! Records for the tests of the decisions: one operation in each state, rules, evidence.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::attempt::{Effect, Receipt, Response};
use super::claim::{Around, Predecessor, Twins};
use super::contract::AbsentRule;
use super::fingerprint::{Fingerprint, Material};
use super::lifecycle::State;
use super::operation::{DownstreamKey, Lease, Operation, Order, Timestamp, Token};
use super::permission::Permission;
use super::rule::{AttemptRule, LookupRule, Resend};
use super::verbs::Person;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// The moment of every decision.
pub(super) const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

/// Every kind of rule on sending again, with windows of a day.
pub(super) const RESENDS: [Resend; 4] = [
    Resend::Always,
    Resend::Within(Duration::from_secs(24 * 3600)),
    Resend::Never,
    Resend::InTransaction,
];

pub(super) fn ago(by: Duration) -> Timestamp {
    NOW.before(by)
}

pub(super) fn ahead(by: Duration) -> Timestamp {
    NOW.after(by)
}

pub(super) fn rule(resend: Resend) -> AttemptRule {
    AttemptRule {
        resend,
        lookup: None,
        poll: None,
        asks_before_send: false,
        twins: None,
        initial: SECOND,
        max: 5 * MINUTE,
        multiplier: 2.0,
        jitter: 0.5,
        attempts: 4,
        give_up: 72 * HOUR,
        lease: 30 * SECOND,
        timeout: 10 * SECOND,
        margin: 5 * SECOND,
        stall_margin: 5 * MINUTE,
    }
}

/// An authoritative look-up by key, of a service where effects show after ten seconds.
pub(super) fn lookup() -> LookupRule {
    LookupRule {
        authoritative: true,
        visible_after: 10 * SECOND,
        when_absent: AbsentRule::Resend,
        by_key: true,
        by_receipt: false,
        by_job: false,
    }
}

/// Nothing stands in the way.
pub(super) fn alone() -> Around {
    Around {
        predecessor: Predecessor::Finished,
        twins: Twins::Free,
        permission: Permission::Allowed,
        approval_wait: 72 * HOUR,
    }
}

fn fingerprint(digit: &str) -> Fingerprint {
    Fingerprint::parse(&format!("sha256:1:{}", digit.repeat(64))).unwrap()
}

/// What the arguments of [`operation`] give.
pub(super) fn material() -> Material {
    Material {
        fingerprint: fingerprint("a"),
        digests: BTreeMap::from([("/subject".to_owned(), "d1".to_owned())]),
    }
}

/// What other arguments would give.
pub(super) fn other_material() -> Material {
    Material { fingerprint: fingerprint("b"), digests: BTreeMap::new() }
}

pub(super) fn downstream_key(key: &str) -> DownstreamKey {
    DownstreamKey { key: key.to_owned(), secret_id: "k1".to_owned() }
}

pub(super) fn lease_until(until: Timestamp) -> Option<Lease> {
    Some(Lease { owner: "worker-1".to_owned(), until })
}

/// A record in `state`, claimed once and never sent, due a second ago, its lease live.
pub(super) fn operation(state: State) -> Operation {
    let leased = matches!(state, State::Claimed | State::Sent);
    Operation {
        id: Uuid::from_u128(7),
        tenant: "acme".to_owned(),
        environment: "prod".to_owned(),
        key: "acme:prod:run1:step1".to_owned(),
        tool: "tickets.create".to_owned(),
        tool_version: "2026-08-19".to_owned(),
        fingerprint: Some(material().fingerprint),
        digests: None,
        state,
        reason: None,
        due_at: ago(SECOND),
        lease: lease_until(ahead(20 * SECOND)).filter(|_| leased),
        token: Token(1),
        attempts: 0,
        lost_claims: 0,
        deferrals: 0,
        opened_at: ago(MINUTE),
        first_sent_at: None,
        attempts_over_at: None,
        key_first_used_at: None,
        downstream_key: Some(downstream_key("stored")),
        queued_at: ago(SECOND),
        sweeps: 2,
        order: None,
        job: None,
        lookups: 0,
        next_lookup_at: None,
        unresolved_since: None,
        twin: None,
        actor: Some("agent-7".to_owned()),
        effect_reference: None,
        response: None,
        response_dropped: false,
        results: false,
        traceparent: None,
        updated_at: ago(10 * SECOND),
    }
}

/// A record in `state` that was sent once, `by` ago.
pub(super) fn sent_operation(state: State, by: Duration) -> Operation {
    let at = Some(ago(by));
    Operation { attempts: 1, first_sent_at: at, key_first_used_at: at, ..operation(state) }
}

pub(super) fn in_order(row: Operation) -> Operation {
    let order = Order { key: "queue-1".to_owned(), number: 5, waiting: false, released: false };
    Operation { order: Some(order), ..row }
}

pub(super) fn effect(receipt: &str) -> Effect {
    Effect {
        receipt: Receipt::new(receipt).unwrap(),
        response: Response::Kept("{\"n\":1.0}".to_owned()),
    }
}

pub(super) fn person() -> Person {
    Person { name: "Ada".to_owned(), reason: "looked it up".to_owned() }
}
