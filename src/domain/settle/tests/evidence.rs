//! Jobs, postconditions, refusals and the answers to questions.

use super::*;
use crate::domain::claim::{self, Claim, Claimant, Recomputed};
use crate::domain::evidence::Blank;
use crate::domain::operation::Lease;
use crate::domain::records::{ahead, alone, downstream_key, lease_until, lookup, material};
use crate::domain::rule::{LookupRule, PollRule};

fn polled(resend: Resend, lookup: Option<LookupRule>) -> AttemptRule {
    let poll = PollRule { every: MINUTE, give_up: HOUR };
    AttemptRule { poll: Some(poll), lookup, ..rule(resend) }
}

fn job(id: &str) -> Job {
    Job::new(id).unwrap()
}

fn owned(row: &Operation, prior_first_sent_at: Option<Timestamp>) -> Ticket {
    Ticket { token: row.token, prior_first_sent_at, marked: true, at: NOW }
}

fn stale() -> Ticket {
    Ticket { token: Token(0), prior_first_sent_at: None, marked: true, at: NOW }
}

fn word(settle: &Settle) -> String {
    match settle {
        Settle::Write(step) => {
            let reason = step.record.reason.map_or("-", Reason::code);
            format!("{:?} {reason}", step.record.state)
        }
        Settle::Acknowledged => "known".to_owned(),
        Settle::LostLease => "lost".to_owned(),
    }
}

fn sent(state: State) -> Operation {
    Operation {
        effect_reference: (state == State::Applied).then(|| "T-0".to_owned()),
        ..in_order(sent_operation(state, HOUR))
    }
}

#[test]
fn a_job_is_followed_whoever_names_it() {
    let rule = polled(Resend::Never, None);
    let accept = |row: &Operation, ticket: &Ticket, rule: &AttemptRule| {
        decide(row, ticket, &Learned::Accepted(job("J-1")), NOW, rule, 0.5)
    };
    for state in State::ALL.into_iter().filter(|state| *state != State::Accepted) {
        let row = sent(state);
        for ticket in [owned(&row, None), stale()] {
            let settled = accept(&row, &ticket, &rule);
            let expected = match state {
                // No job of its own, nothing that speaks against one: it is known now.
                State::Unknown => "Unknown -",
                State::Applied => "known",
                State::Rejected | State::FailedPermanent | State::Expired => "Unknown conflict",
                _ => "Accepted provider_job",
            };
            assert_eq!(word(&settled), expected, "{state:?} {ticket:?}");
            let Settle::Write(step) = settled else { continue };
            let record = &step.record;
            assert!(step.trace.iter().all(|row| row.event != "refused"), "{state:?}");
            assert!(record.lease.is_none() && !step.frees_order, "{state:?}");
            let known = record.job.as_ref().unwrap();
            assert_eq!((&known.id, known.accepted_at), (&job("J-1"), NOW));
            let owner = ticket.token == row.token && matches!(state, State::Claimed | State::Sent);
            assert_eq!(known.alone, owner, "{state:?}");
            assert!(record.may_have_been_sent(), "an accepted request arrived");
            assert!(record.attempts_over_at >= Some(NOW.after(rule.stall_margin)));
            if record.state == State::Accepted {
                assert_eq!(step.publish_at, Some(ahead(MINUTE)));
                assert_eq!((record.due_at, record.token), (ahead(MINUTE), row.token.next()));
            } else {
                assert_eq!(record.next_lookup_at, Some(ahead(MINUTE)));
            }
        }
    }
    // After an unproved attempt, the job's failure will say nothing of that one.
    let row = sent(State::Sent);
    let step = written(accept(&row, &owned(&row, Some(ago(HOUR))), &rule));
    assert!(!step.record.job.unwrap().alone);
    // Nobody here can follow it.
    let step = written(accept(&row, &owned(&row, None), &super::rule(Resend::Always)));
    assert_eq!(step.record.reason, Some(Reason::JobUnfinished));
    assert_eq!((step.record.state, step.record.next_lookup_at), (State::Unknown, None));
    // Whoever owns it now may be sending, and does not know that its claim is gone.
    let step = written(accept(&row, &stale(), &rule));
    let lease = row.lease.as_ref().unwrap().until;
    let over = lease.after(rule.timeout).after(rule.stall_margin);
    assert_eq!(step.record.attempts_over_at, Some(over));
}

