//! Look-ups and polls at a claim, and when an attempt that was lost is over.

use super::*;
use crate::domain::attempt::Job;
use crate::domain::operation::ProviderJob;
use crate::domain::records::lookup;
use crate::domain::rule::PollRule;

fn claim(row: &Operation, rule: &AttemptRule, alone: bool) -> Claim {
    let key = downstream_key("fresh");
    let claimant = Claimant { owner: "worker-2", alone, downstream_key: &|| key.clone() };
    decide(row, Recomputed::Valid(&material()), &records::alone(), NOW, rule, &claimant)
}

fn looked_up() -> AttemptRule {
    AttemptRule { lookup: Some(lookup()), ..rule(Resend::Never) }
}

#[test]
fn a_look_up_is_a_claim_that_sends_nothing() {
    let row = Operation {
        reason: Some(Reason::RefusedAfterUnproved),
        attempts: 2,
        lookups: 1,
        attempts_over_at: Some(ago(SECOND)),
        ..sent_operation(State::RetryScheduled, HOUR)
    };
    let run = run_of(claim(&row, &looked_up(), false));
    assert_eq!((run.purpose, run.send_within), (Purpose::LookUp, None));
    let record = &run.step.record;
    assert_eq!(record.state, State::Claimed);
    assert_eq!(record.lease.as_ref().unwrap().until, ahead(30 * SECOND));
    assert_eq!((run.ticket.token, run.ticket.at), (row.token.next(), NOW));
    assert_eq!(run.ticket.prior_first_sent_at, row.first_sent_at);
    // What the record knows of its sends stays, above all why it is not sent.
    assert_eq!((record.reason, record.attempts, record.lookups), (row.reason, 2, 1));
    assert_eq!(record.first_sent_at, row.first_sent_at);
    assert_eq!(record.attempts_over_at, row.attempts_over_at);
    assert_eq!(events(&run.step), ["claimed"]);

    // One that keeps killing its workers is set aside, as a send would be.
    let lost = |lost_claims| Operation { lost_claims, ..row.clone() };
    assert!(matches!(claim(&lost(3), &looked_up(), false), Claim::Alone));
    let parked = claim(&lost(5), &looked_up(), true);
    assert_eq!(word(&parked), "Parked refused_after_unproved");
    let other = Operation { reason: Some(Reason::Ambiguous), ..lost(5) };
    assert_eq!(word(&claim(&other, &looked_up(), true)), "Parked worker_lost");
}

/// An attempt is over when its owner said so, or long enough after the lease that it sent under.
#[test]
fn the_end_of_a_lost_attempt_counts_from_its_lease() {
    let rule = looked_up();
    let after_lease = |until: Timestamp| until.after(rule.timeout).after(rule.stall_margin);
    let over = |row: &Operation| run_of(claim(row, &rule, true)).step.record.attempts_over_at;
    let dead = |state| Operation {
        lease: lease_until(ago(SECOND)),
        attempts_over_at: Some(ago(MINUTE)),
        ..sent_operation(state, HOUR)
    };
    assert_eq!(over(&dead(State::Sent)), Some(after_lease(ago(SECOND))));
    // Claimed and not marked, or to look up only: that owner could not send.
    assert_eq!(over(&dead(State::Claimed)), Some(ago(MINUTE)));
    let later = Operation { attempts_over_at: Some(ahead(HOUR)), ..dead(State::Sent) };
    assert_eq!(over(&later), Some(ahead(HOUR)));
    // Put back, or restored: its last change stands for an attempt that nobody saw.
    let put_back = Operation { attempts_over_at: None, ..dead(State::Claimed) };
    assert_eq!(over(&put_back), Some(after_lease(put_back.updated_at)));
    // Never sent: there is nothing to be over.
    let lost = expired(operation(State::Claimed));
    assert_eq!(over(&lost), None);
}

