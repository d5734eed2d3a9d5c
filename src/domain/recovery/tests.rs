#![allow(clippy::wildcard_enum_match_arm, reason = "an expectation names the few that differ")]

mod unknown;

use proptest::prelude::*;

use super::*;
use crate::domain::attempt::{Job, Unconfirmed};
use crate::domain::claim::{Purpose, Ticket};
use crate::domain::evidence::Blank;
use crate::domain::operation::ProviderJob;
use crate::domain::records::{
    HOUR, MINUTE, NOW, RESENDS, SECOND, ago, ahead, effect, in_order, lease_until, lookup, rule,
    sent_operation,
};
use crate::domain::rule::PollRule;
use crate::domain::settle::answered;

fn rule_with(resend: Resend, lookup: Option<LookupRule>) -> AttemptRule {
    AttemptRule { lookup, ..rule(resend) }
}

/// Of a service that may answer with a job, which ends within an hour.
fn with_jobs(rule: AttemptRule) -> AttemptRule {
    AttemptRule { poll: Some(PollRule { every: MINUTE, give_up: HOUR }), ..rule }
}

fn job(alone: bool) -> Option<ProviderJob> {
    Some(ProviderJob { id: Job::new("J-1").unwrap(), accepted_at: ago(MINUTE), alone })
}

/// Reasons of a pending record that recovery reads, and some that it does not.
const REASONS: [Option<Reason>; 7] = [
    None,
    Some(Reason::Ambiguous),
    Some(Reason::MayHaveBeenSent),
    Some(Reason::WindowClosed),
    Some(Reason::RefusedAfterUnproved),
    Some(Reason::NoProof),
    Some(Reason::AttemptsExhausted),
];

/// The table of promises.md, asked in its own order, for every combination of what it looks at.
#[test]
fn each_unproved_send_has_one_way_on() {
    let by_reference = LookupRule { by_key: false, ..lookup() };
    let mut cases = 0;
    for resend in [RESENDS[0], RESENDS[1], RESENDS[2]] {
        for lookup in [None, Some(lookup()), Some(by_reference)] {
            for (age, attempts, lookups) in windows_attempts_lookups() {
                for reason in REASONS {
                    for (known, leased) in [(true, false), (true, true), (false, false)] {
                        let sent = sent_operation(State::RetryScheduled, age);
                        let key = sent.downstream_key.clone().filter(|_| known);
                        let lease = lease_until(ago(SECOND)).filter(|_| leased);
                        let row = Operation {
                            attempts,
                            lookups,
                            reason,
                            lease,
                            downstream_key: key,
                            ..sent
                        };
                        let seen = way(&row, NOW, &rule_with(resend, lookup));
                        assert_eq!(
                            seen,
                            expected(&row, resend, lookup),
                            "{resend:?} {lookup:?} {row:?} {lookups}"
                        );
                        cases += 1;
                    }
                }
            }
        }
    }
    assert_eq!(cases, 3 * 3 * 8 * 7 * 3);
}

fn windows_attempts_lookups() -> Vec<(Duration, u32, u32)> {
    let (open, closed) = (HOUR, 25 * HOUR);
    let each = |age| [(1, 0), (1, 4), (4, 0), (4, 4)].map(|(sends, asked)| (age, sends, asked));
    [each(open), each(closed)].concat()
}

