//! The review worksheet of whole contract files.

use crate::domain::contract::{Coverage, Mark, Question, Verdict, Why, Worksheet};

use super::*;

/// The article's artifact, filled in.
const REVIEWED: &str = include_str!("../../../contracts/reviewed/tickets.create.yaml");

/// What makes every mail wait for a person.
const APPROVAL: &str = "approval: {wait: 72h, expires: 24h}\n";

fn sheet(text: &str) -> Worksheet {
    contract(text).worksheet(DEFAULT_MARGIN)
}

fn mark(sheet: &Worksheet, question: Question) -> Mark {
    sheet.rows.iter().find(|row| row.question == question).unwrap().mark
}

/// One change, and the row and place in which something of that kind must then stand, and did not
/// before.
fn check(base: &str, from: &str, to: &str, question: Question, place: &str, weight: Severity) {
    let stands = |text: &str| {
        let sheet = sheet(text);
        let row = sheet.rows.into_iter().find(|row| row.question == question).unwrap();
        row.findings
            .into_iter()
            .any(|finding| finding.pointer.to_string() == place && finding.severity == weight)
    };
    assert!(!stands(base), "{place} before {to:?}");
    assert!(stands(&changed(base, from, to)), "{place} after {to:?}");
}

#[test]
fn each_question_is_answered_with_evidence() {
    for text in [TICKETS, MAIL, EVERYTHING, REVIEWED] {
        let sheet = sheet(text);
        let asked: Vec<Question> = sheet.rows.iter().map(|row| row.question).collect();
        assert_eq!(asked, Question::ALL);
        for row in &sheet.rows {
            assert!(!row.evidence.is_empty(), "{:?}", row.question);
            let worst = row.findings.first().map_or(Mark::Ok, |f| Mark::of_severity(f.severity));
            assert_eq!(row.mark, worst, "{:?}", row.question);
        }
    }
}

#[test]
fn no_finding_of_the_review_is_lost() {
    for text in [TICKETS, MAIL, EVERYTHING] {
        let contract = contract(text);
        let listed = contract.worksheet(DEFAULT_MARGIN);
        let listed: Vec<_> = listed.findings().into_iter().map(|(_, f)| f.clone()).collect();
        for finding in contract.review(DEFAULT_MARGIN) {
            assert!(finding.pointer.is_root() || listed.contains(&finding), "{finding:?}");
        }
        assert!(listed.is_sorted_by_key(|finding| finding.severity));
    }
}

#[test]
fn the_examples_are_judged_by_what_a_lost_answer_leads_to() {
    let tickets = sheet(TICKETS);
    assert_eq!(tickets.judgement.verdict, Verdict::Automate);
    assert_eq!(tickets.judgement.reasons, [Why::Deduplicates]);
    assert!(tickets.passes());
    let mail = sheet(&changed(MAIL, APPROVAL, ""));
    assert_eq!(mail.judgement.verdict, Verdict::Manual);
    assert_eq!(mail.judgement.reasons, [Why::NothingFindsOut, Why::CannotBeUndone]);
    assert!(mail.judgement.is_unserved() && !mail.passes());
    assert_eq!(mail.count(Severity::Error), 1);
    let asked = sheet(MAIL);
    assert!(asked.passes(), "{:#?}", asked.findings());
    let asked = asked.judgement;
    assert_eq!((asked.verdict, asked.approval), (Verdict::Manual, Coverage::Every));
    let window = "  idempotency: {window: 24h}\n";
    let blind = sheet(&changed(TICKETS, window, "")).judgement;
    assert_eq!(blind.verdict, Verdict::WithApproval);
    let (rust, _) = TICKETS.split_once("downstream:").unwrap();
    let rust = sheet(rust);
    assert_eq!(rust.judgement.verdict, Verdict::Manual, "blind, and nobody reconciles");
    assert!(rust.passes(), "which is advice");
}

