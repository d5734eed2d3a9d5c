mod answers;

use uuid::Uuid;

use super::*;
use crate::domain::attempt::Job;
use crate::domain::operation::{Lease, ProviderJob, Token, Twin};
use crate::domain::records::{
    HOUR, MINUTE, NOW, SECOND, ago, ahead, in_order, lease_until, material, operation,
    other_material, person, sent_operation,
};

/// How long an attempt may still be under way after its lease.
const STALL: Duration = Duration::from_secs(300);

type Verb = fn(&Operation) -> Result<Step, &'static str>;

const VERBS: [(&str, Verb); 6] = [
    ("retry", |row| retry(row, false, NOW, &person())),
    ("reopen", |row| reopen(row, NOW, &person())),
    ("applied", |row| resolve(row, &found("T-9"), STALL, NOW, &person())),
    ("not-applied", |row| resolve(row, &Finding::NotApplied, STALL, NOW, &person())),
    ("compensated", |row| resolve(row, &Finding::Compensated, STALL, NOW, &person())),
    ("release", |row| release(row, NOW, &person())),
];

fn found(receipt: &str) -> Finding {
    Finding::Applied(Receipt::new(receipt).unwrap())
}

/// A record that nobody has touched for an hour; a lease that it may have had ended then.
fn quiet(row: Operation) -> Operation {
    let lease = row.lease.map(|lease| Lease { until: ago(HOUR), ..lease });
    Operation { lease, updated_at: ago(HOUR), ..row }
}

fn check_table(table: &str, row: fn(State) -> Operation) {
    let lines: Vec<&str> = table.trim_start().lines().skip(1).collect();
    assert_eq!(lines.len(), State::ALL.len());
    for (state, line) in State::ALL.into_iter().zip(lines) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells.len(), 1 + VERBS.len(), "{line}");
        assert_eq!(cells[0], format!("{state:?}"));
        let row = row(state);
        for ((name, verb), cell) in VERBS.into_iter().zip(&cells[1..]) {
            let seen = match verb(&row) {
                Ok(step) => format!("{:?}", step.record.state),
                Err(why) => {
                    assert!(!why.is_empty());
                    ".".to_owned()
                }
            };
            assert_eq!(&seen, cell, "{state:?} {name}");
        }
    }
}

#[test]
fn every_verb_on_every_record_that_was_never_sent() {
    let table = "
                  retry   reopen  applied  not-applied      compensated      release
Queued            Queued  .       Applied  FailedPermanent  .                .
Held              .       .       Applied  .                .                Queued
AwaitingApproval  .       .       Applied  .                .                .
Claimed           .       .       Applied  FailedPermanent  .                .
Sent              .       .       Applied  FailedPermanent  .                .
Accepted          Accepted .      Applied  FailedPermanent  .                .
RetryScheduled    Queued  .       Applied  FailedPermanent  .                .
Parked            Queued  .       Applied  FailedPermanent  .                .
Applied           .       .       .        .                .                .
Rejected          .       .       Unknown  .                .                .
FailedPermanent   .       Queued  Unknown  .                .                .
Unknown           .       .       Applied  FailedPermanent  FailedPermanent  .
Expired           .       .       Unknown  .                .                .";
    check_table(table, |state| quiet(operation(state)));
}

#[test]
fn every_verb_on_every_record_that_may_have_been_sent() {
    let table = "
                  retry   reopen  applied  not-applied      compensated      release
Queued            Queued  .       Applied  FailedPermanent  FailedPermanent  Queued
Held              .       .       Applied  .                .                Queued
AwaitingApproval  .       .       Applied  .                .                AwaitingApproval
Claimed           .       .       Applied  FailedPermanent  FailedPermanent  Claimed
Sent              .       .       Applied  FailedPermanent  FailedPermanent  Sent
Accepted          Accepted .      Applied  FailedPermanent  FailedPermanent  Accepted
RetryScheduled    Queued  .       Applied  FailedPermanent  FailedPermanent  RetryScheduled
Parked            Queued  .       Applied  FailedPermanent  FailedPermanent  Parked
Applied           .       .       .        .                .                .
Rejected          .       .       Unknown  .                .                .
FailedPermanent   .       .       Unknown  .                .                .
Unknown           .       .       Applied  FailedPermanent  FailedPermanent  Unknown
Expired           .       .       Unknown  .                .                .";
    check_table(table, |state| in_order(quiet(sent_operation(state, 2 * HOUR))));
}