fn expected(row: &Operation, resend: Resend, lookup: Option<LookupRule>) -> Way {
    let only_asked = match row.reason {
        Some(Reason::RefusedAfterUnproved | Reason::NoProof | Reason::AttemptsExhausted) => true,
        _ => row.attempts >= 4,
    };
    let open = row.key_first_used_at == Some(ago(HOUR));
    let again = match resend {
        Resend::Always => true,
        Resend::Within(_) => open && row.downstream_key.is_some(),
        Resend::Never | Resend::InTransaction => false,
    };
    if again && !only_asked {
        return Way::Send;
    }
    let askable = lookup.is_some_and(|l| !l.by_key || row.downstream_key.is_some());
    if askable && row.lookups < 4 {
        return Way::LookUp;
    }
    Way::Stop(match row.reason {
        Some(
            kept @ (Reason::RefusedAfterUnproved | Reason::NoProof | Reason::AttemptsExhausted),
        ) => kept,
        _ if row.attempts >= 4 => Reason::AttemptsExhausted,
        Some(Reason::MayHaveBeenSent) => Reason::MayHaveBeenSent,
        _ if matches!(resend, Resend::Within(_)) && !open => Reason::WindowClosed,
        _ if row.lease.is_some() => Reason::WorkerLost,
        _ => Reason::NoProof,
    })
}

/// A stored job can be asked about where nothing else can.
#[test]
fn a_job_is_somebody_to_ask() {
    let row = Operation { job: job(false), ..sent_operation(State::RetryScheduled, HOUR) };
    let no_poll = rule_with(Resend::Never, None);
    assert_eq!(way(&row, NOW, &with_jobs(no_poll)), Way::LookUp);
    assert_eq!(way(&row, NOW, &no_poll), Way::Stop(Reason::NoProof));
}

/// What a look-up asks by has to be known: nobody can be asked by a receipt that never came.
#[test]
fn a_look_up_is_asked_by_what_is_known_only() {
    let row = sent_operation(State::RetryScheduled, HOUR);
    let by_receipt = LookupRule { by_key: false, by_receipt: true, ..lookup() };
    let by_job = LookupRule { by_key: false, by_job: true, ..lookup() };
    let check = |row: &Operation, lookup, expected| {
        assert_eq!(way(row, NOW, &rule_with(Resend::Never, Some(lookup))), expected);
    };
    check(&row, by_receipt, Way::Stop(Reason::NoProof));
    check(&row, by_job, Way::Stop(Reason::NoProof));
    let receipt = Operation { effect_reference: Some("T-1".to_owned()), ..row.clone() };
    check(&receipt, by_receipt, Way::LookUp);
    check(&receipt, by_job, Way::Stop(Reason::NoProof));
    check(&Operation { job: job(true), ..row }, by_job, Way::LookUp);
}

fn every_evidence() -> Vec<Evidence> {
    let blanks = [
        Blank::Unreachable,
        Blank::Unclear,
        Blank::NoReceipt,
        Blank::Denied,
        Blank::Unbuildable,
        Blank::NoQuestion,
        Blank::Panicked,
    ];
    let mut all = vec![
        Evidence::Found(effect("T-1")),
        Evidence::Unconfirmed(effect("T-1"), Unconfirmed::Failed),
        Evidence::Unconfirmed(effect("T-1"), Unconfirmed::Unreachable),
        Evidence::Absent,
        Evidence::JobFailed,
        Evidence::JobRuns,
    ];
    all.extend(blanks.map(Evidence::CannotTell));
    all
}

/// Every rule on absence.
fn every_lookup() -> Vec<LookupRule> {
    let mut all = Vec::new();
    for authoritative in [true, false] {
        for when_absent in [AbsentRule::Resend, AbsentRule::Operator] {
            all.push(LookupRule { authoritative, when_absent, ..lookup() });
        }
    }
    all
}

/// Ten seconds until an effect shows, five for a clock that jumps.
const VISIBLE: Duration = Duration::from_secs(15);

fn asked(at: Timestamp) -> Asked {
    Asked { at, jitter: 0.5 }
}

fn ask(row: &Operation, evidence: &Evidence, at: Timestamp, rule: &AttemptRule) -> Step {
    let ticket =
        Ticket { token: row.token, prior_first_sent_at: row.first_sent_at, marked: true, at };
    match answered(row, &ticket, Purpose::LookUp, evidence, NOW, rule, 0.5) {
        Settle::Write(step) => *step,
        other => panic!("nothing to write: {other:?}"),
    }
}

