#![allow(clippy::wildcard_enum_match_arm, reason = "an expectation names the few that differ")]

mod guards;
mod questions;

use super::*;
use crate::domain::attempt::Denial;
use crate::domain::permission::Permission;
use crate::domain::records::{
    self, HOUR, MINUTE, NOW, RESENDS, SECOND, ago, ahead, downstream_key, in_order, lease_until,
    material, operation, other_material, rule, sent_operation,
};
use std::time::Duration;
use uuid::Uuid;

fn claimed_by(row: &Operation, resend: Resend, alone: bool) -> Claim {
    decide_with(row, Recomputed::Valid(&material()), Predecessor::Finished, resend, alone)
}

fn decide_with(
    row: &Operation,
    recomputed: Recomputed<'_>,
    predecessor: Predecessor,
    resend: Resend,
    alone: bool,
) -> Claim {
    let claimant =
        Claimant { owner: "worker-2", alone, downstream_key: &|| downstream_key("fresh") };
    let around = Around { predecessor, ..records::alone() };
    decide(row, recomputed, &around, NOW, &rule(resend), &claimant)
}

/// What a claim came to, short enough for a table.
fn word(claim: &Claim) -> String {
    match claim {
        Claim::Run(run) => format!("run {:?}", run.step.record.state),
        Claim::Write(step) => {
            let reason = step.record.reason.map_or("-", Reason::code);
            format!("{:?} {reason}", step.record.state)
        }
        Claim::Leave(leave) => format!("leave {leave:?}"),
        Claim::Alone => "alone".to_owned(),
    }
}

fn run_of(claim: Claim) -> Run {
    match claim {
        Claim::Run(run) => *run,
        other => panic!("no run: {other:?}"),
    }
}

fn step_of(claim: Claim) -> Step {
    match claim {
        Claim::Write(step) => *step,
        other => panic!("nothing to write: {other:?}"),
    }
}

fn marked(marking: Marking) -> Option<Step> {
    match marking {
        Marking::Write(step) => Some(*step),
        Marking::Lost | Marking::Forbidden(_) => None,
    }
}

fn events(step: &Step) -> Vec<&'static str> {
    step.trace.iter().map(|row| row.event).collect()
}

fn expired(row: Operation) -> Operation {
    Operation { lease: lease_until(ago(SECOND)), ..row }
}

/// Whoever goes into one of the others gives up the lease.
fn may_be_leased(state: State) -> bool {
    !matches!(state, State::Held | State::AwaitingApproval | State::Accepted)
}

/// Every record that differs in what a claim looks at: state, due, lease, sent mark, lost claims.
fn every_row() -> Vec<Operation> {
    let mut rows = Vec::new();
    for state in State::ALL {
        for due_at in [ago(SECOND), NOW, ahead(SECOND)] {
            for lease in [None, lease_until(ahead(SECOND)), lease_until(NOW)] {
                for sent_before in [None, Some(MINUTE), Some(25 * HOUR)] {
                    for lost_claims in [0, 1, 2, 3, 4, 5] {
                        let row = match sent_before {
                            None => operation(state),
                            Some(by) => sent_operation(state, by),
                        };
                        let lease = lease.clone().filter(|_| may_be_leased(state));
                        rows.push(Operation { due_at, lease, lost_claims, ..row });
                    }
                }
            }
        }
    }
    rows
}

