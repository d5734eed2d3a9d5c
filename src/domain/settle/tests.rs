#![allow(clippy::wildcard_enum_match_arm, reason = "an expectation names the few that differ")]

mod evidence;
mod unproved;
mod walk;

use super::*;
use crate::domain::attempt::{Ambiguity, Job, Response, Unconfirmed};
use crate::domain::attempt::{Denial, Receipt};
use crate::domain::operation::ProviderJob;
use crate::domain::operation::Token;
use crate::domain::records::{
    HOUR, MINUTE, NOW, RESENDS, SECOND, ago, effect, in_order, operation, rule, sent_operation,
};
use std::time::Duration;

fn every_learned() -> Vec<Learned> {
    let not_sent = [
        NotSent::Unreachable,
        NotSent::LeaseTooShort,
        NotSent::ClaimLost,
        NotSent::Unbuildable,
        NotSent::SecretMissing,
        NotSent::Draining,
        NotSent::Forbidden(Denial::NotAuthorized),
        NotSent::Forbidden(Denial::PreconditionFailed),
        NotSent::PolicyUnreachable,
        NotSent::PreconditionUnreachable,
        NotSent::Tool,
    ];
    let ambiguous = [
        Ambiguity::TimedOut,
        Ambiguity::Broken,
        Ambiguity::Unreadable,
        Ambiguity::Redirect,
        Ambiguity::UnlistedStatus,
        Ambiguity::NoReceipt,
        Ambiguity::NoJob,
        Ambiguity::Panicked,
        Ambiguity::WorkerLost,
        Ambiguity::Tool,
    ];
    let mut all = vec![
        Learned::NotNow { retry_after: None },
        Learned::NotNow { retry_after: Some(HOUR) },
        Learned::Denied,
        Learned::Refused,
        Learned::Applied(effect("T-1")),
        Learned::Already(effect("T-1")),
        Learned::Panicked,
    ];
    all.extend(not_sent.map(Learned::NotSent));
    all.extend(ambiguous.map(Learned::Ambiguous));
    all
}

/// A record and the ticket of whoever settles it.
struct Case {
    row: Operation,
    ticket: Ticket,
    owner: bool,
}

/// Every state, marked or not by this attempt, with and without an unproved attempt before, by the
/// owner and by a stranger.
fn every_case() -> Vec<Case> {
    let mut cases = Vec::new();
    for state in State::ALL {
        for prior in [None, Some(ago(HOUR))] {
            for owner in [true, false] {
                for attempts in [1, 3, 4] {
                    let marked = state == State::Sent;
                    let first_sent_at = prior.or(Some(ago(SECOND)).filter(|_| marked));
                    let row = Operation {
                        attempts,
                        first_sent_at,
                        key_first_used_at: first_sent_at,
                        lost_claims: 2,
                        token: Token(5),
                        effect_reference: (state == State::Applied).then(|| "T-0".to_owned()),
                        ..in_order(operation(state))
                    };
                    let token = if owner { Token(5) } else { Token(4) };
                    let ticket = Ticket { token, prior_first_sent_at: prior, marked, at: NOW };
                    cases.push(Case { row, ticket, owner });
                }
            }
        }
    }
    cases
}

fn settle(row: &Operation, ticket: &Ticket, learned: &Learned, resend: Resend) -> Settle {
    decide(row, ticket, learned, NOW, &rule(resend), 0.5)
}

fn written(settle: Settle) -> Step {
    match settle {
        Settle::Write(step) => *step,
        other => panic!("nothing to write: {other:?}"),
    }
}

