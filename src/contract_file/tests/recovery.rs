//! What a contract says of an operation that may have been sent, and what a release cannot do.

use std::time::Duration;

use crate::domain::contract::{EffectClass, LateArrival, Recoverability, RetryRule, Twins};
use crate::domain::fingerprint::material;

use super::*;

const DAY: Duration = Duration::from_hours(24);

#[test]
fn the_examples_say_what_their_services_do() {
    let tickets = contract(TICKETS);
    assert_eq!(tickets.recoverability(), Recoverability::ResendWithin { window: DAY });
    assert!(!tickets.blind());
    let mail = contract(MAIL);
    assert_eq!(mail.recoverability(), Recoverability::None);
    assert!(mail.blind());
    for example in [tickets, mail] {
        assert_eq!(example.unsupported(), [], "{}", example.tool);
        assert_eq!(example.retry, RetryRule::default());
        assert_eq!(example.lease, Duration::from_secs(30));
        assert_eq!(example.concurrency.process, 16);
    }
}

#[test]
fn recovery_follows_class_and_downstream() {
    let check = |text: &str, expected: Recoverability, blind: bool| {
        let contract = contract(text);
        assert_eq!((contract.recoverability(), contract.blind()), (expected, blind), "{text}");
    };
    let class = |word: &str| changed(TICKETS, "key_based", word);
    let alone = |text: &str| changed(text, "  idempotency: {window: 24h}\n", "");
    let window = Recoverability::ResendWithin { window: DAY };
    for word in ["key_based", "append", "irreversible", "natural_idempotent"] {
        check(&class(word), window, false);
        check(&alone(&class(word)), Recoverability::None, true);
    }
    check(&alone(&class("read")), Recoverability::ResendAlways, false);
    let harmless = class("natural_idempotent\nstale_write: harmless");
    check(&harmless, Recoverability::ResendAlways, false);
    check(&alone(&harmless), Recoverability::ResendAlways, false);
    let (start, _) = TICKETS.split_once("downstream:").unwrap();
    let rust_tool = changed(start, "key_based", "transactional");
    check(&rust_tool, Recoverability::Transactional, false);
    check(start, Recoverability::None, true);
    check(&format!("{start}downstream: {{idempotency: {{window: 24h}}}}\n"), window, false);
    let looked_up = changed(EVERYTHING, "  idempotency: {window: 24h}\n", "");
    check(&looked_up, Recoverability::None, false);
}

/// A version that can be left out, or is none, guards nothing.
#[test]
fn only_a_required_version_makes_an_overwrite_safe() {
    let class = changed(TICKETS, "effect_class: key_based", "effect_class: natural_idempotent");
    let class = changed(&class, "  idempotency: {window: 24h}\n", "");
    let key = "Idempotency-Key: \"{idempotency_key}\"";
    let check = |header: &str, expected: Recoverability| {
        let contract = contract(&changed(&class, key, header));
        assert_eq!(contract.recoverability(), expected, "{header}");
    };
    check("If-Match: \"{/subject}\"", Recoverability::ResendAlways);
    check("if-match: '\"{/subject}\"'", Recoverability::ResendAlways);
    check("If-Match: \"*\"", Recoverability::None);
    check("If-Match: \"{operation_id}\"", Recoverability::None);
    check("If-None-Match: \"{/subject}\"", Recoverability::None);
    let optional =
        changed(&class, "required: [queue_id, subject, body]", "required: [queue_id, body]");
    let optional = contract(&changed(&optional, key, "If-Match: \"{/subject}\""));
    assert_eq!(optional.recoverability(), Recoverability::None);
}

