//! What answers make of an unknown record: it has been put before people, so it is never sent by itself.

use super::*;

fn unknown(reason: Reason) -> Operation {
    Operation {
        reason: Some(reason),
        attempts_over_at: Some(ago(HOUR)),
        unresolved_since: Some(ago(HOUR)),
        next_lookup_at: Some(ago(SECOND)),
        ..in_order(sent_operation(State::Unknown, 2 * HOUR))
    }
}

fn next_word(step: &Step) -> String {
    let next = step.record.next_lookup_at;
    let next =
        next.map_or(" given up".to_owned(), |at| format!(" asks in {}", at.since(NOW).as_secs()));
    let open = step.record.state == State::Unknown;
    format!("{}{}", word(step), if open { next } else { String::new() })
}

#[test]
fn what_a_look_up_makes_of_an_unknown_record() {
    let check = |row: &Operation, evidence: Evidence, lookup, expected: &str| {
        let rule = rule_with(Resend::Never, Some(lookup));
        let step = reconciled_by(row, &evidence, NOW, &rule).unwrap();
        assert_eq!(next_word(&step), expected, "{evidence:?}");
        assert!(step.publish_at.is_none(), "an unknown one is never sent by itself");
    };
    let row = unknown(Reason::NoProof);
    let (resend, operator) =
        (lookup(), LookupRule { when_absent: AbsentRule::Operator, ..lookup() });
    let cache = LookupRule { authoritative: false, ..lookup() };
    let absent = || Evidence::Absent;
    check(&row, Evidence::Found(effect("T-1")), cache, "Applied -");
    check(&row, absent(), resend, "FailedPermanent proved_absent");
    check(&row, absent(), operator, "Unknown absent_needs_decision given up");
    check(&row, absent(), cache, "Unknown no_proof asks in 1");
    let early = Operation { attempts_over_at: Some(ago(SECOND)), ..row.clone() };
    check(&early, absent(), resend, "Unknown no_proof asks in 14");
    // Why it could not be sent stays the reason, when it turns out that nothing had been sent.
    for reason in [Reason::NotAuthorized, Reason::ApprovalWithdrawn, Reason::AttemptsExhausted] {
        let expected = format!("FailedPermanent {}", reason.code());
        check(&unknown(reason), absent(), resend, &expected);
    }
    check(&unknown(Reason::RefusedAfterUnproved), absent(), resend, "FailedPermanent refused");

    let with_job = |alone| Operation { job: job(alone), ..row.clone() };
    check(&with_job(true), Evidence::JobFailed, cache, "FailedPermanent job_failed");
    check(&with_job(false), Evidence::JobFailed, cache, "Unknown no_proof asks in 1");
    let only_job = LookupRule { by_key: false, by_job: true, ..lookup() };
    check(&with_job(false), Evidence::JobFailed, only_job, "Unknown no_proof given up");
    check(&with_job(true), absent(), resend, "Unknown no_proof asks in 1");
    check(&with_job(true), Evidence::JobRuns, cache, "Unknown no_proof asks in 1");

    // Waits grow, until only a person is left.
    let often = Operation { lookups: 5, ..row.clone() };
    check(&often, Evidence::CannotTell(Blank::Unreachable), cache, "Unknown no_proof asks in 32");
    let old = Operation { unresolved_since: Some(ago(72 * HOUR)), ..row.clone() };
    check(&old, Evidence::CannotTell(Blank::Unreachable), cache, "Unknown no_proof given up");
    check(&old, Evidence::Found(effect("T-1")), cache, "Applied -");

    // Evidence of an effect beats evidence of none.
    let receipt = |reason| Operation {
        effect_reference: Some("T-1".to_owned()),
        job: job(true),
        ..unknown(reason)
    };
    let unreachable = receipt(Reason::PostconditionUnreachable);
    let without_job = Operation { job: None, ..unreachable.clone() };
    check(&without_job, absent(), resend, "Unknown postcondition_unreachable given up");
    check(&unreachable, Evidence::JobFailed, resend, "Unknown postcondition_unreachable asks in 1");
    check(&receipt(Reason::Conflict), Evidence::JobFailed, resend, "Unknown conflict given up");
}

