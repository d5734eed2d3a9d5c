//! What `contract check` tells a reviewer.

use crate::domain::contract::Finding;

use super::*;

fn findings(text: &str, severity: Severity) -> Vec<Finding> {
    let all = contract(text).review(DEFAULT_MARGIN);
    all.into_iter().filter(|finding| finding.severity == severity).collect()
}

/// One change, and the red flag that it must raise and that was not there before.
fn check(base: &str, from: &str, to: &str, place: &str, part: &str) {
    let raised = |text: &str| {
        findings(text, Severity::RedFlag)
            .iter()
            .any(|flag| flag.pointer.to_string() == place && flag.message.contains(part))
    };
    let text = changed(base, from, to);
    assert!(raised(&text), "{to:?}: {:#?}", findings(&text, Severity::RedFlag));
    assert!(!raised(base), "{place} is flagged without {to:?}");
}

#[test]
fn a_service_that_deduplicates_raises_no_red_flag() {
    assert_eq!(findings(TICKETS, Severity::Error), []);
    assert_eq!(findings(TICKETS, Severity::RedFlag), []);
    let notes = findings(TICKETS, Severity::Note);
    assert!(notes[0].message.contains("sent again under the same downstream key"), "{notes:#?}");
    assert!(notes.iter().any(|note| note.pointer.to_string() == "/downstream/idempotency/window"));
}

#[test]
fn a_blind_service_raises_one() {
    assert_eq!(findings(MAIL, Severity::Error), []);
    let flags = findings(MAIL, Severity::RedFlag);
    assert_eq!(flags.len(), 1, "{flags:#?}");
    assert!(flags[0].message.contains("a lost answer ends unknown"));
    let sentence = contract(MAIL).after_effect_before_ack();
    assert!(sentence.contains("nothing is sent again") && sentence.contains("customer-messaging"));
}

#[test]
fn what_this_release_does_not_do_is_an_error() {
    let errors = findings(EVERYTHING, Severity::Error);
    assert_eq!(errors.len(), contract(EVERYTHING).unsupported().len(), "{errors:#?}");
    assert!(errors.iter().all(|error| error.message.ends_with("the tool is not served")));
    let all = contract(EVERYTHING).review(DEFAULT_MARGIN);
    assert!(all.is_sorted_by_key(|finding| finding.severity));
}

#[test]
fn relations_that_break_under_a_larger_margin_are_errors() {
    let margin = Duration::from_secs(25);
    let errors = contract(TICKETS).review(margin);
    assert_eq!(errors[0].severity, Severity::Error);
    assert_eq!(errors[0].pointer.to_string(), "/downstream/http/timeout");
}

#[test]
fn gaps_of_the_design_review_are_red_flags() {
    let check =
        |from: &str, to: &str, place: &str, part: &str| check(TICKETS, from, to, place, part);
    let window = "  idempotency: {window: 24h}\n";
    check(window, "", "/effect_class", "key_based, but no downstream.idempotency");
    check(window, "", "/downstream/idempotency", "carries {idempotency_key}");
    check("repeat_side_effects: none\n", "", "/repeat_side_effects", "is missing");
    check(
        "repeat_side_effects: none",
        "repeat_side_effects: [mail]",
        "/repeat_side_effects",
        "happen twice",
    );
    check(
        "owner: {reconciliation: support-platform, respond_within: 4h, next_review: 2027-03-01}",
        "",
        "/owner",
        "nobody is named",
    );
    check(
        "use_when:\n  - The workflow has a validated issue that no ticket exists for yet.\n",
        "",
        "/use_when",
        "",
    );
    check(
        "do_not_use_when:\n  - You want to know whether a ticket exists.\n  - A call for the same step had no answer; ask for its status instead.\n",
        "",
        "/do_not_use_when",
        "",
    );
    check(
        "fields: [/queue_id, /subject, /body]",
        "fields: [\"\"]",
        "/fingerprint/fields/0",
        "compares everything",
    );
    check("  additionalProperties: false\n", "", "/arguments/additionalProperties", "misspelt");
    check(
        "    body:\n      description: The issue",
        "    idempotency_key: {type: string}\n    body:\n      description: The issue",
        "/arguments/properties/idempotency_key",
        "the application makes the operation key",
    );
    check(
        "numbers: exact",
        "defaults: {/subject: x}",
        "/fingerprint/defaults/~1subject",
        "can never apply",
    );
}

#[test]
fn doubtful_requests_and_answers_are_red_flags() {
    let check =
        |from: &str, to: &str, place: &str, part: &str| check(TICKETS, from, to, place, part);
    check("not_now: [429]", "not_now: [504]", "/downstream/http/not_now/0", "504");
    check("refused: [400, 404, 422]", "refused: [400, 500]", "/downstream/http/refused/1", "500");
    check(
        "\"${env:TICKET_SERVICE_URL}/tickets\"",
        "\"http://tickets.example.com/tickets\"",
        "/downstream/http/url",
        "not encrypted",
    );
    check(
        "      Idempotency-Key",
        "      Authorization: Basic dXNlcg==\n      Idempotency-Key",
        "/downstream/http/headers/Authorization",
        "plain text",
    );
    let optional =
        changed(TICKETS, "required: [queue_id, subject, body]", "required: [subject, body]");
    super::reviewed::check(
        &optional,
        "URL}/tickets\"",
        "URL}/queues/{/queue_id}\"",
        "/downstream/http/url",
        "does not require",
    );
    let timed = changed(
        TICKETS,
        "    body:\n      description: The issue",
        "    sent_at: {type: string}\n    body:\n      description: The issue",
    );
    super::reviewed::check(
        &timed,
        "fields: [/queue_id,",
        "fields: [/sent_at, /queue_id,",
        "/fingerprint/fields/0",
        "changes with every attempt",
    );
}

#[test]
fn loopback_needs_no_encryption() {
    let check = |base: &str, flagged: bool| {
        let text = changed(TICKETS, "${env:TICKET_SERVICE_URL}", base);
        assert_eq!(!findings(&text, Severity::RedFlag).is_empty(), flagged, "{base}");
    };
    check("http://127.0.0.1:8099", false);
    check("http://localhost", false);
    check("http://[::1]:8", false);
    check("http://[::1]", false);
    check("https://example.com", false);
    check("http://example.com", true);
    check("http://127.0.0.1.example.com", true);
    check("http://localhost.example.com:80", true);
}