#[test]
fn no_result_breaks_a_promise_on_any_record() {
    for Case { row, ticket, owner } in every_case() {
        for learned in every_learned() {
            for resend in RESENDS {
                let proves = resend != Resend::InTransaction
                    && match &learned {
                        Learned::Applied(_) => true,
                        Learned::Already(_) => ticket.is_resend(),
                        _ => false,
                    };
                let claim = matches!(row.state, State::Claimed | State::Sent);
                let seen = format!("{learned:?} {resend:?} {ticket:?} {row:?}");
                match settle(&row, &ticket, &learned, resend) {
                    Settle::LostLease => assert!(!(proves || owner), "{seen}"),
                    // No receipt is equal here: settled before, under this very token.
                    Settle::Acknowledged => assert!(!proves && owner && !claim, "{seen}"),
                    Settle::Write(step) if proves => hold_proof(&row, &step, &seen),
                    Settle::Write(step) => {
                        assert!(owner && claim, "a stranger changed it without proof: {seen}");
                        hold_settled(&row, &ticket, &learned, &step, resend, &seen);
                    }
                }
            }
        }
    }
}

fn hold_proof(row: &Operation, step: &Step, seen: &str) {
    let record = &step.record;
    assert_eq!(step.read_token, row.token);
    match row.state {
        State::Applied => {
            assert_eq!(record.state, State::Applied, "{seen}");
            assert_eq!(record.effect_reference, row.effect_reference, "{seen}");
            assert_eq!(record.reason, Some(Reason::Conflict), "{seen}");
        }
        State::Rejected | State::FailedPermanent | State::Expired => {
            assert_eq!((record.state, record.reason), (State::Unknown, Some(Reason::Conflict)));
            assert_eq!(record.token, row.token.next(), "{seen}");
            assert!(!step.frees_order, "{seen}");
        }
        _ => {
            assert_eq!((record.state, record.reason), (State::Applied, None), "{seen}");
            assert_eq!(record.effect_reference.as_deref(), Some("T-1"), "{seen}");
            assert_eq!(record.token, row.token.next(), "{seen}");
            assert!(
                record.lease.is_none() && step.frees_order && record.lost_claims == 0,
                "{seen}"
            );
        }
    }
}

fn hold_settled(
    row: &Operation,
    ticket: &Ticket,
    learned: &Learned,
    step: &Step,
    resend: Resend,
    seen: &str,
) {
    let record = &step.record;
    let transactional = resend == Resend::InTransaction;
    let nothing_done =
        matches!(learned, Learned::NotSent(_) | Learned::NotNow { .. } | Learned::Denied);
    let panicked = matches!(learned, Learned::Panicked | Learned::Ambiguous(Ambiguity::Panicked));
    assert_ne!(record.state, State::Applied, "applied without an effect: {seen}");
    assert!(!step.trace.iter().any(|row| row.event == "refused"), "{seen}");
    assert_eq!((record.lease.clone(), step.read_token), (None, row.token), "{seen}");
    assert_eq!(record.lost_claims, if panicked { 3 } else { 0 }, "{seen}");
    assert_eq!(record.key_first_used_at, row.key_first_used_at, "never cleared: {seen}");
    assert_eq!(step.publish_at.is_some(), record.state == State::RetryScheduled, "{seen}");
    assert_eq!(step.frees_order, record.state.is_finished(), "{seen}");

    let no_effect = matches!(record.state, State::Rejected | State::FailedPermanent);
    assert!(!(no_effect && ticket.is_resend()), "an unproved attempt was called none: {seen}");
    // The mark goes only with proof that no attempt so far had an effect.
    let proof = nothing_done || transactional;
    if ticket.is_resend() {
        assert_eq!(record.first_sent_at, ticket.prior_first_sent_at, "{seen}");
    } else if proof || matches!(learned, Learned::Refused | Learned::Panicked) {
        assert_eq!(record.first_sent_at, None, "{seen}");
    } else {
        assert_eq!(record.first_sent_at, row.first_sent_at.or(Some(NOW)), "{seen}");
    }
    let marked = u32::from(row.state == State::Sent);
    let takes_back = nothing_done
        || *learned == Learned::Panicked
        || (transactional && *learned != Learned::Refused);
    let attempts = if takes_back { row.attempts - marked } else { row.attempts };
    assert_eq!(record.attempts, attempts, "{seen}");
    // What may exist and cannot be sent again is never scheduled.
    if record.state == State::RetryScheduled && record.first_sent_at.is_some() && !takes_back {
        assert!(matches!(resend, Resend::Always | Resend::Within(_)), "{seen}");
    }
}