/// What promises.md says of one record, in its own order of questions.
fn expected(
    row: &Operation,
    recomputed: &Recomputed<'_>,
    predecessor: Predecessor,
    resend: Resend,
    alone: bool,
) -> String {
    let not_claimable = match row.state {
        State::Applied => Some("leave Replayed"),
        State::Unknown => Some("leave Unknown"),
        State::Rejected | State::FailedPermanent | State::Expired => Some("leave Verdict"),
        State::Parked => Some("leave Waiting"),
        State::AwaitingApproval | State::Accepted if NOW < row.due_at => Some("leave Waiting"),
        State::AwaitingApproval if row.may_have_been_sent() => Some("Unknown approval_timed_out"),
        State::AwaitingApproval => Some("Rejected approval_timed_out"),
        // The rule of these tests has nobody to ask for it.
        State::Accepted => Some("Unknown job_unfinished"),
        State::Queued | State::RetryScheduled if NOW < row.due_at => Some("leave NotDue"),
        _ if row.lease.as_ref().is_some_and(|lease| NOW < lease.until) => Some("leave InFlight"),
        _ => None,
    };
    if let Some(answer) = not_claimable {
        return answer.to_owned();
    }
    match recomputed {
        Recomputed::Valid(found) if Some(&found.fingerprint) == row.fingerprint.as_ref() => {}
        _ => return "Parked fingerprint_disagreement".to_owned(),
    }
    if predecessor == Predecessor::Unfinished {
        return match row.state {
            State::Queued if row.lease.is_none() => "Queued waiting_for_order".to_owned(),
            State::Held => "Queued waiting_for_order".to_owned(),
            _ => "RetryScheduled waiting_for_order".to_owned(),
        };
    }
    let window_open = row.first_sent_at == Some(ago(MINUTE));
    match (row.first_sent_at.is_some(), resend) {
        (true, Resend::Within(_)) if !window_open => return "Unknown window_closed".to_owned(),
        (true, Resend::Never) if row.lease.is_some() => return "Unknown worker_lost".to_owned(),
        (true, Resend::Never) => return "Unknown no_proof".to_owned(),
        _ => {}
    }
    match row.lost_claims + u32::from(row.lease.is_some()) {
        5.. => "Parked worker_lost".to_owned(),
        3..=4 if !alone => "alone".to_owned(),
        _ if resend.marks_in_claim() => "run Sent".to_owned(),
        _ => "run Claimed".to_owned(),
    }
}

#[test]
fn every_record_gets_the_answer_of_the_table() {
    let (same, other) = (material(), other_material());
    let readings = [Recomputed::Valid(&same), Recomputed::Valid(&other), Recomputed::Invalid];
    let mut cases = 0;
    for row in every_row() {
        for resend in RESENDS {
            for recomputed in readings {
                for predecessor in [Predecessor::Finished, Predecessor::Unfinished] {
                    for alone in [false, true] {
                        let claim = decide_with(&row, recomputed, predecessor, resend, alone);
                        let expected = expected(&row, &recomputed, predecessor, resend, alone);
                        let seen = format!("{resend:?} {recomputed:?} {predecessor:?} {row:?}");
                        assert_eq!(word(&claim), expected, "{seen}");
                        hold_to_the_rules(&row, claim, resend);
                        cases += 1;
                    }
                }
            }
        }
    }
    assert_eq!(cases, 13 * 3 * 3 * 3 * 6 * 4 * 3 * 2 * 2);
}

/// What holds of every claim, whatever the table says.
fn hold_to_the_rules(row: &Operation, claim: Claim, resend: Resend) {
    let step = match claim {
        Claim::Leave(_) | Claim::Alone => return,
        Claim::Write(step) => {
            assert!(step.record.lease.is_none() || step.record.lease == row.lease);
            assert_eq!(step.record.first_sent_at, row.first_sent_at);
            assert_eq!(step.record.attempts, row.attempts);
            *step
        }
        Claim::Run(run) => {
            assert_eq!(run.ticket.token, run.step.record.token);
            assert_eq!(run.ticket.token, row.token.next());
            assert_eq!(run.ticket.marked, resend.marks_in_claim());
            assert_eq!(run.step.record.lease.as_ref().unwrap().until, NOW.after(30 * SECOND));
            assert_eq!(run.step.record.reason, None);
            // A second send is bound by the window, a first one by nothing.
            let bound = matches!(resend, Resend::Within(_)) && row.may_have_been_sent();
            assert_eq!(run.send_within.is_some(), bound);
            // No send without its mark: what is not folded is marked by a write of its own.
            let marked = u32::from(run.ticket.marked);
            assert_eq!(run.step.record.attempts, row.attempts + marked);
            if run.ticket.marked {
                assert_eq!(run.step.record.first_sent_at, row.first_sent_at.or(Some(NOW)));
                assert_eq!(run.step.record.key_first_used_at, row.key_first_used_at.or(Some(NOW)));
            }
            run.step
        }
    };
    assert_eq!(step.read_token, row.token);
    assert!(!events(&step).contains(&"refused"), "{:?}", step.trace);
    assert_eq!(events(&step).contains(&"lease_lost"), row.lease.is_some(), "{:?}", step.trace);
    // An owner that lost its lease is fenced by whatever takes the record from it.
    assert!(row.lease.is_none() || step.record.token == row.token.next());
    assert!(row.lease.is_none() || step.record.lost_claims == row.lost_claims + 1);
    assert!(step.record.downstream_key == row.downstream_key);
    let ended = matches!(step.record.state, State::Rejected | State::FailedPermanent);
    assert!(!(row.may_have_been_sent() && ended), "an unproved send was called no effect");
}

