//! Every rule, broken once.

use super::*;

/// One change, and the one line that it must give.
pub(super) fn check(base: &str, from: &str, to: &str, expected: &str) {
    let lines = lines(&changed(base, from, to));
    assert!(
        lines.len() == 1 && lines[0].starts_with(expected),
        "{from:?} -> {to:?}: expected {expected:?}, got {lines:#?}"
    );
}

#[test]
fn words_that_mean_nothing_are_named_with_their_place() {
    let check = |from: &str, to: &str, expected: &str| check(EVERYTHING, from, to, expected);
    check("name: tickets.create", "name: Tickets", "/name: a tool name matches");
    check("name: tickets.create", "name: results", "/name: this tool name is reserved");
    check("version: \"2026-08-19\"", "version: 1.0", "/version: must be a text; put quotes");
    check("version: \"2026-08-19\"", "version: \"a b\"", "/version: a tool version is");
    check(
        "purpose: Create one support ticket for one workflow step.\n",
        "",
        "/purpose: is missing",
    );
    check(
        "purpose: Create one support ticket for one workflow step.",
        "purpose: ' '",
        "/purpose: must not be empty",
    );
    check("use_when: [There is a new issue.]", "use_when: text", "/use_when: must be a list");
    check(
        "  created_by: workflow step \"record issue\"\n",
        "",
        "/operation_key/created_by: is missing",
    );
    check(
        "  scope: [tenant, environment, workflow_id, step_id]",
        "  scope: [tenant]",
        "/operation_key/scope: must be [tenant, environment",
    );
    check("effect_class: key_based", "effect_class: keyed", "/effect_class: must be one of read,");
    check(
        "repeat_side_effects: [webhook, audit]",
        "repeat_side_effects: some",
        "/repeat_side_effects: must be none, or a list",
    );
    check("    timeout: 10s", "    timeout: 10", "/downstream/http/timeout: must be a duration");
    check("    timeout: 10s", "    timeout: ten", "/downstream/http/timeout: a duration is");
    check(
        "    timeout: 10s",
        "    timeuot: 10s",
        "/downstream/http/timeuot: unknown field timeuot; did you mean timeout?",
    );
    check("lease: 60s", "leese: 60s", "/leese: unknown field leese; did you mean lease?");
    check("results: true", "zzz: true", "/zzz: unknown field zzz; known here: name, version");
    check(
        "  text: {/subject: [trim, nfc]}",
        "  text: {/subject: [upper]}",
        "/fingerprint/text/~1subject/0: must be one of trim, lowercase, nfc",
    );
    check(
        "  text: {/subject: [trim, nfc]}",
        "  text: {subject: [trim]}",
        "/fingerprint/text/subject: a JSON Pointer is",
    );
    check(
        "    receipt: /ticket_id\n    response",
        "    receipt: ticket_id\n    response",
        "/downstream/http/receipt: a JSON Pointer is",
    );
    check("method: POST", "method: post", "/downstream/http/method: must be one of GET");
    check("already: [410]", "already: [99]", "/downstream/http/already/0: must be a whole number");
    check(
        "already: [410]",
        "already: [410.0]",
        "/downstream/http/already/0: must be a whole number",
    );
    check("attempts: 7", "attempts: 1.5", "/retry/attempts: must be a whole number");
    check("attempts: 7", "attempts: -1", "/retry/attempts: must be a whole number");
    check("multiplier: 1.5", "multiplier: 1e999", "/retry/multiplier: must be a number");
    check("results: true", "results: 'true'", "/results: must be true or false");
    check(
        "ticket.updated: progress",
        "ticket.updated: done",
        "/webhook/events/ticket.updated: must be",
    );
    check(
        "late_arrival: replay_reference",
        "late_arrival: execute",
        "/retention/late_arrival: must be",
    );
    check("next_review: 2027-03-01", "next_review: soon", "/owner/next_review: must be a date");
}

#[test]
fn templates_that_could_not_be_sent_are_named_with_their_place() {
    let check = |from: &str, to: &str, expected: &str| check(TICKETS, from, to, expected);
    let url = "url: \"${env:TICKET_SERVICE_URL}/tickets\"";
    check(url, "url: \"http://{/queue_id}/tickets\"", "/downstream/http/url: a URL begins with");
    check(url, "url: \"http://h@{tenant}/tickets\"", "/downstream/http/url: a URL begins with");
    check(url, "url: \"{/subject}\"", "/downstream/http/url: a URL begins with");
    check(
        url,
        "url: \"http://h/a-{/queue_id}\"",
        "/downstream/http/url: in a URL a placeholder is one",
    );
    check(url, "url: \"http://h/${env:X}\"", "/downstream/http/url: a secret may stand");
    let key = "Idempotency-Key: \"{idempotency_key}\"";
    let with = |more: &str| format!("{key}\n      {more}");
    check(key, &with("Host: evil"), "/downstream/http/headers/Host: is set by the client");
    check(key, &with("Content-Length: '5'"), "/downstream/http/headers/Content-Length: is set by");
    check(
        key,
        &with("idempotency-key: x"),
        "/downstream/http/headers/idempotency-key: stands twice",
    );
    check(key, &with("\"A B\": x"), "/downstream/http/headers/A B: is no header name");
    check(key, &with("X-A: größe"), "/downstream/http/headers/X-A: a header's literal text");
    check(key, &with("X-A: \"{/a\""), "/downstream/http/headers/X-A: a '{' is not closed");
    check(
        key,
        &with("X-A: Bearer abcdefghijklmnop"),
        "/downstream/http/headers/X-A: holds what looks",
    );
    check(
        "subject: \"{/subject}\"",
        "subject: \"${env:X}\"",
        "/downstream/http/body/subject: a secret may stand",
    );
    check(
        "subject: \"{/subject}\"",
        "subject: [\"{/subject}\", \"}\"]",
        "/downstream/http/body/subject/1: a '}' closes nothing",
    );
}

