//! A person says yes or no, or takes a yes back.

use super::*;

#[test]
fn an_answer_goes_to_a_record_that_waits_for_it() {
    for state in State::ALL {
        let row = in_order(Operation {
            twin: twin(None, false),
            due_at: ahead(HOUR),
            ..operation(state)
        });
        let approved = answer(&row, Answer::Approve, NOW, &person());
        let denied = answer(&row, Answer::Deny, NOW, &person());
        if state != State::AwaitingApproval {
            assert!(approved.is_err() && denied.is_err(), "{state:?}");
            continue;
        }
        let step = approved.unwrap();
        assert_eq!((step.record.state, step.record.reason), (State::Queued, None));
        assert_eq!((step.record.due_at, step.publish_at), (NOW, Some(NOW)));
        assert!(!step.frees_order && !step.frees_twins);
        let step = denied.unwrap();
        assert_eq!(step.record.state, State::Rejected);
        assert_eq!(step.record.reason, Some(Reason::ApprovalDenied));
        assert!(step.frees_order && step.frees_twins && step.publish_at.is_none());
    }
    // Marked by a restore: what may have been sent is never called rejected.
    let sent = Operation { due_at: ahead(HOUR), ..sent_operation(State::AwaitingApproval, HOUR) };
    let step = answer(&sent, Answer::Deny, NOW, &person()).unwrap();
    assert_eq!(step.record.state, State::Unknown);
    assert_eq!(step.record.reason, Some(Reason::ApprovalDenied));
    let step = answer(&sent, Answer::Approve, NOW, &person()).unwrap();
    assert_eq!(step.record.first_sent_at, sent.first_sent_at);
}

#[test]
fn an_answer_comes_in_time_or_not_at_all() {
    let row = |due_at| Operation { due_at, ..operation(State::AwaitingApproval) };
    for given in [Answer::Approve, Answer::Deny] {
        assert!(answer(&row(ahead(SECOND)), given, NOW, &person()).is_ok());
        assert!(answer(&row(NOW), given, NOW, &person()).is_err(), "{given:?}");
    }
}

/// What waits and was never sent ends at once; what somebody owns is stopped by its own look; what
/// may have been sent stays what it is, and only its next send is stopped.
#[test]
fn an_approval_is_taken_back_until_the_effect() {
    let ends = [State::Queued, State::Held, State::RetryScheduled];
    let stays = [State::Claimed, State::Sent, State::Accepted, State::Parked, State::Unknown];
    for state in State::ALL {
        let row = in_order(Operation { twin: twin(None, false), ..operation(state) });
        let Ok(step) = withdraw(&row, &person()) else {
            assert!(!ends.contains(&state) && !stays.contains(&state), "{state:?}");
            continue;
        };
        assert_eq!(step.trace.len(), 1, "{state:?}: {:?}", step.trace);
        if ends.contains(&state) {
            let Operation { state, reason, token, .. } = step.record;
            assert_eq!((state, reason), (State::Rejected, Some(Reason::ApprovalWithdrawn)));
            assert!(token > row.token && step.frees_order && step.frees_twins);
        } else {
            assert!(stays.contains(&state), "{state:?}");
            assert_eq!(step.record, row);
        }
        let sent = sent_operation(state, HOUR);
        assert_eq!(withdraw(&sent, &person()).unwrap().record, sent, "{state:?}");
    }
}

#[test]
fn only_another_person_answers_and_only_for_what_was_shown() {
    let row = operation(State::AwaitingApproval);
    let shown = material().fingerprint.to_string();
    let by = |name: &str| Person { name: name.to_owned(), ..person() };
    let may = |row: &Operation, shown: &str, name: &str| may_answer(row, shown, &by(name)).is_ok();
    assert!(may(&row, &shown, "Ada"));
    assert!(!may(&row, &shown, "agent-7"), "the submitting actor");
    assert!(!may(&row, other_material().fingerprint.as_str(), "Ada"), "another request");
    assert!(!may(&row, "", "Ada"));
    let without = Operation { fingerprint: None, ..row.clone() };
    assert!(!may(&without, "", "Ada") && !may(&without, &shown, "Ada"));
    // Where no actor is on record, any named person may answer.
    assert!(may(&Operation { actor: None, ..row }, &shown, "Ada"));
}