/// State, reason and wait in seconds after the owner's settle of a first and of a second send.
#[test]
fn what_the_owner_learned_decides() {
    let check = |learned: Learned, resend, expected: [&str; 2]| {
        let first = operation(State::Sent);
        let first = Operation { attempts: 1, ..first };
        let first = Operation { first_sent_at: Some(ago(SECOND)), ..first };
        let first = Operation { key_first_used_at: Some(ago(SECOND)), ..first };
        let again = Operation { attempts: 2, ..sent_operation(State::Sent, HOUR) };
        let seen = [(first, None), (again, Some(ago(HOUR)))].map(|(row, prior_first_sent_at)| {
            let ticket = Ticket { token: row.token, prior_first_sent_at, marked: true, at: NOW };
            let step = written(settle(&row, &ticket, &learned, resend));
            let reason = step.record.reason.map_or("-", Reason::code);
            let wait = step.publish_at.map(|at| format!(" in {}", at.since(NOW).as_secs()));
            format!("{:?} {reason}{}", step.record.state, wait.unwrap_or_default())
        });
        assert_eq!(seen, expected, "{learned:?} {resend:?}");
    };
    let [always, within, never, transactional] = RESENDS;
    let (applied, already) = (Learned::Applied(effect("T-1")), Learned::Already(effect("T-1")));
    let lost = Learned::Ambiguous(Ambiguity::TimedOut);
    for resend in [always, within, never] {
        check(applied.clone(), resend, ["Applied -", "Applied -"]);
        check(already.clone(), resend, ["Unknown no_proof", "Applied -"]);
        check(
            Learned::Refused,
            resend,
            ["FailedPermanent refused", "Unknown refused_after_unproved"],
        );
        check(
            Learned::NotSent(NotSent::Unbuildable),
            resend,
            ["Rejected invalid_arguments", "Unknown invalid_arguments"],
        );
        let later = "RetryScheduled not_sent in 1";
        check(Learned::NotSent(NotSent::Unreachable), resend, [later, later]);
        let at_once = "RetryScheduled not_sent in 0";
        check(Learned::NotSent(NotSent::Draining), resend, [at_once, at_once]);
        let asked = "RetryScheduled not_now in 90";
        check(Learned::NotNow { retry_after: Some(90 * SECOND) }, resend, [asked, asked]);
        let denied = "RetryScheduled downstream_denied in 1";
        check(Learned::Denied, resend, [denied, denied]);
    }
    for resend in [always, within] {
        let again = ["RetryScheduled ambiguous in 1", "RetryScheduled ambiguous in 2"];
        check(lost.clone(), resend, again);
    }
    check(lost.clone(), never, ["Unknown no_proof", "Unknown no_proof"]);
    let rolled_back = "RetryScheduled not_sent in 1";
    check(lost, transactional, [rolled_back, rolled_back]);
    check(applied, transactional, [rolled_back, rolled_back]);
}

#[test]
fn attempts_and_window_end_a_second_send() {
    let check = |row: Operation, resend, expected| {
        let ticket = Ticket {
            token: row.token,
            prior_first_sent_at: row.first_sent_at,
            marked: true,
            at: NOW,
        };
        let step = written(settle(&row, &ticket, &Learned::Ambiguous(Ambiguity::Broken), resend));
        assert_eq!((step.record.state, step.record.reason), expected);
        step
    };
    let sent = |by| sent_operation(State::Sent, by);
    let scheduled = (State::RetryScheduled, Some(Reason::Ambiguous));
    let step = check(Operation { attempts: 3, deferrals: 7, ..sent(HOUR) }, RESENDS[1], scheduled);
    assert_eq!(step.record.deferrals, 0);
    let exhausted = (State::Unknown, Some(Reason::AttemptsExhausted));
    check(Operation { attempts: 4, ..sent(HOUR) }, RESENDS[1], exhausted);
    check(Operation { attempts: 4, ..sent(HOUR) }, Resend::Always, exhausted);
    // The next attempt, one second from now, must find the window open.
    let last = 24 * HOUR - 15 * SECOND;
    check(sent(last - 2 * SECOND), RESENDS[1], scheduled);
    let closed = (State::Unknown, Some(Reason::WindowClosed));
    check(sent(last - SECOND), RESENDS[1], closed);
}