#[test]
fn arguments_of_an_sql_submission_are_judged_at_the_first_claim() {
    let bare = |row: Operation| Operation { fingerprint: None, token: Token(0), ..row };
    let judge = |row: &Operation, recomputed: Recomputed<'_>| {
        decide_with(row, recomputed, Predecessor::Finished, Resend::Never, false)
    };

    let queued = in_order(bare(operation(State::Queued)));
    let step = step_of(judge(&queued, Recomputed::Invalid));
    assert_eq!(
        (step.record.state, step.record.reason),
        (State::Rejected, Some(Reason::InvalidArguments))
    );
    // No valid request stood under this key: other arguments may still come.
    assert_eq!(step.record.fingerprint, None);
    assert!(step.frees_order);

    let run = run_of(judge(&queued, Recomputed::Valid(&material())));
    assert_eq!(run.step.record.fingerprint, Some(material().fingerprint));
    assert_eq!(run.step.record.digests.as_deref(), Some("{\"/subject\":\"d1\"}"));
    assert_eq!(events(&run.step), ["validated", "claimed"]);

    // An operator put it back: it may have been sent, so it is never called rejected.
    let requeued = bare(sent_operation(State::Queued, MINUTE));
    assert_eq!(word(&judge(&requeued, Recomputed::Invalid)), "Unknown invalid_arguments");
}

#[test]
fn waiting_for_order_is_marked_once_and_keeps_the_record_free() {
    let wait = |row: &Operation| {
        let recomputed = Recomputed::Valid(&material());
        step_of(decide_with(row, recomputed, Predecessor::Unfinished, Resend::Never, false))
    };
    let queued = in_order(Operation { fingerprint: None, ..operation(State::Queued) });
    let step = wait(&queued);
    assert!(step.record.order.as_ref().unwrap().waiting);
    assert_eq!(step.record.fingerprint, Some(material().fingerprint));
    assert_eq!(events(&step), ["validated", "in_flight"]);
    assert_eq!((step.publish_at, step.record.token), (None, queued.token));

    // Its predecessor was opened again while it ran: no dead lease is left for recovery to find.
    let step = wait(&in_order(expired(sent_operation(State::Sent, MINUTE))));
    assert_eq!(step.record.state, State::RetryScheduled);
    assert_eq!((step.record.lease.clone(), step.record.lost_claims), (None, 1));
    assert!(step.record.order.as_ref().unwrap().waiting && step.record.may_have_been_sent());

    // Its turn has come.
    let run = run_of(claimed_by(&step.record, Resend::Always, false));
    assert!(!run.step.record.order.unwrap().waiting);
}

#[test]
fn an_unproved_send_ends_when_attempts_or_evidence_run_out() {
    let check = |row: Operation, resend, expected: &str| {
        assert_eq!(word(&claimed_by(&row, resend, true)), expected);
    };
    let within = RESENDS[1];
    let sent = sent_operation(State::RetryScheduled, MINUTE);
    check(Operation { attempts: 3, ..sent.clone() }, within, "run Sent");
    check(Operation { attempts: 4, ..sent.clone() }, within, "Unknown attempts_exhausted");
    check(Operation { attempts: 4, ..sent.clone() }, Resend::Always, "Unknown attempts_exhausted");
    // Nobody knows which key, or since when the downstream has known it.
    check(Operation { downstream_key: None, ..sent.clone() }, within, "Unknown no_proof");
    check(Operation { key_first_used_at: None, ..sent.clone() }, within, "Unknown no_proof");
    let requeued = Operation {
        key_first_used_at: None,
        reason: Some(Reason::MayHaveBeenSent),
        ..sent.clone()
    };
    check(requeued.clone(), within, "Unknown may_have_been_sent");
    check(requeued.clone(), Resend::Never, "Unknown may_have_been_sent");
    check(requeued, Resend::Always, "run Sent");
    // What can only become unknown waits for no quiet moment and is not parked.
    let lost = Operation { lost_claims: 4, ..expired(sent_operation(State::Sent, MINUTE)) };
    assert_eq!(word(&claimed_by(&lost, Resend::Never, false)), "Unknown worker_lost");
}