#[test]
fn a_job_named_twice_is_one_job_and_two_jobs_stay_visible() {
    let rule = polled(Resend::Never, None);
    let with_job = |state, alone| {
        let known = ProviderJob { id: job("J-1"), accepted_at: ago(MINUTE), alone };
        Operation { job: Some(known), ..sent(state) }
    };
    let accept = |row: &Operation, id: &str| {
        decide(row, &stale(), &Learned::Accepted(job(id)), NOW, &rule, 0.5)
    };
    // The settle is repeated because its commit was not answered; the job may have ended meanwhile.
    let ended = [State::Accepted, State::Unknown, State::Applied, State::FailedPermanent];
    for state in ended {
        assert_eq!(word(&accept(&with_job(state, true), "J-1")), "known", "{state:?}");
    }
    for state in [State::Accepted, State::Unknown, State::Applied] {
        let step = written(accept(&with_job(state, true), "J-2"));
        assert_eq!(step.record.state, state);
        let known = step.record.job.as_ref().unwrap();
        assert_eq!((&known.id, known.alone), (&job("J-1"), false), "one's end is not both's");
        let row = step.trace.iter().find(|row| row.event == "conflict").unwrap();
        assert_eq!(row.detail.as_ref().unwrap()["job"], json!("J-2"));
    }
    let step = written(accept(&with_job(State::FailedPermanent, true), "J-2"));
    assert_eq!((step.record.state, step.record.reason), (State::Unknown, Some(Reason::Conflict)));
    assert_eq!(step.record.job.unwrap().id, job("J-2"), "the one that is not ended is followed");
}

#[test]
fn an_effect_that_is_not_confirmed_is_unknown_with_its_receipt() {
    for why in [Unconfirmed::Failed, Unconfirmed::Unreachable] {
        let learned = Learned::Unconfirmed(effect("T-1"), why);
        for state in State::ALL {
            let row = sent(state);
            for ticket in [owned(&row, None), stale()] {
                let settled = settle(&row, &ticket, &learned, Resend::Never);
                let expected = match state {
                    State::Applied => "Applied conflict".to_owned(),
                    State::Rejected | State::FailedPermanent | State::Expired => {
                        "Unknown conflict".to_owned()
                    }
                    _ => format!("Unknown {}", why.reason().code()),
                };
                assert_eq!(word(&settled), expected, "{state:?} {why:?}");
                let step = written(settled);
                assert!(step.trace.iter().all(|row| row.event != "refused"), "{state:?}");
                let known = step.record.effect_reference.as_deref();
                assert_eq!(known, Some(if state == State::Applied { "T-0" } else { "T-1" }));
                assert!(!step.frees_order && step.publish_at.is_none(), "{state:?}");
                assert!(step.record.may_have_been_sent());
                // Written, and its commit not answered: the same again adds nothing.
                let again = settle(&step.record, &ticket, &learned, Resend::Never);
                if state != State::Applied {
                    assert_eq!(word(&again), "known", "{state:?}");
                }
            }
        }
    }
}

/// Evidence beside a conflict that has no receipt yet, as one of a job that nobody awaited.
#[test]
fn a_receipt_beside_a_conflict_is_kept_and_settles_nothing() {
    let row = Operation { reason: Some(Reason::Conflict), ..sent(State::Unknown) };
    for learned in [
        Learned::Applied(effect("T-1")),
        Learned::Unconfirmed(effect("T-1"), Unconfirmed::Failed),
        Learned::Unconfirmed(effect("T-1"), Unconfirmed::Unreachable),
    ] {
        let step = written(settle(&row, &stale(), &learned, Resend::Never));
        assert_eq!((step.record.state, step.record.reason), (State::Unknown, row.reason));
        assert_eq!(step.record.effect_reference.as_deref(), Some("T-1"));
        assert!(step.trace.iter().any(|row| row.event == "conflict"));
    }
}

#[test]
fn what_a_transactional_tool_says_of_its_effect_is_worth_nothing() {
    let row = operation(State::Claimed);
    let ticket = Ticket { marked: false, ..owned(&row, None) };
    for learned in [
        Learned::Applied(effect("T-1")),
        Learned::Already(effect("T-1")),
        Learned::Unconfirmed(effect("T-1"), Unconfirmed::Failed),
        Learned::Accepted(job("J-1")),
    ] {
        let step = written(settle(&row, &ticket, &learned, Resend::InTransaction));
        assert_eq!(
            (step.record.state, step.record.reason),
            (State::RetryScheduled, Some(Reason::NotSent))
        );
        assert!(!step.record.may_have_been_sent() && step.record.job.is_none());
        assert_eq!(step.record.effect_reference, None);
    }
}