fn word(step: &Step) -> String {
    let reason = step.record.reason.map_or("-", Reason::code);
    let wait = step.publish_at.map(|at| format!(" in {}", at.since(NOW).as_secs()));
    format!("{:?} {reason}{}", step.record.state, wait.unwrap_or_default())
}

/// A record that is being looked up, its last attempt over an hour ago.
fn looked_at() -> Operation {
    Operation {
        attempts_over_at: Some(ago(HOUR)),
        reason: Some(Reason::Ambiguous),
        ..in_order(sent_operation(State::Claimed, 2 * HOUR))
    }
}

#[test]
fn what_a_look_up_makes_of_a_pending_record() {
    let check = |row: &Operation, evidence: Evidence, lookup, expected: &str| {
        let rule = rule_with(Resend::Never, Some(lookup));
        assert_eq!(word(&ask(row, &evidence, NOW, &rule)), expected, "{evidence:?}");
    };
    let row = looked_at();
    let (resend, operator) =
        (lookup(), LookupRule { when_absent: AbsentRule::Operator, ..lookup() });
    let cache = LookupRule { authoritative: false, ..lookup() };
    check(&row, Evidence::Found(effect("T-1")), cache, "Applied -");
    let unconfirmed = |why| Evidence::Unconfirmed(effect("T-1"), why);
    check(&row, unconfirmed(Unconfirmed::Failed), cache, "Unknown postcondition_failed");
    check(&row, unconfirmed(Unconfirmed::Unreachable), cache, "Unknown postcondition_unreachable");

    check(&row, Evidence::Absent, resend, "RetryScheduled proved_absent in 0");
    check(&row, Evidence::Absent, operator, "Unknown absent_needs_decision");
    check(&row, Evidence::Absent, cache, "RetryScheduled ambiguous in 1");
    let over = |at| Operation { attempts_over_at: Some(at), ..row.clone() };
    check(&over(ago(VISIBLE)), Evidence::Absent, resend, "RetryScheduled proved_absent in 0");
    // Too early is no answer: it is asked again when it will be one, for whatever reason it was.
    let early = over(ago(VISIBLE - 5 * SECOND));
    check(&early, Evidence::Absent, resend, "RetryScheduled ambiguous in 5");
    let refused = Reason::RefusedAfterUnproved;
    let early = Operation { reason: Some(refused), ..early };
    check(&early, Evidence::Absent, resend, "RetryScheduled refused_after_unproved in 5");

    // Nothing was done, and nothing more will be.
    let ends = |reason, attempts| Operation { reason: Some(reason), attempts, ..row.clone() };
    check(&ends(refused, 1), Evidence::Absent, resend, "FailedPermanent refused");
    check(
        &ends(Reason::Ambiguous, 4),
        Evidence::Absent,
        resend,
        "FailedPermanent attempts_exhausted",
    );
    let given_up = ends(Reason::AttemptsExhausted, 1);
    check(&given_up, Evidence::Absent, resend, "FailedPermanent attempts_exhausted");
    let not_ours = ends(Reason::NoProof, 1);
    check(&not_ours, Evidence::Absent, resend, "RetryScheduled proved_absent in 0");

    // A provider that has the job may make the effect at any time.
    let with_job = Operation { job: job(true), ..row.clone() };
    check(&with_job, Evidence::Absent, resend, "RetryScheduled ambiguous in 1");
    for nothing in [Evidence::JobRuns, Evidence::CannotTell(Blank::Unreachable)] {
        check(&row, nothing.clone(), resend, "RetryScheduled ambiguous in 1");
        let often = |lookups, reason| Operation { lookups, reason: Some(reason), ..row.clone() };
        let third = often(2, Reason::Ambiguous);
        check(&third, nothing.clone(), resend, "RetryScheduled ambiguous in 4");
        let last = often(3, Reason::Ambiguous);
        check(&last, nothing.clone(), resend, "Unknown no_proof");
        let last = often(3, refused);
        check(&last, nothing, resend, "Unknown refused_after_unproved");
    }
}

