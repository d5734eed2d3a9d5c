//! Every rule about questions, broken once.

use super::refused::check;
use super::*;

#[test]
fn words_that_mean_nothing_are_named_with_their_place() {
    let check = |from: &str, to: &str, expected: &str| check(EVERYTHING, from, to, expected);
    check("{grants: true}", "{}", "/authorization: must name who decides: grants: true");
    check("{grants: true}", "{grants: false}", "/authorization/grants: must be true, or left out");
    check("{grants: true}", "{code: ''}", "/authorization/code: must not be empty");
    let http = "{http: {method: POST, url: \"http://h/\"}}";
    check("{grants: true}", http, "/authorization/http/method: unknown field method; known here");
    check("every: 5s, ", "", "/downstream/poll/every: is missing");
    check("found: 200, ", "found: [200, 99], ", "/downstream/lookup/http/found/1: must be a whole");
    check("pass: [200]", "pass: 200", "/postcondition/pass: must be a list");
}

/// A question is believed, so it must be whole and say whom it asks about.
#[test]
fn questions_that_could_not_be_believed_are_named_with_their_place() {
    let check = |from: &str, to: &str, expected: &str| check(EVERYTHING, from, to, expected);
    let lookup = "{method: GET, url: \"http://127.0.0.1:8099/tickets?key={idempotency_key}\", found: 200, absent: 404, receipt: /ticket_id}";
    let asked = |url: &str, rest: &str| format!("{{method: GET, url: \"http://h/{url}\", {rest}}}");
    let by = |url: &str| asked(url, "found: 200, absent: 404, receipt: /ticket_id");
    let at = "/downstream/lookup/http: ";
    check(lookup, &by("t?x={tenant}"), &format!("{at}does not say which operation"));
    check(lookup, &by("t?x={/priority}"), &format!("{at}asks with /priority, which"));
    check(lookup, &by("t?x={/other}"), &format!("{at}/other is no place"));
    let keyed = |rest: &str| asked("t?x={operation_id}", rest);
    let with = |from: &str, to: &str| {
        keyed("found: 200, absent: 404, receipt: /ticket_id").replace(from, to)
    };
    check(
        lookup,
        &with("method: GET", "method: DELETE"),
        "/downstream/lookup/http/method: must be one of GET, POST",
    );
    check(
        lookup,
        &with("method: GET", "method: HEAD"),
        "/downstream/lookup/http/method: must be one of",
    );
    check(
        lookup,
        &with("found: 200", "found: 410"),
        "/downstream/lookup/http/found/0: 410 is no success",
    );
    check(
        lookup,
        &with("found: 200", "found: []"),
        "/downstream/lookup/http/found: names no status",
    );
    check(
        lookup,
        &with("absent: 404", "absent: 200"),
        "/downstream/lookup/http/absent/0: 200 stands twice",
    );
    check(
        lookup,
        &with("absent: 404", "absent: [404, 404]"),
        "/downstream/lookup/http/absent/1: 404 stands",
    );
    for (status, why) in
        [(401, "tells of"), (403, "tells of"), (302, "is no"), (429, "asks to"), (503, "is no")]
    {
        let to = with("absent: 404", &format!("absent: {status}"));
        check(lookup, &to, &format!("/downstream/lookup/http/absent/0: {status} {why}"));
    }
    check(
        lookup,
        &with("absent: 404", "absent: 404, timeout: 0s"),
        "/downstream/lookup/http/timeout: must be",
    );
    check(
        lookup,
        &with("absent: 404", "absent: 404, body: {a: 1}"),
        "/downstream/lookup/http/body: GET and",
    );
    let secret = "absent: 404, headers: {X-A: Bearer abcdefghijklmnop}";
    check(
        lookup,
        &with("absent: 404", secret),
        "/downstream/lookup/http/headers/X-A: holds what looks",
    );
    check(&format!("    http: {lookup}\n"), "", "/downstream/lookup/http: is missing: only a tool");
    check(
        "    authoritative: true\n",
        "",
        "/downstream/lookup/absent: resend needs authoritative: true",
    );
}

#[test]
fn jobs_and_receipts_are_asked_with_only_where_they_are_known() {
    let check = |from: &str, to: &str, expected: &str| check(EVERYTHING, from, to, expected);
    let poll = "{method: GET, url: \"http://127.0.0.1:8099/jobs/{job}\"}";
    let with = |rest: &str| poll.replace("}\"}", &format!("}}\", {rest}}}"));
    check(
        poll,
        "{method: GET, url: \"http://h/jobs\"}",
        "/downstream/poll/http: does not say which job",
    );
    check(poll, &with("applied: []"), "/downstream/poll/http/applied: names no status");
    check(poll, &with("refused: [200]"), "/downstream/poll/http/refused/0: 200 stands twice");
    check(poll, &with("refused: [500]"), "/downstream/poll/http/refused/0: 500 is no answer");
    check(
        poll,
        &with("headers: {X: \"{receipt}\"}"),
        "/downstream/poll/http: {receipt} is known to",
    );
    check(&format!("http: {poll}, "), "", "/downstream/poll/http: is missing: only a tool");
    check("give_up: 1h}", "give_up: 4s}", "/downstream/poll/give_up: must be at least poll.every");
    let queue = "queues/{/queue_id}";
    check(queue, "queues/{receipt}", "/preconditions/http: {receipt} is known to");
    check(queue, "queues/{job}", "/preconditions/http: {job} is known to");
    check(
        "\"{/amount}\", factor",
        "\"{receipt}\", factor",
        "/downstream/http: {receipt} is known only",
    );
    let policy = |url: &str| format!("{{http: {{url: \"http://h/{url}\"}}}}");
    check("{grants: true}", &policy("{job}"), "/authorization/http: {job} is known to");
    check(
        "{grants: true}",
        &policy("{idempotency_key}"),
        "/authorization/http: {idempotency_key} is the",
    );
    check("{grants: true}", &policy("a?p={/priority}"), "/authorization/http: asks with /priority");
    check("[vip]", "[]", "/approval/when/~1queue_id: names no value");
    check("{/queue_id: [vip]}", "{/other: [vip]}", "/approval/when/~1other: /other is no place");
    check("pass: [200]", "pass: [503]", "/postcondition/pass/0: 503 is no answer");
    check("pass: [200]", "pass: [200], fail: []", "/postcondition/fail: names no status");
    check("pass: [200]", "pass: [200], fail: [200]", "/postcondition/fail/0: 200 stands twice");

    let (start, _) = TICKETS.split_once("downstream:").unwrap();
    let by_job = "downstream: {lookup: {http: {method: GET, url: 'http://h/{job}', found: 200, absent: 404, receipt: /id}}}\n";
    let lines = lines(&format!("{start}{by_job}"));
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].starts_with("/downstream/lookup/http: {job} can never be known"),
        "{lines:#?}"
    );
}

/// Nothing undoes a commit, and the effect is part of it.
#[test]
fn a_transactional_effect_has_no_postcondition() {
    let (start, _) = TICKETS.split_once("downstream:").unwrap();
    let local = changed(start, "key_based", "transactional");
    let asked = format!("{local}postcondition: {{http: {{method: GET, url: 'http://h/'}}}}\n");
    let lines = lines(&asked);
    assert!(
        lines.len() == 1 && lines[0].starts_with("/postcondition: a transactional"),
        "{lines:#?}"
    );
}