/// State, reason and wait in seconds: without and with a look-up that may be asked.
#[test]
fn where_sending_ends_finding_out_goes_on() {
    let check = |learned: Learned, prior: Option<Timestamp>, resend, expected: [&str; 2]| {
        let row = Operation { attempts: 4, ..sent_operation(State::Sent, 48 * HOUR) };
        let seen = [None, Some(lookup())].map(|lookup| {
            let rule = AttemptRule { lookup, ..rule(resend) };
            let step = written(decide(&row, &owned(&row, prior), &learned, NOW, &rule, 0.5));
            let wait = step.publish_at.map(|at| format!(" in {}", at.since(NOW).as_secs()));
            let planned = step.record.next_lookup_at;
            let asks = planned.map(|at| format!(" asks in {}", at.since(NOW).as_secs()));
            let reason = step.record.reason.map_or("-", Reason::code);
            let rest = wait.or(asks).unwrap_or_default();
            format!("{:?} {reason}{rest}", step.record.state)
        });
        assert_eq!(seen, expected, "{learned:?} {prior:?}");
    };
    let before = Some(ago(48 * HOUR));
    let refused = ["Unknown refused_after_unproved", "RetryScheduled refused_after_unproved in 15"];
    let never = ["FailedPermanent refused", "FailedPermanent refused"];
    let lost = || Learned::Ambiguous(Ambiguity::TimedOut);
    for resend in [Resend::Always, RESENDS[1], Resend::Never] {
        check(Learned::Refused, before, resend, refused);
        check(Learned::Refused, None, resend, never);
        let exhausted = ["Unknown attempts_exhausted", "RetryScheduled attempts_exhausted in 15"];
        check(lost(), before, resend, exhausted);
        let not_ours = ["Unknown no_proof", "RetryScheduled no_proof in 15"];
        check(Learned::Already(effect("T-1")), None, resend, not_ours);
        for denial in [Denial::NotAuthorized, Denial::ApprovalWithdrawn, Denial::ApprovalExpired] {
            let code = denial.code();
            let learned = Learned::NotSent(NotSent::Forbidden(denial));
            let gone = format!("Rejected {code}");
            check(learned.clone(), None, resend, [&gone, &gone]);
            let open = [format!("Unknown {code}"), format!("Unknown {code} asks in 15")];
            check(learned, before, resend, [&open[0], &open[1]]);
        }
    }
    for (why, code) in [
        (NotSent::PolicyUnreachable, "policy_unreachable"),
        (NotSent::PreconditionUnreachable, "precondition_unreachable"),
    ] {
        let later = format!("RetryScheduled {code} in 1");
        for prior in [None, before] {
            check(Learned::NotSent(why), prior, Resend::Never, [&later, &later]);
        }
    }
}

/// What must not be sent again is asked about at the next claim, whatever the downstream would take.
#[test]
fn a_record_that_may_only_be_asked_about_is_not_sent() {
    let within = AttemptRule { lookup: Some(lookup()), ..rule(RESENDS[1]) };
    let always = AttemptRule { lookup: Some(lookup()), ..rule(Resend::Always) };
    let key = downstream_key("fresh");
    let claimant = Claimant { owner: "worker-2", alone: true, downstream_key: &|| key.clone() };
    let material = material();
    for rule in [within, always] {
        let given_up = Operation {
            opened_at: ago(73 * HOUR),
            deferrals: 2000,
            ..sent_operation(State::Sent, HOUR)
        };
        let first = sent_operation(State::Sent, SECOND);
        for (row, prior, learned) in [
            (first.clone(), None, Learned::Already(effect("T-1"))),
            (sent_operation(State::Sent, HOUR), Some(ago(HOUR)), Learned::Refused),
            (given_up, Some(ago(HOUR)), Learned::NotNow { retry_after: None }),
        ] {
            let mut record =
                written(decide(&row, &owned(&row, prior), &learned, NOW, &rule, 0.5)).record;
            // As often as it is asked, and whoever drains, retries or waits for order meanwhile.
            for _ in 0..3 {
                let at = record.due_at;
                let recomputed = Recomputed::Valid(&material);
                let asks = claim::decide(&record, recomputed, &alone(), at, &rule, &claimant);
                let Claim::Run(run) = asks else { panic!("{learned:?}: {asks:?}") };
                assert_eq!(run.purpose, Purpose::LookUp, "{learned:?} {:?}", rule.resend);
                let draining = Learned::NotSent(NotSent::Draining);
                let ticket = run.ticket;
                record =
                    written(decide(&run.step.record, &ticket, &draining, at, &rule, 0.5)).record;
                let by = crate::domain::records::person();
                record = crate::domain::verbs::retry(&record, true, at, &by).unwrap().record;
            }
        }
    }
}