#[test]
fn relations_that_do_not_hold_are_named_with_their_place() {
    let check = |from: &str, to: &str, expected: &str| check(TICKETS, from, to, expected);
    check(
        "timeout: 10s",
        "timeout: 25s",
        "/downstream/http/timeout: must be shorter than the lease of 30s less the margin of 5s",
    );
    check("timeout: 10s", "timeout: 0s", "/downstream/http/timeout: must be longer");
    check("lease: 30s", "lease: 5s", "/lease: must be longer than the margin of 5s");
    check("window: 24h", "window: 15s", "/downstream/idempotency/window: must be longer than");
    check("initial: 1s", "initial: 0s", "/retry/initial: must be longer");
    check("initial: 1s", "initial: 6m", "/retry/max: must be at least retry.initial");
    check("give_up: 72h", "give_up: 4m", "/retry/give_up: must be at least retry.max");
    check("multiplier: 2", "multiplier: 0.9", "/retry/multiplier: must be at least 1");
    check("jitter: 0.5", "jitter: 1.1", "/retry/jitter: must be from 0 to 1");
    check("jitter: 0.5", "jitter: -0.1", "/retry/jitter: must be from 0 to 1");
    check("attempts: 12", "attempts: 0", "/retry/attempts: must be at least 1");
    check("process: 16", "process: 0", "/concurrency/process: must be at least 1");
    check("process: 16", "total: 0", "/concurrency/total: must be at least 1");
    check(
        "effect_class: key_based",
        "effect_class: key_based\nstale_write: harmless",
        "/stale_write: only natural_idempotent",
    );
    check(
        "effect_class: key_based",
        "effect_class: transactional",
        "/downstream: a transactional tool",
    );
    check("    receipt: /ticket_id\n", "", "/downstream/http/receipt: is missing");
    check("applied: [200, 201]", "applied: []", "/downstream/http/applied: names no status");
    check(
        "applied: [200, 201]",
        "applied: [200, 409]",
        "/downstream/http/applied/1: 409 is no success",
    );
    check(
        "applied: [200, 201]",
        "applied: [200, 302]",
        "/downstream/http/applied/1: 302 can stand in no list",
    );
    check(
        "applied: [200, 201]",
        "applied: [200, 200]",
        "/downstream/http/applied/1: 200 stands in applied too",
    );
    check(
        "not_now: [429]",
        "not_now: [422]",
        "/downstream/http/not_now/0: 422 stands in refused too",
    );
    check(
        "not_now: [429]",
        "not_now: [401]",
        "/downstream/http/not_now/0: 401 can stand in no list",
    );
    check(
        "not_now: [429]",
        "already: [403]",
        "/downstream/http/already/0: 403 can stand in no list",
    );
    check("not_now: [429]", "not_now: [204]", "/downstream/http/not_now/0: 204 is a success");
    check("not_now: [429]", "refused: [500]", "line 52: this key stands twice");
    check(
        "method: POST",
        "method: DELETE",
        "/downstream/http/body: GET, HEAD and DELETE carry no body",
    );
    check(
        "      Idempotency-Key: \"{idempotency_key}\"",
        "      X-Reference: \"{operation_id}\"",
        "/downstream/idempotency: the downstream is said to deduplicate",
    );
    check(
        "body: \"{/body}\"}",
        "body: \"{/body}\", job: \"{job}\"}",
        "/downstream/http: {job} is known to a poll only",
    );
}

#[test]
fn jobs_need_what_follows_them() {
    let accepted = changed(TICKETS, "not_now: [429]", "not_now: [429]\n    accepted: [202]");
    let lines = lines(&accepted);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].starts_with("/downstream/http/job: is missing"), "{lines:#?}");
    assert!(lines[1].starts_with("/downstream/poll: is missing"), "{lines:#?}");
}