#[test]
fn what_a_verb_does_is_traced_with_person_and_reason() {
    for state in State::ALL {
        for (name, verb) in VERBS {
            let Ok(step) = verb(&in_order(quiet(sent_operation(state, 2 * HOUR)))) else {
                continue;
            };
            let detail = step.trace[0].detail.as_ref().unwrap();
            assert_eq!(step.trace[0].event, "resolved", "{name}");
            assert_eq!((&detail["by"], &detail["why"]), (&json!("Ada"), &json!("looked it up")));
            assert!(step.trace.iter().all(|row| row.event != "refused"), "{name} {state:?}");
        }
    }
}

#[test]
fn a_retry_is_due_now_and_keeps_what_is_unproved() {
    let row = Operation {
        lost_claims: 5,
        deferrals: 9,
        reason: Some(Reason::WorkerLost),
        ..sent_operation(State::Parked, HOUR)
    };
    let step = retry(&row, false, NOW, &person()).unwrap();
    let record = &step.record;
    assert_eq!((record.due_at, record.queued_at, record.sweeps), (NOW, NOW, 0));
    assert_eq!(step.publish_at, Some(NOW));
    assert_eq!((record.lost_claims, record.deferrals, record.reason), (0, 0, None));
    // The claim will recover it: a retry is no licence for a blind second send.
    assert_eq!((record.first_sent_at, record.attempts), (row.first_sent_at, 1));
}

#[test]
fn only_a_record_that_proves_no_effect_is_opened_again() {
    let failed = |reason| Operation {
        reason: Some(reason),
        attempts: 4,
        deferrals: 3,
        lost_claims: 2,
        key_first_used_at: Some(ago(HOUR)),
        ..operation(State::FailedPermanent)
    };
    let step = reopen(&failed(Reason::AttemptsExhausted), NOW, &person()).unwrap();
    let record = &step.record;
    assert_eq!((record.attempts, record.deferrals, record.lost_claims), (0, 0, 0));
    assert_eq!((record.opened_at, step.publish_at, record.reason), (NOW, Some(NOW), None));
    assert!(record.downstream_key == failed(Reason::Refused).downstream_key);
    assert_eq!(record.key_first_used_at, Some(ago(HOUR)));

    assert!(reopen(&failed(Reason::Compensated), NOW, &person()).is_err());
    let referenced =
        Operation { effect_reference: Some("T-1".to_owned()), ..failed(Reason::Refused) };
    assert!(reopen(&referenced, NOW, &person()).is_err());
}

/// An attempt frozen right before its first byte could still make the effect that a person denies.
#[test]
fn no_effect_is_believed_only_when_no_attempt_can_still_send() {
    let check = |row: &Operation, over: Timestamp| {
        for finding in [Finding::NotApplied, Finding::Compensated] {
            let before = over.before(Duration::from_micros(1));
            let refused = resolve(row, &finding, STALL, before, &person()).err();
            assert_eq!(refused, Some(UNDER_WAY), "{finding:?}");
            assert_eq!(earlier_attempts_over(row, STALL), over);
            let step = resolve(row, &finding, STALL, over, &person()).unwrap();
            assert_eq!(step.record.token, row.token.next());
            assert!(step.record.downstream_key == row.downstream_key);
        }
    };
    let sent = sent_operation(State::Sent, MINUTE);
    check(&sent, sent.lease.as_ref().unwrap().until.after(STALL));
    // A claim that was lost: the one after it settled, the lost one may sleep on.
    let unknown = sent_operation(State::Unknown, MINUTE);
    let lost = Operation { token: Token(2), ..unknown.clone() };
    check(&lost, lost.updated_at.after(STALL));
    // Put back or restored: the claims of its former life are not in its record.
    let restored = Operation { attempts: 0, ..unknown.clone() };
    check(&restored, restored.updated_at.after(STALL));
    // The only claim was settled by its owner, who stopped waiting: the service may still act.
    check(&unknown, unknown.updated_at.after(STALL));
}