#[test]
fn the_three_questions_are_answered_for_this_contract() {
    let codes = |text: &str| sheet(text).answers.map(|answer| answer.code);
    assert_eq!(codes(TICKETS), ["yes", "by_repetition", "sent_again"]);
    assert_eq!(codes(MAIL), ["yes", "no", "unknown"]);
    let (start, _) = TICKETS.split_once("downstream:").unwrap();
    let transactional = changed(start, "key_based", "transactional");
    assert_eq!(codes(&transactional), ["yes", "yes", "one_commit"]);
    let read = changed(start, "key_based", "read");
    assert_eq!(codes(&read), ["yes", "not_needed", "sent_again"]);
    let window = "  idempotency: {window: 24h}\n";
    let looked_up = changed(EVERYTHING, window, "");
    assert_eq!(codes(&looked_up), ["yes", "yes", "looked_up"]);
}

#[test]
fn the_article_s_artifact_passes() {
    let contract = contract(REVIEWED);
    assert_eq!(contract.tool.as_str(), "tickets.create");
    assert_ne!(contract.version, super::contract(TICKETS).version);
    let sheet = contract.worksheet(DEFAULT_MARGIN);
    assert_eq!(sheet.judgement.verdict, Verdict::WithApproval);
    assert_eq!(sheet.judgement.reasons, [Why::Deduplicates, Why::ContractAsks]);
    assert!(sheet.judgement.approval_suffices());
    assert_eq!(contract.problems(DEFAULT_MARGIN), []);
    assert!(sheet.passes());
    assert_eq!(sheet.count(Severity::Error), 0);
    assert_eq!(sheet.count(Severity::RedFlag), 0, "{:#?}", sheet.findings());
}

#[test]
fn gaps_that_are_no_fault_of_a_section_are_told() {
    use Question as Q;
    let authorization = "authorization: {grants: true}\n";
    check(REVIEWED, authorization, "", Q::Permission, "/authorization", Severity::RedFlag);
    check(
        REVIEWED,
        "created_by: the workflow, when it enters the step \"record issue\"",
        "created_by: the model's tool call id",
        Q::Identity,
        "/operation_key/created_by",
        Severity::RedFlag,
    );
    check(
        REVIEWED,
        "    body:\n      description: The issue",
        "    mood: {type: string}\n    body:\n      description: The issue",
        Q::Sameness,
        "/fingerprint/fields",
        Severity::Note,
    );
    check(
        REVIEWED,
        "retention: {result: 30d,",
        "retention: {result: 100h,",
        Q::Expiry,
        "/retention/result",
        Severity::RedFlag,
    );
    check(
        REVIEWED,
        "retention: {result: 30d,",
        "retention: {result: 30d, tombstone: 100h,",
        Q::Expiry,
        "/retention/tombstone",
        Severity::RedFlag,
    );
    check(
        REVIEWED,
        "retention: {result: 30d,",
        "retention: {result: 30d, tombstone: 365d,",
        Q::Expiry,
        "/retention/tombstone",
        Severity::Note,
    );
    check(
        &changed(REVIEWED, "absent: resend", "absent: operator"),
        "authoritative: true",
        "authoritative: false",
        Q::Unknown,
        "/downstream/lookup/authoritative",
        Severity::Note,
    );
    check(
        REVIEWED,
        "visible_after: 5s",
        "visible_after: 0s",
        Q::Unknown,
        "/downstream/lookup/visible_after",
        Severity::Note,
    );
    check(
        REVIEWED,
        ", respond_within: 4h",
        "",
        Q::Unknown,
        "/owner/respond_within",
        Severity::Note,
    );
    check(
        REVIEWED,
        "    response: [/ticket_id, /status]\n",
        "",
        Q::Replay,
        "/downstream/http/response",
        Severity::Note,
    );
    check(TICKETS, "key_based", "irreversible", Q::Permission, "/approval", Severity::Note);
    check(MAIL, APPROVAL, "", Q::Permission, "/approval", Severity::Error);
    let window = "  idempotency: {window: 24h}\n";
    check(TICKETS, window, "", Q::Permission, "/approval", Severity::RedFlag);
    assert_eq!(mark(&sheet(REVIEWED), Q::Replay), Mark::Ok);
}
