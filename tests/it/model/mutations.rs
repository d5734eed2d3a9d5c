//! The model sees: each bug of the protocol that is planted breaks a rule, and the rule is named.

use stateright::{Checker as _, HasDiscoveries, Model as _};

use super::MOST_STATES;
use super::properties as rule;
use super::protocol::Fault;
use super::runs;
use super::setup::Setup;
use super::shell::Shell;

/// Demands that `fault`, planted in the run of `setup`, breaks the rule `property`.
fn caught(fault: Fault, setup: Setup, property: &'static str) {
    let name = setup.name;
    let checker = Shell::new(setup, Some(fault))
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .target_state_count(MOST_STATES)
        .spawn_bfs()
        .join();
    let mut broken = checker.discoveries();
    let others: Vec<_> = broken.keys().copied().filter(|other| *other != property).collect();
    let Some(path) = broken.remove(property) else {
        panic!("{fault:?} in {name}: not caught by {property:?}, but by {others:?}");
    };
    let steps = path.into_actions();
    println!(
        "{fault:?} in {name}: {property}, after {} states: {steps:?}",
        checker.unique_state_count()
    );
}

macro_rules! caught {
    ($($test:ident: $fault:ident in $run:ident breaks $property:ident;)*) => {
        $(#[test] fn $test() { caught(Fault::$fault, runs::$run(), rule::$property); })*
    };
}

caught! {
    a_claim_that_ignores_a_live_lease: LiveLeaseIgnored in lookup_frozen breaks NO_BLIND_SEND;
    a_refusal_under_an_old_token: TokenIgnored in dedup breaks STALE_WRITES_PROOF;
    a_mark_under_an_old_token: StaleMark in blind breaks STALE_WRITES_PROOF;
    a_mark_that_is_not_durable: MarkNotDurable in blind breaks NO_BLIND_SEND;
    a_claim_that_forgets_its_mark: ClaimUnmarked in grants breaks REJECTED_TRUE;
    a_blind_tool_that_is_sent_again: BlindResend in blind breaks NO_BLIND_SEND;
    an_absence_while_an_attempt_is_under_way: AbsenceTooEarly in lookup breaks ONE_EFFECT;
    an_absence_of_what_cannot_be_seen_yet: InvisibleIsAbsent in lookup breaks NO_BLIND_SEND;
    an_absence_in_a_cache: CacheBelieved in cache breaks ONE_EFFECT;
    a_refusal_after_an_unproved_attempt: RefusalFinal in dedup breaks FAILED_TRUE;
    a_receipt_from_an_old_owner_that_is_ignored: StaleReceiptIgnored in blind breaks RECEIPT_KEPT;
    a_key_that_changes: KeyChanges in dedup breaks ONE_EFFECT;
    a_window_that_nobody_looks_at: WindowUnchecked in dedup breaks NO_BLIND_SEND;
    a_denial_that_rejects_what_was_sent: DenialRejects in grants breaks REJECTED_TRUE;
    a_denial_that_stops_nothing: DenialIgnored in grants breaks ALLOWED;
    an_approval_that_nobody_gave: DenialIgnored in approvals breaks ALLOWED;
    a_second_job: SecondJob in jobs breaks ONE_JOB;
    twins_that_are_not_held: TwinsFree in twins breaks ONE_OF_TWINS;
    already_on_a_first_send: AlreadyCounts in done_by_another breaks APPLIED_TRUE;
    not_applied_while_an_attempt_is_under_way: NotAppliedAtOnce in operators breaks FAILED_TRUE;
    a_reopening_of_what_may_have_been_sent: ReopenUnproved in operators breaks NO_BLIND_SEND;
    an_unknown_that_is_sent_again: UnknownResent in lookup breaks PEOPLE_FIRST;
    an_open_outcome_taken_for_none: AmbiguousIsNothing in blind breaks NO_BLIND_SEND;
    a_gate_that_ignores_the_lease: GateUnchecked in lookup breaks NO_BLIND_SEND;
    a_job_that_fails_after_another_attempt: JobFailureFinal in jobs_dedup breaks FAILED_TRUE;
    an_absence_while_a_job_may_run: JobForgotten in jobs_lookup breaks ONE_JOB;
    not_applied_within_a_time_out: TimeOutForgotten in operators breaks FAILED_TRUE;
    an_applied_record_taken_back: AppliedUndone in lookup breaks APPLIED_STAYS;
    a_record_left_claimed: LeftClaimed in lookup breaks COMES_TO_AN_END;
}

/// The residue that the README names is one: a longer freeze makes a second effect.
#[test]
fn a_freeze_beyond_the_stall_margin_is_seen() {
    let checker = Shell::new(runs::frozen_too_long(), None)
        .checker()
        .finish_when(HasDiscoveries::AnyOf([rule::ONE_EFFECT].into()))
        .target_state_count(MOST_STATES)
        .spawn_bfs()
        .join();
    let steps = checker.discovery(rule::ONE_EFFECT).expect("a second effect").into_actions();
    println!("frozen too long: {steps:?}");
}