#[test]
fn a_person_who_found_no_effect_proves_it_for_all_attempts() {
    let row = quiet(Operation {
        reason: Some(Reason::Conflict),
        effect_reference: Some("T-1".to_owned()),
        ..in_order(sent_operation(State::Unknown, HOUR))
    });
    let step = resolve(&row, &Finding::NotApplied, STALL, NOW, &person()).unwrap();
    assert_eq!(step.record.reason, Some(Reason::ResolvedNotApplied));
    assert_eq!((step.record.first_sent_at, step.record.effect_reference.clone()), (None, None));
    assert_eq!(step.record.key_first_used_at, row.key_first_used_at);
    assert!(step.frees_order);
    assert!(reopen(&step.record, NOW, &person()).is_ok());

    let step = resolve(&row, &Finding::Compensated, STALL, NOW, &person()).unwrap();
    assert_eq!(step.record.reason, Some(Reason::Compensated));
    assert_eq!(step.record.effect_reference.as_deref(), Some("T-1"));
    assert!(step.frees_order);
    assert!(reopen(&step.record, NOW, &person()).is_err());
}

/// Every receipt that was ever named is in the record or in its trace.
#[test]
fn receipts_that_contradict_each_other_both_stay_visible() {
    let check = |state, stored: Option<&str>, kept: &str, traced: Option<&str>| {
        let row = Operation {
            effect_reference: stored.map(str::to_owned),
            ..sent_operation(state, HOUR)
        };
        let step = resolve(&row, &found("T-9"), STALL, NOW, &person()).unwrap();
        assert_eq!(step.record.effect_reference.as_deref(), Some(kept));
        let conflict = step.trace.iter().find(|row| row.event == "conflict");
        let receipt = conflict.map(|row| row.detail.as_ref().unwrap()["receipt"].clone());
        assert_eq!(receipt, traced.map(|receipt| json!(receipt)));
        assert_eq!(step.record.token, row.token.next());
        let unknown = step.record.state == State::Unknown;
        assert_eq!(step.record.reason, unknown.then_some(Reason::Conflict));
    };
    check(State::Unknown, None, "T-9", None);
    check(State::Unknown, Some("T-9"), "T-9", None);
    check(State::Unknown, Some("T-1"), "T-9", Some("T-1"));
    check(State::Sent, None, "T-9", None);
    check(State::FailedPermanent, None, "T-9", Some("T-9"));
    check(State::Rejected, None, "T-9", Some("T-9"));
    check(State::Expired, Some("T-1"), "T-1", Some("T-9"));
    check(State::Expired, Some("T-9"), "T-9", None);
}

#[test]
fn a_release_lets_the_rest_pass_once() {
    let row = in_order(sent_operation(State::Unknown, HOUR));
    let step = release(&row, NOW, &person()).unwrap();
    assert!(step.frees_order && step.record.order.as_ref().unwrap().released);
    assert_eq!((step.publish_at, step.record.state), (None, State::Unknown));
    assert!(release(&step.record, NOW, &person()).is_err());

    let running =
        Operation { lease: lease_until(ahead(SECOND)), ..in_order(operation(State::Sent)) };
    assert!(release(&running, NOW, &person()).is_err(), "two effects at a time");

    let held = release(&in_order(operation(State::Held)), NOW, &person()).unwrap();
    assert_eq!((held.publish_at, held.frees_order), (Some(NOW), false));
}

#[test]
fn a_retry_of_an_unknown_asks_where_somebody_can_be_asked() {
    let row = Operation {
        reason: Some(Reason::NoProof),
        lookups: 9,
        next_lookup_at: None,
        ..sent_operation(State::Unknown, HOUR)
    };
    let step = retry(&row, true, NOW, &person()).unwrap();
    let record = &step.record;
    assert_eq!((record.state, record.reason), (State::Unknown, row.reason));
    assert_eq!((record.next_lookup_at, record.lookups, step.publish_at), (Some(NOW), 0, None));
    assert_eq!(record.first_sent_at, row.first_sent_at);
    assert_eq!(step.trace[0].detail.as_ref().unwrap()["verb"], "look_up");
    assert!(retry(&row, false, NOW, &person()).is_err(), "never a send");
    // What can be looked up in any other state takes its own way.
    for state in State::ALL.into_iter().filter(|state| *state != State::Unknown) {
        let row = quiet(sent_operation(state, 2 * HOUR));
        let seen = [true, false].map(|can| retry(&row, can, NOW, &person()));
        assert_eq!(seen[0], seen[1], "{state:?}");
    }
}

#[test]
fn a_retry_of_a_job_asks_for_it_at_once() {
    let job = ProviderJob { id: Job::new("J-1").unwrap(), accepted_at: ago(HOUR), alone: true };
    let row = Operation {
        job: Some(job),
        reason: Some(Reason::ProviderJob),
        due_at: ahead(MINUTE),
        ..sent_operation(State::Accepted, HOUR)
    };
    let step = retry(&row, true, NOW, &person()).unwrap();
    let record = &step.record;
    assert_eq!((record.state, record.reason), (State::Accepted, row.reason));
    assert_eq!((record.due_at, step.publish_at), (NOW, Some(NOW)));
    assert_eq!((record.job.clone(), record.token), (row.job.clone(), row.token));
}

