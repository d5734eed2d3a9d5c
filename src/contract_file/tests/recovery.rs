//! What a contract says of an operation that may have been sent, and what a release cannot do.

use std::time::Duration;

use crate::domain::contract::{
    AbsentRule, EffectClass, LateArrival, Recoverability, RetryRule, Twins,
};
use crate::domain::fingerprint::material;
use crate::domain::pointer::Pointer;

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
    assert_eq!(named, ["/sensitive", "/webhook"]);
}

#[test]
fn what_asks_is_read_with_its_defaults() {
    let statuses = |list: &[u16]| list.to_vec();
    let pointer = |text: &str| Pointer::parse(text).unwrap();
    let all = contract(EVERYTHING);
    let lookup = all.lookup().unwrap();
    assert_eq!((lookup.authoritative, lookup.visible_after), (true, Duration::from_secs(10)));
    assert_eq!(lookup.when_absent, AbsentRule::Resend);
    let http = lookup.http.as_ref().unwrap();
    assert_eq!((http.found.clone(), http.absent.clone()), (statuses(&[200]), statuses(&[404])));
    assert_eq!((&http.receipt, http.response.len()), (&pointer("/ticket_id"), 0));
    assert_eq!(http.call.timeout, Duration::from_secs(10));
    let poll = all.poll().unwrap();
    assert_eq!((poll.every, poll.give_up), (Duration::from_secs(5), Duration::from_hours(1)));
    let http = poll.http.as_ref().unwrap();
    assert_eq!((http.applied.clone(), http.refused.clone()), (statuses(&[200]), statuses(&[])));
    assert_eq!(http.receipt, Some(pointer("/ticket_id")), "as in the effect's own answer");
    let before = all.preconditions.as_ref().unwrap();
    assert_eq!(before.pass, [200, 204]);
    assert_eq!(before.fail, [404, 409, 410, 412, 422]);
    let inverted = changed(EVERYTHING, "pass: [200]", "pass: [404], fail: [200]");
    let after = contract(&inverted).postcondition.unwrap();
    assert_eq!((after.pass, after.fail), (statuses(&[404]), statuses(&[200])));
    let only_pass = changed(EVERYTHING, "pass: [200]", "pass: [404]");
    let after = contract(&only_pass).postcondition.unwrap();
    assert_eq!(after.fail, [409, 410, 412, 422], "the usual ones that pass does not name");
}

#[test]
fn whoever_decides_is_named_in_any_combination() {
    let check = |text: &str, grants: bool, http: bool, code: Option<&str>, outside: bool| {
        let text = changed(EVERYTHING, "authorization: {grants: true}", text);
        let text = text.lines().filter(|line| !line.starts_with("preconditions:"));
        let read = contract(&text.collect::<Vec<_>>().join("\n"));
        let found = read.authorization.as_ref();
        assert_eq!(
            found.map(|a| (a.grants, a.http.is_some(), a.code.as_deref())),
            Some((grants, http, code))
        );
        assert_eq!(read.asks_before_send(), outside);
    };
    check("authorization: {grants: true}", true, false, None, false);
    check("authorization: {code: staff}", false, false, Some("staff"), true);
    let http = "http: {url: \"${env:POLICY_URL}/v1/data/x/allow\", headers: {A: \"${env:T}\"}, timeout: 2s}";
    check(&format!("authorization: {{{http}}}"), false, true, None, true);
    check(
        &format!("authorization: {{grants: true, {http}, code: staff}}"),
        true,
        true,
        Some("staff"),
        true,
    );
    assert!(contract(EVERYTHING).asks_before_send(), "a precondition is asked outside too");
    assert!(!contract(TICKETS).asks_before_send());
}

#[test]
fn code_may_answer_instead_of_http() {
    let (start, _) = TICKETS.split_once("downstream:").unwrap();
    let by_code = "downstream: {lookup: {authoritative: true, absent: resend}, poll: {every: 5s, give_up: 1h}}\n";
    let read = contract(&format!("{start}{by_code}"));
    assert!(read.lookup().is_some_and(|lookup| lookup.http.is_none()));
    assert!(read.poll().is_some_and(|poll| poll.http.is_none()));
    assert!(!read.blind());
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