#[test]
fn a_tool_that_panics_again_and_again_is_parked() {
    let check = |learned: Learned, resend, lost_claims, expected| {
        let row = Operation { lost_claims, ..sent_operation(State::Sent, MINUTE) };
        let ticket = Ticket { token: row.token, prior_first_sent_at: None, marked: true, at: NOW };
        let step = written(settle(&row, &ticket, &learned, resend));
        assert_eq!((step.record.state, step.record.reason), expected);
        assert_eq!(step.record.lost_claims, lost_claims + 1);
        step
    };
    let before = Learned::Panicked;
    let after = Learned::Ambiguous(Ambiguity::Panicked);
    let parked = (State::Parked, Some(Reason::ToolPanicked));
    let again = (State::RetryScheduled, Some(Reason::ToolPanicked));
    let unproved = (State::RetryScheduled, Some(Reason::Ambiguous));
    let unknown = (State::Unknown, Some(Reason::NoProof));
    for resend in RESENDS {
        check(before.clone(), resend, 3, again);
        let step = check(before.clone(), resend, 4, parked);
        assert!(!step.record.may_have_been_sent());
    }
    check(after.clone(), RESENDS[1], 0, unproved);
    check(after.clone(), RESENDS[1], 3, unproved);
    let step = check(after.clone(), RESENDS[1], 4, parked);
    assert!(step.record.may_have_been_sent());
    check(after.clone(), Resend::Never, 0, unknown);
    check(after.clone(), Resend::InTransaction, 0, again);
    check(after, Resend::InTransaction, 4, parked);
}

#[test]
fn what_never_gets_through_is_given_up() {
    let check = |opened_before, deferrals, prior, retry_after, expected: Option<State>| {
        let row = Operation {
            opened_at: ago(opened_before),
            deferrals,
            ..sent_operation(State::Sent, HOUR)
        };
        let ticket = Ticket { token: row.token, prior_first_sent_at: prior, marked: true, at: NOW };
        let step = written(settle(&row, &ticket, &Learned::NotNow { retry_after }, Resend::Always));
        assert_eq!(step.record.state, expected.unwrap_or(State::RetryScheduled));
        if expected.is_some() {
            assert_eq!(step.record.reason, Some(Reason::AttemptsExhausted));
        }
        step
    };
    let gone = Some(State::FailedPermanent);
    // Three days of five minutes are 864 waits.
    check(71 * HOUR, 900, None, None, None);
    check(72 * HOUR, 900, None, None, gone);
    check(72 * HOUR, 900, Some(ago(HOUR)), None, Some(State::Unknown));
    // It came late to its first try, and has its three days all the same.
    check(500 * HOUR, 0, None, None, None);
    check(500 * HOUR, 800, None, None, None);
    check(500 * HOUR, 80, None, Some(HOUR), gone);
    // A downstream cannot ask for more time than there is.
    let step = check(HOUR, 0, None, Some(Duration::MAX), None);
    assert_eq!(step.publish_at, Some(NOW.after(72 * HOUR)));
}