#[test]
fn a_job_is_polled_at_its_pace_and_given_up_in_time() {
    let poll = PollRule { every: MINUTE, give_up: HOUR };
    let polled = AttemptRule { poll: Some(poll), ..rule(Resend::Never) };
    let job =
        |accepted_at| Some(ProviderJob { id: Job::new("J-1").unwrap(), accepted_at, alone: true });
    let accepted = |since| Operation {
        job: job(ago(since)),
        reason: Some(Reason::ProviderJob),
        ..sent_operation(State::Accepted, 2 * HOUR)
    };
    let early = Operation { due_at: ahead(SECOND), ..accepted(MINUTE) };
    assert_eq!(word(&claim(&early, &polled, false)), "leave Waiting");

    let row = accepted(MINUTE);
    let run = run_of(claim(&row, &polled, false));
    assert_eq!((run.purpose, run.ticket.token), (Purpose::Poll, row.token));
    // The next question comes, whatever becomes of this one; nobody owns the record for it.
    assert_eq!((run.step.publish_at, run.step.record.due_at), (Some(ahead(MINUTE)), ahead(MINUTE)));
    assert_eq!((run.step.record.state, run.step.record.lease.clone()), (State::Accepted, None));
    assert_eq!((run.step.record.token, run.step.record.reason), (row.token, row.reason));
    assert_eq!(events(&run.step), ["polled"]);

    assert_eq!(word(&claim(&accepted(HOUR - SECOND), &polled, false)), "run Accepted");
    let step = step_of(claim(&accepted(HOUR), &polled, false));
    assert_eq!(
        (step.record.state, step.record.reason),
        (State::Unknown, Some(Reason::JobUnfinished))
    );
    // It may still end: role maintain goes on asking. No job is made a second time.
    assert_eq!(step.record.next_lookup_at, Some(NOW));
    assert_eq!((step.record.job.clone(), step.publish_at), (job(ago(HOUR)), None));

    // A contract that has no poll, or a record without its job, asks nobody.
    let step = step_of(claim(&row, &rule(Resend::Always), false));
    assert_eq!((step.record.state, step.record.next_lookup_at), (State::Unknown, None));
}

/// A poll reads the record's job, not its arguments: nothing that may have changed is sent.
#[test]
fn a_job_is_followed_whatever_its_permissions_and_arguments_say() {
    let poll = PollRule { every: MINUTE, give_up: HOUR };
    let polled = AttemptRule { poll: Some(poll), ..rule(Resend::Never) };
    let key = downstream_key("fresh");
    let claimant = Claimant { owner: "worker-2", alone: false, downstream_key: &|| key.clone() };
    let denied = Permission::Denied(Denial::NotAuthorized);
    let around = Around { permission: denied, ..records::alone() };
    let row = sent_operation(State::Accepted, MINUTE);
    for recomputed in [Recomputed::Invalid, Recomputed::Valid(&other_material())] {
        let seen = decide(&row, recomputed, &around, NOW, &polled, &claimant);
        assert_eq!(run_of(seen).purpose, Purpose::Poll);
    }
}

#[test]
fn the_mark_rides_in_the_claim_only_where_nothing_else_is_asked() {
    for resend in RESENDS {
        for asks_before_send in [false, true] {
            let rule = AttemptRule { asks_before_send, lookup: Some(lookup()), ..rule(resend) };
            let run = run_of(claim(&operation(State::Queued), &rule, false));
            let harmless = matches!(resend, Resend::Always | Resend::Within(_));
            let folded = harmless && !asks_before_send;
            assert_eq!(run.ticket.marked, folded, "{resend:?} {asks_before_send}");
            assert_eq!(run.step.record.first_sent_at.is_some(), folded);
        }
    }
}

/// Waiting for its order, it may only be asked about: it still may only be asked about.
#[test]
fn waiting_for_order_keeps_why_it_is_not_sent() {
    for (reason, kept) in [
        (Reason::RefusedAfterUnproved, Reason::RefusedAfterUnproved),
        (Reason::NoProof, Reason::NoProof),
        (Reason::AttemptsExhausted, Reason::AttemptsExhausted),
        (Reason::Ambiguous, Reason::WaitingForOrder),
    ] {
        let row = Operation {
            reason: Some(reason),
            ..in_order(sent_operation(State::RetryScheduled, MINUTE))
        };
        let recomputed = Recomputed::Valid(&material());
        let claim = decide_with(&row, recomputed, Predecessor::Unfinished, RESENDS[1], false);
        let step = step_of(claim);
        assert_eq!(step.record.reason, Some(kept));
        assert!(step.record.order.as_ref().unwrap().waiting);
    }
}
