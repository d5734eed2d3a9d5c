//! What the worksheet asks beyond the review: gaps that are no fault of a section that stands there.

use std::time::Duration;

use crate::domain::contract::schema_walk::property_names;
use crate::domain::contract::{
    Contract, EffectClass, Finding, Judgement, Lookup, Severity, duration_text,
};
use crate::domain::pointer::Pointer;
use crate::domain::rule::LOST_CLAIMS_PARKED;

/// What an attempt makes anew, so that a retry has another one.
const MADE_ANEW: [&str; 9] = [
    "tool call",
    "tool-call",
    "tool_call",
    "timestamp",
    "current time",
    "random",
    "request id",
    "message id",
    "trace id",
];

pub(super) fn collect(
    contract: &Contract,
    judgement: &Judgement,
    margin: Duration,
    findings: &mut Vec<Finding>,
) {
    let mut gaps = Gaps(findings);
    identity(contract, &mut gaps);
    sameness(contract, &mut gaps);
    replay(contract, &mut gaps);
    unknown(contract, &mut gaps);
    permission(contract, judgement, &mut gaps);
    expiry(contract, margin, &mut gaps);
    gaps.note(
        external(contract),
        &["tests"],
        "whether this very service keeps its word, no contract shows: lose one answer after its commit, then review that operation's trace (`oncebox contract check --trace KEY`)",
    );
}

struct Gaps<'a>(&'a mut Vec<Finding>);

impl Gaps<'_> {
    fn flag(&mut self, raised: bool, place: &[&str], message: impl Into<String>) {
        self.push(raised, Severity::RedFlag, place, message.into());
    }

    fn note(&mut self, known: bool, place: &[&str], message: impl Into<String>) {
        self.push(known, Severity::Note, place, message.into());
    }

    fn push(&mut self, found: bool, severity: Severity, place: &[&str], message: String) {
        if found {
            let tokens: Vec<String> = place.iter().map(ToString::to_string).collect();
            self.0.push(Finding { severity, pointer: Pointer::from(tokens), message });
        }
    }
}

/// Whether the effect lies outside this database and changes something there.
fn external(contract: &Contract) -> bool {
    match contract.effect_class {
        EffectClass::Read | EffectClass::Transactional => false,
        EffectClass::NaturalIdempotent
        | EffectClass::KeyBased
        | EffectClass::Append
        | EffectClass::Irreversible => true,
    }
}

fn identity(contract: &Contract, gaps: &mut Gaps<'_>) {
    let told = contract.operation_key.created_by.to_lowercase();
    let denied = ["not ", "never "].iter().any(|word| told.contains(word));
    gaps.flag(
        MADE_ANEW.iter().any(|name| told.contains(name)) && !denied,
        &["operation_key", "created_by"],
        "names something that each attempt makes anew: a retry would be another action",
    );
}

fn sameness(contract: &Contract, gaps: &mut Gaps<'_>) {
    let free = immaterial(contract);
    gaps.note(
        !free.is_empty(),
        &["fingerprint", "fields"],
        format!(
            "{} may differ under one key: a second request is then answered with the first one's result",
            free.join(", ")
        ),
    );
}

/// Arguments at the top that no material place lies in or above.
fn immaterial(contract: &Contract) -> Vec<String> {
    let places = contract.fingerprint.places();
    let touches = |name: &&str| {
        let argument = Pointer::root().child(*name);
        places
            .iter()
            .any(|place| place.within(&argument).is_some() || argument.within(place).is_some())
    };
    let free = property_names(&contract.arguments).filter(|name| !touches(name));
    free.map(|name| Pointer::root().child(name).to_string()).collect()
}

fn replay(contract: &Contract, gaps: &mut Gaps<'_>) {
    let Some(http) = contract.http() else { return };
    gaps.note(
        http.response.is_empty(),
        &["downstream", "http", "response"],
        "keeps nothing of the answer: a replay gives the reference alone",
    );
    gaps.note(
        http.receipt.is_none() && contract.effect_class == EffectClass::Read,
        &["downstream", "http", "receipt"],
        "is missing; a read has no effect to refer to",
    );
}

fn unknown(contract: &Contract, gaps: &mut Gaps<'_>) {
    if let Some(owner) = &contract.owner {
        gaps.note(
            owner.respond_within.is_none(),
            &["owner", "respond_within"],
            "is missing: nobody is overdue, however long an unknown outcome waits",
        );
        gaps.note(
            owner.next_review.is_none(),
            &["owner", "next_review"],
            "is missing: nobody looks at this contract again by itself",
        );
    }
    if let Some(lookup) = contract.lookup() {
        look_up(lookup, gaps);
    }
}