#[test]
fn every_section_is_read_and_what_is_not_carried_out_is_named() {
    let all = contract(EVERYTHING);
    assert_eq!(all.effect_class, EffectClass::KeyBased);
    assert_eq!(all.retry.initial, Duration::from_secs(2));
    assert_eq!((all.retry.multiplier, all.retry.jitter, all.retry.attempts), (1.5, 0.25, 7));
    assert_eq!(all.twins, Twins { hold: true, within: Duration::from_mins(10), stated: true });
    assert_eq!(all.retention.result, Some(Duration::from_hours(24 * 30)));
    assert_eq!(all.retention.late_arrival, LateArrival::ReplayReference);
    assert_eq!((all.concurrency.process, all.concurrency.total), (4, Some(64)));
    assert_eq!(all.webhook.as_ref().map(|w| w.events.len()), Some(3));
    assert_eq!(all.owner.as_ref().map(|o| o.reconciliation.as_str()), Some("support-platform"));
    let named: Vec<String> = all.unsupported().iter().map(|u| u.pointer.to_string()).collect();
    assert_eq!(
        named,
        [
            "/downstream/lookup",
            "/downstream/poll",
            "/downstream/http/accepted",
            "/downstream/http/job",
            "/authorization",
            "/approval",
            "/preconditions",
            "/postcondition",
            "/twins/hold",
            "/sensitive",
            "/webhook",
        ]
    );
    let released = changed(EVERYTHING, "twins: {hold: true, within: 10m}", "twins: {hold: false}");
    let released = contract(&released).unsupported();
    assert!(!released.iter().any(|section| section.pointer.to_string() == "/twins/hold"));
}

#[test]
fn numbers_survive_from_the_file_to_fingerprint_body_and_schema() {
    let all = contract(EVERYTHING);
    let default = all.fingerprint.defaults.values().next().map(Json::to_text);
    assert_eq!(default.as_deref(), Some("1.0"));
    let schema = serde_json::to_string(&all.arguments).unwrap();
    assert!(schema.contains("9007199254740993"), "{schema}");
    let print = |arguments: &str| {
        material("t", "1", "acme", &json(arguments), &all.fingerprint).fingerprint
    };
    assert_eq!(
        print(r#"{"queue_id":"q","subject":"s"}"#),
        print(r#"{"queue_id":"q","subject":" s","amount":1}"#)
    );
    assert_ne!(
        print(r#"{"queue_id":"q","subject":"s","amount":9007199254740993}"#),
        print(r#"{"queue_id":"q","subject":"s","amount":9007199254740992}"#)
    );
}

/// The registry compares with digests that earlier releases have stored: a release that computes
/// another one takes every tool out of service.
#[test]
fn the_material_digest_is_the_same_in_every_release() {
    assert_eq!(
        contract(EVERYTHING).material_digest(),
        "66f66602e991681337321c361ab9af5e5cb92581cfa99cdb62947e9f74024fe0"
    );
}

#[test]
fn the_material_digest_changes_with_the_material_part_only() {
    let digest = |text: &str| contract(text).material_digest();
    let before = digest(TICKETS);
    assert!(before.len() == 64 && before.bytes().all(|b| b.is_ascii_hexdigit()));
    for (from, to) in [
        ("timeout: 10s", "timeout: 11s"),
        ("window: 24h", "window: 23h"),
        ("numbers: exact", "numbers: numeric"),
        ("fields: [/queue_id, /subject, /body]", "fields: [/subject, /queue_id, /body]"),
        ("maxLength: 200\n", "maxLength: 201\n"),
        ("effect_class: key_based", "effect_class: irreversible"),
        ("response: [/ticket_id, /status]", "response: [/ticket_id]"),
    ] {
        assert_ne!(digest(&changed(TICKETS, from, to)), before, "{to}");
    }
    let exact = changed(EVERYTHING, "factor: 1.50", "factor: 1.5");
    assert_ne!(digest(&exact), digest(EVERYTHING), "1.50 and 1.5 are two bodies");
    let harmless = changed(TICKETS, "key_based", "natural_idempotent");
    let other =
        changed(&harmless, "natural_idempotent", "natural_idempotent\nstale_write: harmless");
    assert_ne!(digest(&harmless), digest(&other));
    for (from, to) in [
        ("purpose: Create", "purpose: Make"),
        ("lease: 30s", "lease: 40s"),
        ("attempts: 12", "attempts: 13"),
        ("respond_within: 4h", "respond_within: 5h"),
        ("method: POST", "method:   \"POST\"   # as before"),
        ("    timeout: 10s\n    applied: [200, 201]", "    applied: [200, 201]\n    timeout: 10s"),
    ] {
        assert_eq!(digest(&changed(TICKETS, from, to)), before, "{to}");
    }
}