/// An effect whose postcondition could not be asked is asked again; a contradiction is a person's.
#[test]
fn what_settles_an_effect_that_is_not_confirmed() {
    let check = |reason, evidence: Evidence, expected: &str| {
        let known = Some("T-1".to_owned());
        let row = Operation { effect_reference: known, ..unknown(reason) };
        let rule = rule_with(Resend::Never, Some(lookup()));
        let step = reconciled_by(&row, &evidence, NOW, &rule).unwrap();
        assert_eq!(next_word(&step), expected, "{reason:?} {evidence:?}");
        // Whoever asks writes something, so that nothing is due for ever.
        assert_ne!(step.record.next_lookup_at, row.next_lookup_at);
        step
    };
    let (failed, unreachable) = (Unconfirmed::Failed, Unconfirmed::Unreachable);
    let unconfirmed = |receipt: &str, why| Evidence::Unconfirmed(effect(receipt), why);
    let reason = Reason::PostconditionUnreachable;
    check(reason, Evidence::Found(effect("T-1")), "Applied -");
    check(reason, unconfirmed("T-1", failed), "Unknown postcondition_failed given up");
    let again = "Unknown postcondition_unreachable asks in 1";
    check(reason, unconfirmed("T-1", unreachable), again);
    let conflict = "Unknown conflict given up";
    for other in [
        Evidence::Found(effect("T-2")),
        unconfirmed("T-2", failed),
        unconfirmed("T-2", unreachable),
    ] {
        let step = check(reason, other.clone(), conflict);
        assert_eq!(step.record.effect_reference.as_deref(), Some("T-1"));
        assert!(step.trace.iter().any(|row| row.event == "conflict"));
        check(Reason::PostconditionFailed, other.clone(), conflict);
        check(Reason::Conflict, other, conflict);
    }
    for same in [Evidence::Found(effect("T-1")), unconfirmed("T-1", unreachable)] {
        check(Reason::Conflict, same.clone(), conflict);
        let weighed = "Unknown postcondition_failed given up";
        check(Reason::PostconditionFailed, same, weighed);
    }
}

/// What holds of every answer to every unknown record, and of one that ended meanwhile.
#[test]
fn no_answer_breaks_a_promise_on_an_unknown_record() {
    for lookup in every_lookup() {
        for over in [ago(HOUR), ago(SECOND), ahead(MINUTE)] {
            for reason in Reason::ALL {
                for known in [None, Some("T-1".to_owned()), Some("T-2".to_owned())] {
                    for job in [None, job(true), job(false)] {
                        let row = Operation {
                            attempts_over_at: Some(over),
                            effect_reference: known.clone(),
                            job: job.clone(),
                            ..unknown(*reason)
                        };
                        for evidence in every_evidence() {
                            hold_unknown(&row, &evidence, lookup, over);
                        }
                    }
                }
            }
        }
    }
}

fn hold_unknown(row: &Operation, evidence: &Evidence, lookup: LookupRule, over: Timestamp) {
    let rule = rule_with(Resend::Always, Some(lookup));
    let seen = format!("{evidence:?} {lookup:?} {over:?} {row:?} {:?}", row.effect_reference);
    let step = reconciled_by(row, evidence, NOW, &rule).expect(&seen);
    let record = &step.record;
    assert!(step.trace.iter().all(|row| row.event != "refused"), "{seen}");
    // Never sent by itself, never rejected, never pending again.
    let ends = [State::Unknown, State::Applied, State::FailedPermanent];
    assert!(ends.contains(&record.state) && step.publish_at.is_none(), "{seen}");
    assert!(record.state == State::Unknown || record.next_lookup_at.is_none(), "{seen}");
    // Whoever asks writes something new, or asks later: nothing is due without end.
    let later = record.next_lookup_at.is_none_or(|at| at > NOW);
    let new = record.reason != row.reason || record.effect_reference != row.effect_reference;
    assert!(later || new, "asked without end: {seen}");
    let contradicted = row.effect_reference.is_some() || row.reason == Some(Reason::Conflict);
    let absent = *evidence == Evidence::Absent
        && lookup.authoritative
        && lookup.when_absent == AbsentRule::Resend
        && row.job.is_none()
        && NOW >= over.after(VISIBLE);
    let failed = *evidence == Evidence::JobFailed && row.job.as_ref().is_some_and(|j| j.alone);
    let none = (absent || failed) && !contradicted;
    assert_eq!(record.state == State::FailedPermanent, none, "{seen}");
    assert_eq!(record.first_sent_at.is_none(), none, "{seen}");
    assert!(record.state != State::Applied || matches!(evidence, Evidence::Found(_)), "{seen}");
    // No receipt is lost.
    if let Evidence::Found(found) | Evidence::Unconfirmed(found, _) = evidence {
        let receipt = found.receipt.as_str();
        let traced = step.trace.iter().any(|row| {
            row.detail.as_ref().is_some_and(|detail| detail["receipt"] == json!(receipt))
        });
        assert!(record.effect_reference.as_deref() == Some(receipt) || traced, "{seen}");
    }
    if row.effect_reference.is_some() {
        assert_eq!(record.effect_reference, row.effect_reference, "{seen}");
    }
}

#[test]
fn only_proof_reaches_a_record_that_ended_meanwhile() {
    let rule = rule_with(Resend::Never, Some(lookup()));
    for state in State::ALL {
        for evidence in every_evidence() {
            let row = Operation { job: job(true), ..sent_operation(state, HOUR) };
            let written = reconciled_by(&row, &evidence, NOW, &rule);
            let proves = matches!(evidence, Evidence::Found(_) | Evidence::Unconfirmed(..));
            assert!(proves || state == State::Unknown || written.is_none(), "{state:?}");
            if state == State::Applied {
                assert!(written.is_none_or(|step| step.record.state == State::Applied));
            }
        }
    }
}

#[test]
fn whoever_cannot_be_asked_is_not_asked_again() {
    let step = not_askable(&unknown(Reason::NoProof));
    assert_eq!(next_word(&step), "Unknown no_proof given up");
    assert_eq!(step.trace[0].event, "unknown");
}