fn look_up(lookup: &Lookup, gaps: &mut Gaps<'_>) {
    let place = |member| ["downstream", "lookup", member];
    gaps.note(
        !lookup.authoritative,
        &place("authoritative"),
        "is not true: the look-up can prove an effect, and never its absence",
    );
    gaps.note(
        lookup.authoritative && lookup.visible_after.is_zero(),
        &place("visible_after"),
        "is 0s: does the service's owner confirm that an effect can be found at once?",
    );
}

fn permission(contract: &Contract, judgement: &Judgement, gaps: &mut Gaps<'_>) {
    gaps.flag(
        contract.authorization.is_none() && external(contract),
        &["authorization"],
        "is missing: nobody is asked before a send, so the right to submit is trusted for as long as retries go on",
    );
    let unserved = judgement.is_unserved();
    gaps.push(
        !judgement.approval_suffices(),
        if unserved { Severity::Error } else { Severity::RedFlag },
        &["approval"],
        format!(
            "does not cover every request, and the verdict is: {}{}",
            judgement.verdict.as_str(),
            if unserved { "; the tool is not served" } else { "" }
        ),
    );
    gaps.note(
        contract.effect_class == EffectClass::Irreversible
            && contract.approval.is_none()
            && judgement.approval_suffices(),
        &["approval"],
        "is missing: an effect that cannot be undone needs no person's word; is that meant?",
    );
}

fn expiry(contract: &Contract, margin: Duration, gaps: &mut Gaps<'_>) {
    let retention = &contract.retention;
    let longest = longest_path(contract, margin);
    let (sum, parts) = (total(&longest), told(&longest));
    gaps.flag(
        retention.result.is_some_and(|kept| kept < sum),
        &["retention", "result"],
        format!("is shorter than the longest path to a late duplicate, {parts}"),
    );
    gaps.flag(
        retention.tombstone.is_some_and(|kept| kept < sum),
        &["retention", "tombstone"],
        format!("is shorter than the longest path to a late duplicate, {parts}: it would be a new action"),
    );
    gaps.note(
        retention.tombstone.is_some_and(|kept| kept >= sum),
        &["retention", "tombstone"],
        "ends: a duplicate that comes later still is a new action, and nothing can tell",
    );
}

/// How late a duplicate can come by what the contract says. What a queue holds back and how long
/// people take to send a message again is the deployment's to add.
pub(super) fn longest_path(contract: &Contract, margin: Duration) -> Vec<(&'static str, Duration)> {
    let downstream = contract.downstream.as_ref();
    let approval = contract.approval.as_ref();
    let parts = [
        ("retries", Some(contract.retry.give_up)),
        ("lost workers", Some(contract.lease.saturating_mul(LOST_CLAIMS_PARKED))),
        ("the downstream's window", downstream.and_then(|d| d.idempotency).map(|i| i.window)),
        ("visibility", downstream.and_then(|d| d.lookup.as_ref()).map(|l| l.visible_after)),
        ("a job", downstream.and_then(|d| d.poll.as_ref()).map(|poll| poll.give_up)),
        ("events", contract.webhook.as_ref().map(|webhook| webhook.wait)),
        ("approval", approval.map(|approval| approval.wait.saturating_add(approval.expires))),
        ("the owner", contract.owner.as_ref().and_then(|owner| owner.respond_within)),
        ("margin", Some(margin)),
    ];
    let known = parts.into_iter().filter_map(|(name, span)| Some((name, span?)));
    known.filter(|(_, span)| !span.is_zero()).collect()
}

pub(super) fn total(parts: &[(&'static str, Duration)]) -> Duration {
    parts.iter().fold(Duration::ZERO, |sum, (_, span)| sum.saturating_add(*span))
}

/// `100h2m: retries 72h + …`
pub(super) fn told(parts: &[(&'static str, Duration)]) -> String {
    let named: Vec<String> =
        parts.iter().map(|(name, span)| format!("{name} {}", duration_text(*span))).collect();
    // A sum of hours and seconds would be told in seconds; whole minutes, rounded up, are enough.
    let minutes = total(parts).as_secs().div_ceil(60);
    format!("{}h{}m: {}", minutes / 60, minutes % 60, named.join(" + "))
}
