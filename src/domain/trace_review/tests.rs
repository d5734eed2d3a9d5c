//! Traces as they are written, and as they must never be.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::domain::reason::Reason;
use crate::domain::records::{NOW, SECOND, operation, sent_operation};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn allowed(recoverability: Recoverability) -> Option<Allowed> {
    Some(Allowed { recoverability, proves_absence: false })
}

const BLIND: Recoverability = Recoverability::None;
const WINDOW: Recoverability = Recoverability::ResendWithin { window: DAY };

/// `event`, `event@token` or `event@token!detail`, a second apart.
fn trace(rows: &[&str]) -> Vec<Transition> {
    let one = |(at, text): (usize, &&str)| {
        let (head, detail) = text.split_once('!').map_or((*text, None), |(h, d)| (h, Some(d)));
        let (event, token) = head.split_once('@').unwrap_or((head, "0"));
        Transition {
            at: NOW.after(u32::try_from(at).unwrap() * SECOND),
            event: event.to_owned(),
            token: Token(token.parse().unwrap()),
            detail: detail.map(|text| serde_json::from_str(text).unwrap()),
        }
    };
    rows.iter().enumerate().map(one).collect()
}

fn applied(token: i64, attempts: u32) -> Operation {
    let effect_reference = Some("T-1".to_owned());
    let row = sent_operation(State::Applied, SECOND);
    Operation { effect_reference, attempts, token: Token(token), ..row }
}

fn ended(state: State, reason: Reason, token: i64, attempts: u32) -> Operation {
    let row = sent_operation(state, SECOND);
    Operation { reason: Some(reason), attempts, token: Token(token), ..row }
}

fn reds(record: &Operation, rows: &[&str], allowed: Option<Allowed>) -> Vec<Kind> {
    let reviewed = review(record, &trace(rows), allowed);
    let reds = reviewed.flags.into_iter().map(|flag| flag.kind).filter(|kind| kind.is_red());
    reds.collect()
}

fn good(record: &Operation, rows: &[&str], recoverability: Recoverability) {
    assert_eq!(reds(record, rows, allowed(recoverability)), [], "{rows:?}");
}

fn bad(record: &Operation, rows: &[&str], recoverability: Recoverability, kind: Kind) {
    let reds = reds(record, rows, allowed(recoverability));
    assert!(reds.contains(&kind), "{kind:?} in {reds:?}: {rows:?}");
}

const BEGIN: [&str; 2] = ["proposed", "validated"];