/// An answer that was lost, or that named no job, may have left one behind: it shows when it is done.
#[test]
fn an_absence_proves_nothing_while_a_job_without_a_name_may_run() {
    let rule = with_jobs(rule_with(Resend::Never, Some(lookup())));
    let check = |over, expected: &str| {
        let row = Operation { attempts_over_at: Some(over), ..looked_at() };
        assert_eq!(word(&ask(&row, &Evidence::Absent, NOW, &rule)), expected);
    };
    check(ago(MINUTE), "RetryScheduled ambiguous in 3560");
    check(ago(HOUR + VISIBLE), "RetryScheduled ambiguous in 5");
    check(ago(HOUR + VISIBLE + rule.margin), "RetryScheduled proved_absent in 0");
}

/// What holds of every answer to a pending record, whatever the table says.
#[test]
fn no_answer_breaks_a_promise_on_a_pending_record() {
    for lookup in every_lookup() {
        for over in [ago(HOUR), ago(VISIBLE), ago(SECOND), ahead(MINUTE)] {
            for lookups in [0, 2, 3] {
                for reason in REASONS {
                    for job in [None, job(true), job(false)] {
                        let attempts_over_at = Some(over);
                        let row = Operation {
                            attempts_over_at,
                            lookups,
                            reason,
                            job: job.clone(),
                            ..looked_at()
                        };
                        for evidence in every_evidence() {
                            hold_pending(&row, &evidence, lookup, over);
                        }
                    }
                }
            }
        }
    }
}

fn hold_pending(row: &Operation, evidence: &Evidence, lookup: LookupRule, over: Timestamp) {
    let rule = rule_with(RESENDS[1], Some(lookup));
    let step = ask(row, evidence, NOW, &rule);
    let record = &step.record;
    let seen = format!("{evidence:?} {lookup:?} {over:?} {row:?}");
    assert!(step.trace.iter().all(|row| row.event != "refused"), "{seen}");
    assert_eq!((record.lease.clone(), record.lost_claims), (None, 0), "{seen}");
    assert_eq!(step.frees_order, record.state.is_finished(), "{seen}");
    assert_eq!(step.publish_at.is_some(), record.state == State::RetryScheduled, "{seen}");
    assert_eq!(record.key_first_used_at, row.key_first_used_at, "{seen}");
    assert_ne!(record.state, State::Rejected, "{seen}");
    let proves = matches!(evidence, Evidence::Found(_));
    assert_eq!(record.state == State::Applied, proves, "{seen}");
    // The mark goes with proof that no attempt had an effect, and with nothing else.
    let absent = *evidence == Evidence::Absent
        && lookup.authoritative
        && lookup.when_absent == AbsentRule::Resend
        && row.job.is_none()
        && NOW >= over.after(VISIBLE);
    assert_eq!(record.first_sent_at.is_none(), absent, "{seen}");
    assert_eq!(record.attempts_over_at.is_none(), absent, "{seen}");
    assert!(record.state != State::FailedPermanent || absent, "{seen}");
    // What remains unproved and must not be sent is never made sendable by an answer.
    if record.state == State::RetryScheduled && !absent {
        assert_eq!(record.reason, row.reason.or(Some(Reason::Ambiguous)), "{seen}");
    }
    assert!(record.lookups <= row.lookups + 1, "{seen}");
    assert!(record.state != State::Unknown || record.lookups == 0, "{seen}");
    if let Some(at) = record.next_lookup_at {
        assert!(record.state == State::Unknown, "{seen} {at:?}");
    }
}