#[test]
fn the_window_is_still_open_when_a_second_send_times_out() {
    let sent = |by: Duration| sent_operation(State::RetryScheduled, by);
    // A day, less ten seconds of time-out and five of margin.
    let last = 24 * HOUR - 15 * SECOND;
    let run = run_of(claimed_by(&sent(last - SECOND), RESENDS[1], false));
    assert_eq!(run.send_within, Some(SECOND));
    assert_eq!(word(&claimed_by(&sent(last), RESENDS[1], false)), "Unknown window_closed");
    // The window counts from the key's first use, and a proof that nothing was done stops nobody.
    let proved = Operation { first_sent_at: None, ..sent(48 * HOUR) };
    let run = run_of(claimed_by(&proved, RESENDS[1], false));
    assert_eq!((run.send_within, run.ticket.is_resend()), (None, false));
    assert_eq!(run.step.record.key_first_used_at, Some(ago(48 * HOUR)));
}

#[test]
fn the_key_towards_the_downstream_never_changes() {
    let without = Operation { downstream_key: None, ..operation(State::Queued) };
    let key = |row: &Operation, resend| {
        run_of(claimed_by(row, resend, false)).step.record.downstream_key.map(|key| key.key)
    };
    assert_eq!(key(&without, RESENDS[1]).as_deref(), Some("fresh"));
    assert_eq!(key(&operation(State::Queued), RESENDS[1]).as_deref(), Some("stored"));
    assert_eq!(key(&without, Resend::InTransaction), None);
}

/// A restore cannot have lost one half of a transaction.
#[test]
fn a_transactional_operation_is_claimed_plainly() {
    let row = expired(sent_operation(State::Claimed, 48 * HOUR));
    let run = run_of(claimed_by(&row, Resend::InTransaction, false));
    assert_eq!(run.step.record.state, State::Claimed);
    assert_eq!(run.step.record.first_sent_at, None);
    assert!(!run.ticket.is_resend() && !run.ticket.marked);
    assert_eq!(events(&run.step), ["lease_lost", "claimed"]);
}

#[test]
fn only_the_owner_of_a_live_claim_marks_it() {
    let row = operation(State::Claimed);
    let ticket = Ticket { token: row.token, prior_first_sent_at: None, marked: false, at: NOW };
    let step = marked(mark_sent(&row, &ticket, Permission::Allowed, NOW)).unwrap();
    assert_eq!((step.record.state, step.record.attempts), (State::Sent, 1));
    assert_eq!((step.record.first_sent_at, step.record.key_first_used_at), (Some(NOW), Some(NOW)));
    assert_eq!((step.record.lease.clone(), step.record.token), (row.lease.clone(), row.token));
    assert_eq!(events(&step), ["sent"]);

    // The commit's answer was lost: asking again counts no second attempt.
    let again =
        marked(mark_sent(&step.record, &ticket, Permission::Allowed, ahead(SECOND))).unwrap();
    assert_eq!(again.record, step.record);
    assert!(again.trace.is_empty());

    let stale = Ticket { token: Token(0), ..ticket };
    let mark = |row: &Operation, ticket, now| mark_sent(row, ticket, Permission::Allowed, now);
    assert!(matches!(mark(&row, &stale, NOW), Marking::Lost));
    assert!(matches!(mark(&row, &ticket, ahead(20 * SECOND)), Marking::Lost));
    let free = Operation { lease: None, ..row.clone() };
    assert!(matches!(mark(&free, &ticket, NOW), Marking::Lost));
    for state in State::ALL {
        let lease = lease_until(ahead(SECOND));
        let marks = marked(mark(&Operation { lease, ..operation(state) }, &ticket, NOW)).is_some();
        assert_eq!(marks, matches!(state, State::Claimed | State::Sent), "{state:?}");
    }
}

#[test]
fn a_delivery_that_changes_nothing_says_so_in_the_trace() {
    let waits = |state| Operation { due_at: ahead(SECOND), ..operation(state) };
    let word = |state| match claimed_by(&waits(state), Resend::Never, false) {
        Claim::Leave(leave) => leave.event(),
        other => panic!("{other:?}"),
    };
    assert_eq!(word(State::Claimed), "in_flight");
    assert_eq!(word(State::AwaitingApproval), "in_flight");
    assert_eq!(word(State::Parked), "in_flight");
    assert_eq!(word(State::Applied), "replayed");
    assert_eq!(word(State::Unknown), "unknown");
    // Not "rejected": a record that failed for good was not rejected by this delivery.
    assert_eq!(word(State::FailedPermanent), "replayed");
}