#[test]
fn a_poll_ends_what_is_still_accepted() {
    let rule = polled(Resend::Never, None);
    let accepted = |alone| {
        let known = ProviderJob { id: job("J-1"), accepted_at: ago(MINUTE), alone };
        Operation { job: Some(known), ..sent(State::Accepted) }
    };
    let check = |row: &Operation, ticket: &Ticket, evidence: Evidence, expected: &str| {
        let settled = answered(row, ticket, Purpose::Poll, &evidence, NOW, &rule, 0.5);
        assert_eq!(word(&settled), expected, "{evidence:?} {row:?}");
        settled
    };
    let row = accepted(true);
    let poll = owned(&row, row.first_sent_at);
    let found = Evidence::Found(effect("T-1"));
    let step = written(check(&row, &poll, found.clone(), "Applied -"));
    assert_eq!(step.trace[0].event, "reconciled");
    assert!(step.frees_order);
    let unconfirmed = Evidence::Unconfirmed(effect("T-1"), Unconfirmed::Failed);
    check(&row, &poll, unconfirmed, "Unknown postcondition_failed");
    // The next poll is planned already.
    for nothing in [Evidence::JobRuns, Evidence::Absent, Evidence::CannotTell(Blank::Unreachable)] {
        check(&row, &poll, nothing, "known");
    }
    let step = written(check(&row, &poll, Evidence::JobFailed, "FailedPermanent job_failed"));
    assert!(!step.record.may_have_been_sent() && step.frees_order);
    assert_eq!(step.record.token, row.token.next());
    let open = accepted(false);
    let step = written(check(&open, &poll, Evidence::JobFailed, "Unknown refused_after_unproved"));
    assert_eq!(step.record.first_sent_at, open.first_sent_at);
    assert_eq!(step.record.job, None, "what is left to ask about is the earlier attempt");

    // Given up, and ended after all.
    let unknown = Operation { state: State::Unknown, ..accepted(true) };
    check(&unknown, &poll, found.clone(), "Applied -");
    check(&unknown, &poll, Evidence::JobFailed, "known");
    // An answer from before the record moved on proves an effect, and nothing else.
    check(&row, &stale(), found, "Applied -");
    check(&row, &stale(), Evidence::JobFailed, "known");
}

/// Only a look-up under its own claim, and only a poll of an accepted one, decides something.
#[test]
fn an_answer_that_comes_late_finds_the_record_moved_on() {
    let rule = polled(Resend::Never, Some(lookup()));
    let answers = [Evidence::Absent, Evidence::JobFailed, Evidence::CannotTell(Blank::Unclear)];
    for state in State::ALL {
        for purpose in [Purpose::Send, Purpose::LookUp, Purpose::Poll] {
            for evidence in &answers {
                let lease = Some(Lease { owner: "w".to_owned(), until: ahead(SECOND) });
                let row = Operation { lease, ..sent(state) };
                let ticket = owned(&row, row.first_sent_at);
                let settled = answered(&row, &ticket, purpose, evidence, NOW, &rule, 0.5);
                let decides = matches!(
                    (purpose, state, evidence),
                    (Purpose::LookUp, State::Claimed, _)
                        | (Purpose::Poll, State::Accepted, Evidence::JobFailed)
                );
                assert_eq!(matches!(settled, Settle::Write(_)), decides, "{purpose:?} {state:?}");
            }
        }
    }
    // Its lease ran out, and nobody else has taken it: it is still its own.
    let row = Operation { lease: lease_until(ago(SECOND)), ..sent(State::Claimed) };
    let ticket = owned(&row, row.first_sent_at);
    let settled = answered(&row, &ticket, Purpose::LookUp, &Evidence::JobRuns, NOW, &rule, 0.5);
    assert!(matches!(settled, Settle::Write(_)));
}

/// An absence counts from here, so what may still be at work is not over.
#[test]
fn an_attempt_is_over_when_the_service_has_said_its_last_word() {
    let over = |learned: Learned| {
        let row = sent(State::Sent);
        let rule = polled(Resend::Never, Some(lookup()));
        let step = written(decide(&row, &owned(&row, None), &learned, NOW, &rule, 0.5));
        step.record.attempts_over_at
    };
    for why in [Ambiguity::Unreadable, Ambiguity::Redirect, Ambiguity::NoReceipt] {
        assert_eq!(over(Learned::Ambiguous(why)), Some(NOW), "{why:?}");
    }
    assert_eq!(over(Learned::Already(effect("T-1"))), Some(NOW));
    let later = Some(NOW.after(rule(Resend::Never).stall_margin));
    for why in [
        Ambiguity::TimedOut,
        Ambiguity::Broken,
        Ambiguity::UnlistedStatus,
        Ambiguity::NoJob,
        Ambiguity::Panicked,
        Ambiguity::WorkerLost,
        Ambiguity::Tool,
    ] {
        assert_eq!(over(Learned::Ambiguous(why)), later, "{why:?}");
    }
}