#[test]
fn the_same_receipt_is_acknowledged_and_another_is_a_visible_conflict() {
    let stranger = Ticket { token: Token(0), prior_first_sent_at: None, marked: true, at: NOW };
    let prove = |row: &Operation, receipt: &str| {
        settle(row, &stranger, &Learned::Applied(effect(receipt)), Resend::Never)
    };
    let traced = |step: &Step| {
        let row = step.trace.iter().find(|row| row.event == "conflict").unwrap();
        row.detail.as_ref().unwrap()["receipt"].clone()
    };
    let has = |state, receipt: &str| Operation {
        effect_reference: Some(receipt.to_owned()),
        ..sent_operation(state, HOUR)
    };
    for state in [State::Applied, State::Expired, State::FailedPermanent] {
        assert!(matches!(prove(&has(state, "T-1"), "T-1"), Settle::Acknowledged), "{state:?}");
        let step = written(prove(&has(state, "T-1"), "T-2"));
        assert_eq!(step.record.effect_reference.as_deref(), Some("T-1"));
        assert_eq!((traced(&step), step.record.reason), (json!("T-2"), Some(Reason::Conflict)));
    }
    // A verdict and a receipt: unknown. The same receipt again, as from a settle that is repeated
    // because its commit was not answered, does not turn the conflict into an effect.
    let failed = sent_operation(State::FailedPermanent, HOUR);
    let step = written(prove(&failed, "T-1"));
    assert_eq!(step.record.state, State::Unknown);
    assert_eq!(step.record.effect_reference.as_deref(), Some("T-1"));
    assert_eq!(traced(&step), json!("T-1"));
    assert!(matches!(prove(&step.record, "T-1"), Settle::Acknowledged));
    let other = written(prove(&step.record, "T-2"));
    assert_eq!((other.record.state, traced(&other)), (State::Unknown, json!("T-2")));
    // An unknown for any other reason is settled by its receipt.
    let unknown =
        Operation { reason: Some(Reason::NoProof), ..sent_operation(State::Unknown, HOUR) };
    let step = written(prove(&unknown, "T-1"));
    assert_eq!((step.record.state, step.record.reason), (State::Applied, None));
    assert_eq!(step.trace[0].event, "reconciled");
}

#[test]
fn the_response_is_kept_dropped_or_absent() {
    let applied = |response| {
        let row = sent_operation(State::Sent, SECOND);
        let ticket = Ticket { token: row.token, prior_first_sent_at: None, marked: true, at: NOW };
        let effect = Effect { receipt: Receipt::new("T-1").unwrap(), response };
        let record =
            written(settle(&row, &ticket, &Learned::Applied(effect), Resend::Never)).record;
        (record.response, record.response_dropped)
    };
    assert_eq!(applied(Response::Kept("[1.0]".to_owned())), (Some("[1.0]".to_owned()), false));
    assert_eq!(applied(Response::Dropped), (None, true));
    assert_eq!(applied(Response::None), (None, false));
}

/// Effect and record commit together, or not at all.
#[test]
fn a_transactional_effect_commits_under_its_claim_only() {
    let row = operation(State::Claimed);
    let ticket = Ticket { token: row.token, prior_first_sent_at: None, marked: false, at: NOW };
    let step = commit(&row, &ticket, &effect("T-1"), NOW).unwrap();
    assert_eq!((step.record.state, step.record.lease.clone()), (State::Applied, None));
    assert_eq!(step.record.effect_reference.as_deref(), Some("T-1"));

    let stale = Ticket { token: Token(0), ..ticket };
    assert!(commit(&row, &stale, &effect("T-1"), NOW).is_none());
    assert!(commit(&row, &ticket, &effect("T-1"), NOW.after(HOUR)).is_none());
    for state in State::ALL {
        let lease = row.lease.clone();
        let row = Operation { lease, ..operation(state) };
        let commits = commit(&row, &ticket, &effect("T-1"), NOW).is_some();
        assert_eq!(commits, state == State::Claimed, "{state:?}");
    }
}

#[test]
fn what_cannot_be_written_is_unknown_and_undoes_nothing() {
    for state in State::ALL {
        let attempts_over_at = Some(ago(MINUTE));
        let row = Operation { attempts_over_at, ..sent_operation(state, MINUTE) };
        let record = unstorable(&row, None).record;
        // This attempt's end is not known: an earlier one's would let an absence prove too much.
        assert_eq!(record.attempts_over_at, None);
        // Held or unapproved, yet marked as sent: a restore said so.
        let open = state.is_pending();
        assert_eq!(record.state, if open { State::Unknown } else { state });
        assert!(!open || record.reason == Some(Reason::StoreFailed));
        assert_eq!(record.first_sent_at, row.first_sent_at);
    }
}