fn after(rows: &[&'static str]) -> Vec<&'static str> {
    [BEGIN.as_slice(), rows].concat()
}

const TIMED_OUT: &str = r#"retry_scheduled@1!{"why":"timed_out"}"#;
const NOT_NOW: &str = r#"retry_scheduled@1!{"why":"not_now"}"#;
const AGAIN: &str = r#"sent@2!{"again":true}"#;

#[test]
fn each_transition_is_marked_with_its_step() {
    let rows = after(&[
        "claimed@1",
        "sent@1",
        r#"committed@1!{"ambiguous":"timed_out"}"#,
        "reconciled@2",
        "committed@2",
        "settled@2",
        "acknowledged@1",
        "replayed@2",
        "in_flight@2",
    ]);
    let stages = review(&applied(2, 1), &trace(&rows), allowed(BLIND)).stages;
    let words: Vec<&str> = stages.iter().map(|s| s.map_or("-", Stage::as_str)).collect();
    assert_eq!(
        words,
        [
            "proposed",
            "validated",
            "claimed",
            "sent",
            "-",
            "reconciled",
            "committed",
            "committed",
            "acknowledged",
            "replayed",
            "-"
        ]
    );
}

#[test]
fn traces_of_honest_lives_raise_nothing() {
    let plain = ["claimed@1", "sent@1", "committed@2", "settled@2", "acknowledged@1"];
    good(&applied(2, 1), &after(&plain), BLIND);
    good(&applied(2, 1), &after(&plain), WINDOW);
    // From the SQL door the arguments are found valid at the first claim.
    let sql = ["proposed", "validated@1", "claimed@1", "sent@1", "committed@2", "settled@2"];
    good(&applied(2, 1), &sql, BLIND);
    let again = ["claimed@1", "sent@1", TIMED_OUT, "claimed@2", AGAIN, "committed@3", "settled@3"];
    good(&applied(3, 2), &after(&again), WINDOW);
    let refused_for_now =
        ["claimed@1", "sent@1", NOT_NOW, "claimed@2", "sent@2", "committed@3", "settled@3"];
    good(&applied(3, 1), &after(&refused_for_now), BLIND);
    let lost = [
        "claimed@1",
        r#"lease_lost@2!{"owner":"w","claim_epoch":1}"#,
        "claimed@2",
        "sent@2",
        "lease_lost@1",
        "committed@3",
        "settled@3",
    ];
    good(&applied(3, 1), &after(&lost), BLIND);
    let in_transaction = Operation { first_sent_at: None, attempts: 0, ..applied(1, 0) };
    good(&in_transaction, &after(&["claimed@1", "settled@1"]), Recoverability::Transactional);
    let open = ["claimed@1", "sent@1", r#"unknown@1!{"reason":"no_proof"}"#];
    good(&ended(State::Unknown, Reason::NoProof, 1, 1), &after(&open), BLIND);
    let by_hand = [open.as_slice(), &[r#"resolved@2!{"verb":"applied"}"#]].concat();
    good(&applied(2, 1), &after(&by_hand), BLIND);
    let queued = operation(State::Queued);
    good(&queued, &BEGIN, BLIND);
}

#[test]
fn applied_without_a_receipt_is_flagged() {
    let jump = after(&["claimed@1", "sent@1", "settled@1"]);
    bad(&applied(1, 1), &jump, WINDOW, Kind::NoReceipt);
    let bare = Operation { effect_reference: None, ..applied(2, 1) };
    bad(
        &bare,
        &after(&["claimed@1", "sent@1", "committed@2", "settled@2"]),
        WINDOW,
        Kind::NoReceipt,
    );
    bad(&applied(1, 0), &after(&["claimed@1", "settled@1"]), BLIND, Kind::NoReceipt);
}

#[test]
fn a_second_send_needs_proof_or_a_downstream_that_deduplicates() {
    let again =
        after(&["claimed@1", "sent@1", TIMED_OUT, "claimed@2", AGAIN, "committed@3", "settled@3"]);
    bad(&applied(3, 2), &again, BLIND, Kind::SecondSend);
    good(&applied(3, 2), &again, Recoverability::ResendAlways);
    // Not called a second one: the trace shows it all the same.
    let silent = after(&["claimed@1", "sent@1", TIMED_OUT, "claimed@2", "sent@2"]);
    bad(&ended(State::Sent, Reason::Ambiguous, 2, 2), &silent, BLIND, Kind::SecondSend);
    let killed = after(&[
        "claimed@1",
        "sent@1",
        r#"lease_lost@2!{"owner":"w","claim_epoch":1}"#,
        "claimed@2",
        AGAIN,
    ]);
    bad(&ended(State::Sent, Reason::WorkerLost, 2, 2), &killed, BLIND, Kind::SecondSend);
    // The second attempt did nothing; the first is as unproved as before.
    let first_open = after(&[
        "claimed@1",
        "sent@1",
        TIMED_OUT,
        "claimed@2",
        AGAIN,
        r#"retry_scheduled@2!{"why":"unreachable"}"#,
        "claimed@3",
        r#"sent@3!{"again":true}"#,
    ]);
    let reviewed =
        review(&ended(State::Sent, Reason::Ambiguous, 3, 2), &trace(&first_open), allowed(BLIND));
    let places: Vec<_> =
        reviewed.flags.iter().filter(|f| f.kind == Kind::SecondSend).map(|f| f.at).collect();
    assert_eq!(places, [Some(6), Some(9)]);
    let unread = review(&applied(3, 2), &trace(&again), None);
    assert!(unread.passes() && unread.flags.iter().any(|flag| flag.kind == Kind::ContractUnread));
}

#[test]
fn a_window_is_held_to() {
    let short = Recoverability::ResendWithin { window: 2 * SECOND };
    let again =
        after(&["claimed@1", "sent@1", TIMED_OUT, "claimed@2", AGAIN, "committed@3", "settled@3"]);
    bad(&applied(3, 2), &again, short, Kind::WindowPassed);
}

const LOOKS: &str = r#"claimed@2!{"to":"look_up"}"#;
const ABSENT: &str = r#"reconciled@2!{"found":"absent"}"#;
const FREED: &str = r#"retry_scheduled@2!{"why":"proved_absent"}"#;

#[test]
fn what_a_look_up_found_out_is_held_to() {
    let authoritative = Some(Allowed { recoverability: BLIND, proves_absence: true });
    let begins = ["claimed@1", "sent@1", r#"retry_scheduled@1!{"why":"look_up"}"#, LOOKS];
    let then = |more: &[&'static str]| after(&[begins.as_slice(), more].concat());
    let sent = ["claimed@3", "sent@3", "committed@4", "settled@4"];
    let freed = then(&[[ABSENT, FREED].as_slice(), sent.as_slice()].concat());
    assert_eq!(reds(&applied(4, 2), &freed, authoritative), []);
    assert_eq!(reds(&applied(4, 2), &freed, allowed(BLIND)), [Kind::SecondSend]);
    // Neither an answer that came too early nor none at all frees it.
    for why in ["absent_too_early", "absent_without_authority", "unreachable"] {
        let told = format!(r#"retry_scheduled@2!{{"why":"{why}"}}"#);
        let rows: Vec<&str> =
            then(&[]).into_iter().chain([told.as_str()]).chain(sent.iter().copied()).collect();
        assert_eq!(reds(&applied(4, 2), &rows, authoritative), [Kind::SecondSend], "{why}");
    }
    // Role maintain asks about an unknown one, and owns no claim.
    let open = ["claimed@1", "sent@1", r#"unknown@1!{"reason":"no_proof"}"#];
    let failed = r#"settled@2!{"status":"failed_permanent","reason":"proved_absent"}"#;
    let gone = Operation {
        first_sent_at: None,
        ..ended(State::FailedPermanent, Reason::ProvedAbsent, 2, 1)
    };
    let rows = after(&[open.as_slice(), &[ABSENT, failed]].concat());
    assert_eq!(reds(&gone, &rows, authoritative), []);
    let found = ["reconciled@2", "committed@2", "settled@2"];
    good(&applied(2, 1), &after(&[open.as_slice(), &found].concat()), BLIND);
    // Absent, and a person was to decide: still marked when it is sent again.
    let window = Some(Allowed { recoverability: WINDOW, proves_absence: true });
    let asked = then(&[
        ABSENT,
        r#"unknown@2!{"reason":"absent_needs_decision"}"#,
        r#"resolved@2!{"verb":"retry"}"#,
        "claimed@3",
        r#"sent@3!{"again":true}"#,
        "committed@4",
        "settled@4",
    ]);
    assert_eq!(reds(&applied(4, 2), &asked, window), []);
}

#[test]
fn jobs_approvals_and_policies_leave_traces_that_hold_together() {
    let job = ["claimed@1", "sent@1", r#"accepted@2!{"job":"J-1"}"#, "polled@2", "polled@2"];
    let done = [job.as_slice(), &["reconciled@3", "committed@3", "settled@3"]].concat();
    good(&applied(3, 1), &after(&done), BLIND);
    let stages = review(&applied(3, 1), &trace(&after(&done)), allowed(BLIND)).stages;
    assert_eq!(stages[5..8], [None, None, Some(Stage::Reconciled)], "to ask is no answer");
    let again = [job.as_slice(), &["claimed@3", "sent@3", "committed@4", "settled@4"]].concat();
    bad(&applied(4, 2), &after(&again), BLIND, Kind::SecondSend);

    let asked = r#"in_flight@1!{"reason":"awaiting_approval"}"#;
    let said = |verb: &str| format!(r#"resolved@1!{{"verb":"{verb}"}}"#);
    let yes = said("approve");
    let approved = ["proposed", "validated", asked, &yes, "claimed@2", "sent@2"];
    let approved = [approved.as_slice(), &["committed@3", "settled@3"]].concat();
    good(&applied(3, 1), &approved, BLIND);
    for (verb, reason) in
        [("deny", Reason::ApprovalDenied), ("withdraw", Reason::ApprovalWithdrawn)]
    {
        let record = Operation { first_sent_at: None, ..ended(State::Rejected, reason, 2, 0) };
        good(&record, &["proposed", "validated", asked, &said(verb)], BLIND);
        bad(&record, &["proposed", "validated", asked], BLIND, Kind::EventsMissing);
    }
    let held = r#"held@1!{"older_operation_id":"00000000-0000-0000-0000-000000000007"}"#;
    good(&operation(State::Held), &["proposed", "validated", held], BLIND);
    for why in ["policy_unreachable", "precondition_unreachable"] {
        let waits = format!(r#"retry_scheduled@1!{{"why":"{why}"}}"#);
        let rows = ["proposed", "validated", "claimed@1", "sent@1", &waits, "claimed@2", "sent@2"];
        let rows = [rows.as_slice(), &["committed@3", "settled@3"]].concat();
        good(&applied(3, 1), &rows, BLIND);
    }
}

#[test]
fn what_nobody_claimed_proposed_or_validated_is_flagged() {
    let end = ["committed@2", "settled@2"];
    let rows = |begin: &[&'static str]| [begin, end.as_slice()].concat();
    let record = applied(2, 1);
    bad(&record, &rows(&["claimed@1", "sent@1"]), WINDOW, Kind::NotProposed);
    bad(&record, &rows(&["proposed", "claimed@1", "sent@1"]), WINDOW, Kind::SentUnvalidated);
    bad(&record, &rows(&["proposed", "validated", "sent@1"]), WINDOW, Kind::SentUnclaimed);
    bad(
        &record,
        &after(&["claimed@1", "sent@2", "committed@2", "settled@2"]),
        WINDOW,
        Kind::SentUnclaimed,
    );
    bad(
        &applied(3, 1),
        &after(&["claimed@1", "claimed@2", "sent@2", "committed@3", "settled@3"]),
        WINDOW,
        Kind::TwoOwners,
    );
    let back = after(&["claimed@2", NOT_NOW, "claimed@1", "sent@1", "committed@3", "settled@3"]);
    bad(&applied(3, 1), &back, WINDOW, Kind::TokenBack);
    bad(
        &applied(1, 1),
        &after(&["claimed@1", "sent@1", "committed@2", "settled@2"]),
        WINDOW,
        Kind::TokenBack,
    );
    let marked = after(&["claimed@1", "sent@1", "settled@1"]);
    bad(&applied(1, 1), &marked, Recoverability::Transactional, Kind::SentInTransaction);
}

#[test]
fn what_the_record_says_and_the_trace_does_not_is_flagged() {
    bad(&applied(2, 1), &BEGIN, WINDOW, Kind::EventsMissing);
    bad(&applied(2, 1), &[], WINDOW, Kind::EventsMissing);
    bad(
        &applied(3, 2),
        &after(&["claimed@1", "sent@1", "committed@2", "settled@2"]),
        WINDOW,
        Kind::EventsMissing,
    );
    bad(&operation(State::Claimed), &BEGIN, BLIND, Kind::EventsMissing);
    bad(
        &ended(State::Unknown, Reason::NoProof, 1, 1),
        &after(&["claimed@1", "sent@1"]),
        BLIND,
        Kind::EventsMissing,
    );
    bad(
        &applied(2, 0),
        &after(&["claimed@1", "committed@2", "settled@2"]),
        BLIND,
        Kind::EventsMissing,
    );
    bad(
        &applied(2, 1),
        &after(&["claimed@1", r#"sent@1!{"again":true}"#, "committed@2", "settled@2"]),
        WINDOW,
        Kind::EventsMissing,
    );
    bad(
        &applied(2, 1),
        &after(&["claimed@1", "sent@1", "committed@2", "settled@2", r#"refused@2!{"why":"x"}"#]),
        WINDOW,
        Kind::RefusedMove,
    );
}

#[test]
fn applied_stays_applied_with_one_receipt() {
    let done = after(&["claimed@1", "sent@1", "committed@2", "settled@2"]);
    let then = |more: &[&'static str]| [done.as_slice(), more].concat();
    bad(&applied(3, 1), &then(&["claimed@3"]), WINDOW, Kind::AppliedUndone);
    bad(
        &applied(3, 1),
        &then(&[r#"rejected@3!{"reason":"not_authorized"}"#]),
        WINDOW,
        Kind::AppliedUndone,
    );
    bad(&ended(State::Unknown, Reason::NoProof, 2, 1), &done, WINDOW, Kind::AppliedUndone);
    bad(&applied(2, 1), &then(&[r#"conflict@2!{"receipt":"T-2"}"#]), WINDOW, Kind::TwoReceipts);
    good(
        &applied(2, 1),
        &then(&["replayed@2", "in_flight@2", "acknowledged@1", "lease_lost@1"]),
        WINDOW,
    );
    // A person has weighed the two.
    let weighed = after(&[
        "claimed@1",
        "sent@1",
        r#"settled@1!{"status":"failed_permanent","reason":"refused"}"#,
        r#"conflict@2!{"receipt":"T-1"}"#,
        r#"resolved@3!{"verb":"applied"}"#,
    ]);
    good(&applied(3, 1), &weighed, BLIND);
    let open = &weighed[..weighed.len() - 1];
    bad(&ended(State::Unknown, Reason::Conflict, 2, 1), open, BLIND, Kind::TwoReceipts);
}

#[test]
fn rejected_means_that_nothing_was_sent() {
    let late = after(&[
        "claimed@1",
        "sent@1",
        TIMED_OUT,
        "claimed@2",
        r#"rejected@2!{"reason":"not_authorized"}"#,
    ]);
    bad(
        &ended(State::Rejected, Reason::NotAuthorized, 2, 1),
        &late,
        WINDOW,
        Kind::RejectedAfterSend,
    );
    // A mark that rode in the claim, and a request that could not be built.
    let unbuilt = after(&["claimed@1", "sent@1", r#"rejected@1!{"reason":"invalid_arguments"}"#]);
    let record =
        Operation { first_sent_at: None, ..ended(State::Rejected, Reason::InvalidArguments, 1, 0) };
    good(&record, &unbuilt, WINDOW);
}

#[test]
fn notes_fail_nothing() {
    let done = after(&["claimed@1", "sent@1", "committed@2", "settled@2", "polka@2"]);
    let dropped = Operation { response_dropped: true, ..applied(2, 1) };
    let reviewed = review(&dropped, &trace(&done), allowed(WINDOW));
    let kinds: Vec<Kind> = reviewed.flags.iter().map(|flag| flag.kind).collect();
    assert_eq!(kinds, [Kind::UnknownEvent, Kind::ResponseDropped, Kind::NotAcknowledged]);
    assert!(reviewed.passes());
}

#[test]
fn ids_are_told_once() {
    let ids: std::collections::BTreeSet<&str> =
        Kind::ALL.iter().map(|kind| kind.told().0).collect();
    assert_eq!(ids.len(), Kind::ALL.len());
    assert_eq!(json!(ids).as_array().unwrap().len(), 18);
}
