//! The smaller sections.

use std::time::Duration;

use crate::domain::contract::{
    Approval, Concurrency, LateArrival, OperationKeyNotes, Owner, Retention, RetryRule, Twins,
    Webhook, WebhookMeaning,
};
use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

use super::place::Place;

/// The parts of every operation key, whatever the tool.
const SCOPE: [&str; 4] = ["tenant", "environment", "workflow_id", "step_id"];

/// The member's name as a pointer.
pub(super) fn pointer(name: &str, place: &Place<'_>) -> Option<Pointer> {
    Pointer::parse(name).map_or_else(|error| place.complain(error.to_string()), Some)
}

pub(super) fn operation_key(place: &Place<'_>) -> Option<OperationKeyNotes> {
    place.object(&["created_by", "reused_by", "new_key_when", "scope"])?;
    let created_by = place.get("created_by").text();
    let reused_by = place.get("reused_by").text();
    let new_key_when = place.get("new_key_when").text();
    let scope = place.get("scope");
    let named = scope.texts();
    if named.as_ref().is_some_and(|named| *named != SCOPE) {
        scope.complain::<()>(
            "must be [tenant, environment, workflow_id, step_id]: every operation key has these parts, and no tool has other ones",
        );
    }
    named?;
    Some(OperationKeyNotes {
        created_by: created_by?,
        reused_by: reused_by?,
        new_key_when: new_key_when?,
    })
}

pub(super) fn retry(place: &Place<'_>) -> Option<RetryRule> {
    place.object(&["initial", "max", "multiplier", "jitter", "attempts", "give_up"])?;
    let default = RetryRule::default();
    let initial = place.get("initial").or(default.initial, Place::duration);
    let max = place.get("max").or(default.max, Place::duration);
    let multiplier = place.get("multiplier").or(default.multiplier, Place::fraction);
    let jitter = place.get("jitter").or(default.jitter, Place::fraction);
    let attempts = place.get("attempts").or(default.attempts, |p| p.whole("of at least 1"));
    let give_up = place.get("give_up").or(default.give_up, Place::duration);
    Some(RetryRule {
        initial: initial?,
        max: max?,
        multiplier: multiplier?,
        jitter: jitter?,
        attempts: attempts?,
        give_up: give_up?,
    })
}

pub(super) fn concurrency(place: &Place<'_>) -> Option<Concurrency> {
    place.object(&["process", "total"])?;
    let default = Concurrency::default();
    let process = place.get("process").or(default.process, |p| p.whole("of at least 1"));
    let total = place.get("total").maybe(|p| p.whole("of at least 1"));
    Some(Concurrency { process: process?, total: total? })
}

pub(super) fn twins(place: &Place<'_>, default: Twins) -> Option<Twins> {
    place.object(&["hold", "within"])?;
    let hold = place.get("hold").or(default.hold, Place::flag);
    let within = place.get("within").or(default.within, Place::duration);
    Some(Twins { hold: hold?, within: within?, stated: true })
}

pub(super) fn approval(place: &Place<'_>) -> Option<Approval> {
    place.object(&["when", "wait", "expires"])?;
    let when = place.get("when").or(Vec::new(), |when| {
        when.each_member(|name, values| {
            Some((pointer(name, values)?, values.list(|value| value.json().cloned())?))
        })
    });
    let wait = place.get("wait").or(Duration::from_hours(72), Place::duration);
    let expires = place.get("expires").or(Duration::from_hours(24), Place::duration);
    Some(Approval { when: when?.into_iter().collect(), wait: wait?, expires: expires? })
}

pub(super) fn webhook(place: &Place<'_>) -> Option<Webhook> {
    place.object(&["provider", "events", "operation_key", "receipt", "sequence", "wait"])?;
    let provider = place.get("provider").text();
    let events = place.get("events").each_member(|name, meaning| {
        let meaning = meaning.word(&[
            ("applied", WebhookMeaning::Applied),
            ("failed_permanent", WebhookMeaning::FailedPermanent),
            ("progress", WebhookMeaning::Progress),
            ("ignore", WebhookMeaning::Ignore),
        ])?;
        Some((name.to_owned(), meaning))
    });
    let operation_key = place.get("operation_key").json_pointer();
    let receipt = place.get("receipt").maybe(Place::json_pointer);
    let sequence = place.get("sequence").maybe(Place::json_pointer);
    let wait = place.get("wait").or(Duration::from_hours(24), Place::duration);
    Some(Webhook {
        provider: provider?,
        events: events?.into_iter().collect(),
        operation_key: operation_key?,
        receipt: receipt?,
        sequence: sequence?,
        wait: wait?,
    })
}

pub(super) fn retention(place: &Place<'_>) -> Option<Retention> {
    place.object(&["result", "tombstone", "late_arrival"])?;
    let result = place.get("result").maybe(Place::duration);
    let tombstone = place.get("tombstone").maybe(Place::duration);
    let late_arrival = place.get("late_arrival").or(LateArrival::Reject, |place| {
        place.word(&[
            ("reject", LateArrival::Reject),
            ("replay_reference", LateArrival::ReplayReference),
            ("reconcile", LateArrival::Reconcile),
        ])
    });
    Some(Retention { result: result?, tombstone: tombstone?, late_arrival: late_arrival? })
}

pub(super) fn owner(place: &Place<'_>) -> Option<Owner> {
    place.object(&["reconciliation", "respond_within", "next_review"])?;
    let reconciliation = place.get("reconciliation").text();
    let respond_within = place.get("respond_within").maybe(Place::duration);
    let next_review = place.get("next_review").maybe(date);
    Some(Owner {
        reconciliation: reconciliation?,
        respond_within: respond_within?,
        next_review: next_review?,
    })
}

/// `YYYY-MM-DD`, as far as a form can tell.
fn date(place: &Place<'_>) -> Option<String> {
    let text = place.json().and_then(Json::as_str).unwrap_or_default();
    let formed = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if formed { Some(text.to_owned()) } else { place.complain("must be a date, YYYY-MM-DD") }
}