#[test]
fn places_in_the_arguments_must_be_there_and_what_is_sent_must_be_compared() {
    let check = |from: &str, to: &str, expected: &str| check(TICKETS, from, to, expected);
    let fields = "fields: [/queue_id, /subject, /body]";
    check(fields, "fields: []", "/fingerprint/fields");
    check(
        fields,
        "fields: [/queue_id, /subject]",
        "/fingerprint/fields: /body is sent to the downstream but not compared",
    );
    check(
        fields,
        "fields: [/queue_id, /subject, /body, /other]",
        "/fingerprint/fields/3: /other is no place",
    );
    check(
        "numbers: exact",
        "defaults: {/other: 1}",
        "/fingerprint/defaults/~1other: /other is no place",
    );
    check("numbers: exact", "text: {/other: [trim]}", "/fingerprint/text/~1other: ");
    check(
        "body: \"{/body}\"}",
        "body: \"{/body}\", x: \"{/other}\"}",
        "/downstream/http: /other is no place",
    );
    check("  type: object\n", "", "/arguments/type: must be object");
    check(
        "pattern: \"^[a-z0-9_-]{1,64}$\"",
        "pattern: \"(\"",
        "/arguments: is no usable JSON Schema",
    );
    check(
        "pattern: \"^[a-z0-9_-]{1,64}$\"",
        "pattern: \"(?=a)\"",
        "/arguments: is no usable JSON Schema",
    );
    check(
        "pattern: \"^[a-z0-9_-]{1,64}$\"",
        "$ref: \"https://example.com/s\"",
        "/arguments: is no usable JSON Schema",
    );
    check(
        "  additionalProperties: false\n",
        "  $schema: \"http://json-schema.org/draft-07/schema#\"\n",
        "/arguments: $schema must be",
    );
    check(
        "      maxLength: 200\n",
        "      maxLength: many\n",
        "/arguments: is no usable JSON Schema",
    );
    assert_eq!(lines(&changed(TICKETS, fields, "fields: [\"\"]")), Vec::<String>::new());
}

#[test]
fn all_problems_come_at_once() {
    let mut text = changed(EVERYTHING, "lease: 60s", "lease: soon");
    text = changed(&text, "method: POST", "method: SEND");
    text = changed(&text, "attempts: 7", "atempts: 7");
    text = changed(&text, "provider: tickets", "provider: ''");
    let lines = lines(&text);
    let places: Vec<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        places,
        ["/downstream/http/method", "/lease", "/retry/atempts", "/webhook/provider"]
    );
}

#[test]
fn what_is_no_mapping_is_no_contract() {
    for (text, expected) in [
        ("[]", "must be a mapping"),
        ("text", "must be a mapping"),
        ("~", "must be a mapping"),
        ("a: &x 1", "line 1: anchors are refused; write the value out"),
    ] {
        assert_eq!(lines(text), [expected], "{text}");
    }
    let long = format!("{TICKETS}#{}", "x".repeat(MAX_CONTRACT_BYTES));
    assert_eq!(read(&long, DEFAULT_MARGIN), Err(ContractTextError::TooLarge));
}

/// The schema that `describe --format schema` prints says of a file what the reader says.
#[test]
fn schema_and_reader_agree() {
    let by_schema = |text: &str| schema_problems(&yaml::read(text).unwrap()).is_empty();
    let by_reader = |text: &str| Contract::from_json(&yaml::read(text).unwrap()).is_ok();
    for good in [TICKETS, MAIL, EVERYTHING] {
        assert!(by_schema(good) && by_reader(good));
    }
    for (from, to) in [
        ("lease: 60s", "leese: 60s"),
        ("lease: 60s", "lease: 60"),
        ("lease: 60s", "lease: 1h30m"),
        ("name: tickets.create", "name: dead"),
        ("name: tickets.create", "name: a-"),
        ("purpose: Create one support ticket for one workflow step.\n", ""),
        ("purpose: Create one support ticket for one workflow step.", "purpose: ' '"),
        ("effect_class: key_based", "effect_class: keyed"),
        ("  new_key_when: the user asks for a second ticket\n", ""),
        ("workflow_id, step_id]", "workflow_id]"),
        ("method: POST", "method: TRACE"),
        ("already: [410]", "already: [600]"),
        ("{grants: true}", "{}"),
        ("{grants: true}", "{grants: false}"),
        ("{grants: true}", "{http: {url: \"http://h/\", method: GET}}"),
        ("found: 200", "found: ok"),
        ("pass: [200]", "pass: 200"),
        ("every: 5s, ", ""),
        ("window: 24h", ""),
        ("numbers: numeric", "numbers: both"),
        ("absent: resend", "absent: guess"),
        ("respond_within: 4h", "respond_in: 4h"),
        ("receipt: /data/id", "receipt: /data~id"),
        ("results: true", "results: 1"),
        ("repeat_side_effects: [webhook, audit]", "repeat_side_effects: [1]"),
    ] {
        let text = changed(EVERYTHING, from, to);
        assert!(!by_schema(&text), "the schema takes {to:?}");
        assert!(!by_reader(&text), "the reader takes {to:?}");
    }
}