/// An answer belongs to the claim that asked.
#[test]
fn an_absence_from_a_claim_that_is_gone_changes_nothing() {
    let row = looked_at();
    let rule = rule_with(Resend::Never, Some(lookup()));
    let stale = Ticket {
        token: crate::domain::operation::Token(0),
        prior_first_sent_at: row.first_sent_at,
        marked: true,
        at: NOW,
    };
    for evidence in every_evidence() {
        let settled = answered(&row, &stale, Purpose::LookUp, &evidence, NOW, &rule, 0.5);
        let proves = matches!(evidence, Evidence::Found(_) | Evidence::Unconfirmed(..));
        assert_eq!(matches!(settled, Settle::Write(_)), proves, "{evidence:?}");
        assert_eq!(matches!(settled, Settle::LostLease), !proves, "{evidence:?}");
    }
}

/// Put back, or restored: nobody knows when its attempts were over. Each look-up writes the record,
/// and must not begin the wait anew.
#[test]
fn a_record_without_an_end_of_its_attempts_is_not_asked_too_early_for_ever() {
    let rule = rule_with(Resend::Never, Some(lookup()));
    let unmarked = |state| Operation {
        attempts_over_at: None,
        updated_at: ago(SECOND),
        ..sent_operation(state, HOUR)
    };
    let first = ask(&unmarked(State::Claimed), &Evidence::Absent, NOW, &rule);
    assert_eq!(word(&first), "RetryScheduled ambiguous in 324");

    let unknown = Operation { unresolved_since: Some(ago(SECOND)), ..unmarked(State::Unknown) };
    let step = reconciled_by(&unknown, &Evidence::Absent, NOW, &rule).unwrap();
    let over = ago(SECOND).after(rule.timeout).after(rule.stall_margin);
    assert_eq!(step.record.attempts_over_at, Some(over));
    let at = step.record.next_lookup_at.unwrap();
    assert_eq!(at, over.after(VISIBLE));
    let later = Operation { updated_at: NOW, ..step.record };
    let step = reconciled_by(&later, &Evidence::Absent, at, &rule).unwrap();
    assert_eq!(step.record.state, State::FailedPermanent);
}

fn reconciled_by(
    row: &Operation,
    evidence: &Evidence,
    at: Timestamp,
    rule: &AttemptRule,
) -> Option<Step> {
    match reconcile(row, evidence, asked(at), at, rule) {
        Settle::Write(step) => Some(*step),
        Settle::Acknowledged => None,
        Settle::LostLease => panic!("an unknown record has no owner"),
    }
}

proptest! {
    /// An absence frees a send, or ends the record, only when it was asked for after everything that
    /// an attempt could still do, and after that could be seen.
    #[test]
    fn no_absence_frees_a_send_too_early(
        over in -600i64..600,
        asked_at in -600i64..0,
        visible_after in 0u64..120,
        unknown_one in any::<bool>(),
        refused in any::<bool>(),
    ) {
        let at = |seconds: i64| Timestamp(NOW.0 + seconds * 1_000_000);
        let lookup = LookupRule { visible_after: Duration::from_secs(visible_after), ..lookup() };
        let rule = rule_with(RESENDS[1], Some(lookup));
        let reason = refused.then_some(Reason::RefusedAfterUnproved);
        let row = Operation { attempts_over_at: Some(at(over)), reason, ..looked_at() };
        let record = if unknown_one {
            let row = Operation { state: State::Unknown, lease: None, ..row };
            match reconcile(&row, &Evidence::Absent, asked(at(asked_at)), NOW, &rule) {
                Settle::Write(step) => step.record,
                other => panic!("{other:?}"),
            }
        } else {
            ask(&row, &Evidence::Absent, at(asked_at), &rule).record
        };
        let seen = at(over).after(lookup.visible_after);
        let proved = record.first_sent_at.is_none();
        prop_assert!(!proved || at(asked_at) >= seen);
        prop_assert!(proved || at(asked_at) < seen.after(rule.margin));
        // Asked again when it can be an answer.
        let next = if unknown_one { record.next_lookup_at } else { Some(record.due_at) };
        prop_assert!(proved || next.is_some_and(|next| next >= seen));
    }
}