#[test]
fn a_retry_sends_nothing_that_may_only_be_asked_about() {
    let check = |reason: Reason, kept: bool| {
        let row = Operation { reason: Some(reason), ..sent_operation(State::RetryScheduled, HOUR) };
        let step = retry(&row, true, NOW, &person()).unwrap();
        assert_eq!(step.record.reason, kept.then_some(reason), "{reason:?}");
    };
    for reason in Reason::ALL {
        let kept = [Reason::RefusedAfterUnproved, Reason::NoProof, Reason::AttemptsExhausted];
        check(*reason, kept.contains(reason));
    }
}

/// The record says when its attempts are over, better than its last change does.
#[test]
fn a_finding_waits_for_the_end_that_the_record_knows() {
    let check = |row: &Operation, over: Timestamp| {
        assert_eq!(earlier_attempts_over(row, STALL), over);
        for finding in [Finding::NotApplied, Finding::Compensated] {
            let before = over.before(Duration::from_micros(1));
            assert_eq!(resolve(row, &finding, STALL, before, &person()).err(), Some(UNDER_WAY));
            let step = resolve(row, &finding, STALL, over, &person()).unwrap();
            assert_eq!(step.record.state, State::FailedPermanent);
        }
        // An effect that was found is no less there because others may come.
        assert!(resolve(row, &found("T-9"), STALL, ago(HOUR), &person()).is_ok());
    };
    let unknown = sent_operation(State::Unknown, HOUR);
    let over = |at| Operation { attempts_over_at: Some(at), ..unknown.clone() };
    check(&over(ago(SECOND)), ago(SECOND));
    check(&over(ahead(MINUTE)), ahead(MINUTE));
    // A claim that runs may still send, whatever the attempts before it did.
    let sent = |at| Operation { attempts_over_at: at, ..sent_operation(State::Sent, MINUTE) };
    let lease = sent(None).lease.unwrap().until;
    check(&sent(None), lease.after(STALL));
    check(&sent(Some(ago(MINUTE))), lease.after(STALL));
    check(&sent(Some(ahead(HOUR))), ahead(HOUR));
    let step = resolve(&over(ago(SECOND)), &Finding::NotApplied, STALL, NOW, &person()).unwrap();
    assert_eq!((step.record.first_sent_at, step.record.attempts_over_at), (None, None));
    // Never sent: there is nothing to wait for.
    let queued = operation(State::Queued);
    assert!(resolve(&queued, &Finding::NotApplied, STALL, NOW, &person()).is_ok());
}

fn twin(held_behind: Option<Uuid>, released: bool) -> Option<Twin> {
    Some(Twin { digest: "sha256:1:d".to_owned(), held_behind, released })
}

#[test]
fn a_released_twin_is_held_no_more_in_this_life() {
    let older = Some(Uuid::from_u128(3));
    let held = Operation {
        twin: twin(older, false),
        reason: Some(Reason::SuspectedTwin),
        due_at: ahead(HOUR),
        ..operation(State::Held)
    };
    let step = release(&held, NOW, &person()).unwrap();
    let record = &step.record;
    assert_eq!((record.state, record.reason), (State::Queued, None));
    assert_eq!((record.due_at, step.publish_at), (NOW, Some(NOW)));
    assert_eq!(record.twin, twin(older, true));

    // Opened again it is younger than others: the release was for its former life.
    let failed = Operation { twin: twin(older, true), ..operation(State::FailedPermanent) };
    let step = reopen(&failed, NOW, &person()).unwrap();
    assert_eq!(step.record.twin, twin(None, false));
}

#[test]
fn an_operation_that_is_opened_again_begins_anew() {
    let job = ProviderJob { id: Job::new("J-1").unwrap(), accepted_at: ago(HOUR), alone: true };
    let row = Operation {
        job: Some(job),
        lookups: 3,
        reason: Some(Reason::JobFailed),
        ..in_order(operation(State::FailedPermanent))
    };
    let step = reopen(&row, NOW, &person()).unwrap();
    assert_eq!((step.record.job.clone(), step.record.lookups), (None, 0));
    assert!(step.renumbered);
}
