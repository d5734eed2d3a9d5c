//! Twins, approvals and permissions at a claim: they guard sending, never finding out.

use super::*;
use crate::domain::operation::Twin;
use crate::domain::records::lookup;

const OTHER: Uuid = Uuid::from_u128(3);
const THIRD: Uuid = Uuid::from_u128(4);

/// A tool that holds twins, and can be looked up.
fn holding() -> AttemptRule {
    AttemptRule { twins: Some(Duration::ZERO), lookup: Some(lookup()), ..rule(Resend::Never) }
}

fn claim(row: &Operation, twins: Twins, permission: Permission, rule: &AttemptRule) -> Claim {
    claim_in(row, Around { twins, permission, ..records::alone() }, rule)
}

fn claim_in(row: &Operation, around: Around, rule: &AttemptRule) -> Claim {
    let key = downstream_key("fresh");
    let claimant = Claimant { owner: "worker-2", alone: true, downstream_key: &|| key.clone() };
    decide(row, Recomputed::Valid(&material()), &around, NOW, rule, &claimant)
}

fn twin_of(row: Operation, held_behind: Option<Uuid>, released: bool) -> Operation {
    let twin = Twin { digest: "sha256:1:d".to_owned(), held_behind, released };
    Operation { twin: Some(twin), ..row }
}

fn held(behind: Uuid) -> Operation {
    let row = Operation { due_at: ahead(HOUR), ..operation(State::Held) };
    twin_of(Operation { reason: Some(Reason::SuspectedTwin), ..row }, Some(behind), false)
}

fn behind_of(step: &Step) -> Option<Uuid> {
    step.record.twin.as_ref().and_then(|twin| twin.held_behind)
}

#[test]
fn a_first_claim_waits_behind_its_twin_and_ends_with_it() {
    let check = |row: &Operation, twins, expected: &str| {
        let seen = claim(row, twins, Permission::Allowed, &holding());
        assert_eq!(word(&seen), expected, "{twins:?} {row:?}");
        seen
    };
    let fresh = operation(State::Queued);
    let again = operation(State::RetryScheduled);
    let lost = expired(operation(State::Claimed));
    for row in [&fresh, &again, &lost] {
        check(row, Twins::Free, "run Claimed");
        let step = step_of(check(row, Twins::Behind(OTHER), "Held suspected_twin"));
        assert_eq!((behind_of(&step), step.record.due_at), (Some(OTHER), ahead(24 * HOUR)));
        assert_eq!((step.publish_at, step.record.lease.clone()), (None, None));
        assert!(events(&step).contains(&"held"));
        let step = step_of(check(row, Twins::Applied(OTHER), "Rejected suspected_twin"));
        assert_eq!(behind_of(&step), Some(OTHER));
        assert!(step.frees_twins);
    }

    let waits = held(OTHER);
    let same = check(&waits, Twins::Behind(OTHER), "leave Held");
    assert!(matches!(same, Claim::Leave(Leave::Held)));
    // The next oldest stands before it now; it waits no longer for that in all.
    let step = step_of(check(&waits, Twins::Behind(THIRD), "Held suspected_twin"));
    assert_eq!((behind_of(&step), step.record.due_at), (Some(THIRD), waits.due_at));
    assert_eq!(step.record.sweeps, 0);
    check(&waits, Twins::Applied(OTHER), "Rejected suspected_twin");
    let run = run_of(check(&waits, Twins::Free, "run Claimed"));
    assert_eq!(run.step.record.reason, None);

    // A day is enough, behind whomever.
    let overdue = Operation { due_at: NOW, ..held(OTHER) };
    for twins in [Twins::Behind(OTHER), Twins::Behind(THIRD), Twins::Applied(OTHER)] {
        check(&overdue, twins, "Rejected suspected_twin");
    }
    check(&overdue, Twins::Free, "run Claimed");
}

#[test]
fn a_released_twin_and_one_that_may_have_been_sent_are_held_behind_nobody() {
    let check = |row: &Operation, expected: &str| {
        for twins in [Twins::Free, Twins::Behind(OTHER), Twins::Applied(OTHER)] {
            let seen = claim(row, twins, Permission::Allowed, &holding());
            assert_eq!(word(&seen), expected, "{twins:?} {row:?}");
        }
    };
    check(&twin_of(operation(State::Queued), Some(OTHER), true), "run Claimed");
    check(&twin_of(operation(State::Held), Some(OTHER), true), "run Claimed");
    // Recovery is its own business: there may be an effect already.
    let sent = sent_operation(State::RetryScheduled, MINUTE);
    let run = run_of(claim(&sent, Twins::Behind(OTHER), Permission::Allowed, &holding()));
    assert_eq!(run.purpose, Purpose::LookUp);
}

/// Whoever has passed its twins once is never held behind them, whatever becomes of its attempt: so
/// nobody waits for somebody who waits for it.
#[test]
fn who_goes_is_let_go_for_good() {
    let goes = |record: &Operation| {
        let twin = record.twin.as_ref().unwrap();
        (twin.released, twin.held_behind)
    };
    let waits = held(OTHER);
    let run = run_of(claim(&waits, Twins::Free, Permission::Allowed, &holding()));
    assert_eq!(goes(&run.step.record), (true, None));
    let step = step_of(claim(&waits, Twins::Free, Permission::NeedsApproval, &holding()));
    assert_eq!(goes(&step.record), (true, None), "while it waits for a person, too");
    let step = step_of(claim(&waits, Twins::Behind(THIRD), Permission::Allowed, &holding()));
    assert_eq!(goes(&step.record), (false, Some(THIRD)));
}

/// A held one before which somebody of its ordering key is open again waits for that, and not for the
/// end of its day.
#[test]
fn a_held_one_whose_turn_is_over_goes_back_to_the_queue() {
    let around = Around { predecessor: Predecessor::Unfinished, ..records::alone() };
    let step = step_of(claim_in(&in_order(held(OTHER)), around, &holding()));
    assert_eq!((step.record.state, step.record.due_at), (State::Queued, NOW));
    assert!(step.record.order.is_some_and(|order| order.waiting));
    assert!(!step.record.twin.is_some_and(|twin| twin.released));
}

/// The digest is there before the twin that comes next can look for it.
#[test]
fn a_first_claim_says_whose_twin_it_is() {
    let row = Operation { fingerprint: None, ..operation(State::Queued) };
    let digest = |rule: &AttemptRule, row: &Operation| {
        let run = run_of(claim(row, Twins::Free, Permission::Allowed, rule));
        run.step.record.twin.map(|twin| (twin.digest, twin.held_behind, twin.released))
    };
    let expected = twin_digest("acme", "prod", "tickets.create", &material().digests);
    assert_eq!(digest(&holding(), &row), Some((expected.clone(), None, true)));
    assert_eq!(digest(&rule(Resend::Never), &row), None);
    // Another key and another version of the same tool: a twin. Another environment: none.
    let other =
        |environment: &str, tool: &str| twin_digest("acme", environment, tool, &material().digests);
    assert_ne!(other("test", "tickets.create"), expected);
    assert_ne!(other("prod", "tickets.close"), expected);
    assert_ne!(twin_digest("acme", "prod", "tickets.create", &other_material().digests), expected);
    // No two neighbours share it by where one part ends.
    assert_ne!(other("prod1", "t"), other("prod", "1t"));
}

/// The last key is unset, the twin is free: what is left is who may.
const DENIALS: [Denial; 5] = [
    Denial::NotAuthorized,
    Denial::ApprovalDenied,
    Denial::ApprovalWithdrawn,
    Denial::ApprovalExpired,
    Denial::PreconditionFailed,
];

#[test]
fn what_may_not_be_sent_is_rejected_only_if_it_never_was() {
    let never = AttemptRule { lookup: None, ..holding() };
    let dedup = AttemptRule { resend: RESENDS[1], ..never };
    let always = AttemptRule { resend: Resend::Always, ..never };
    for denial in DENIALS {
        let code = denial.reason().code();
        for rule in [&never, &dedup, &always] {
            let check = |row: &Operation, expected: String| {
                let seen = claim(row, Twins::Free, Permission::Denied(denial), rule);
                assert_eq!(word(&seen), expected, "{denial:?} {:?} {row:?}", rule.resend);
                step_of(seen)
            };
            for state in [State::Queued, State::RetryScheduled, State::Held] {
                let step = check(&in_order(operation(state)), format!("Rejected {code}"));
                assert!(step.frees_order && step.publish_at.is_none());
            }
            let lost = expired(operation(State::Claimed));
            assert_eq!(check(&lost, format!("Rejected {code}")).record.token, lost.token.next());
            if rule.resend == Resend::Never {
                continue;
            }
            // Nothing is sent, and it is unknown: an attempt may have had its effect.
            for state in [State::RetryScheduled, State::Claimed, State::Sent] {
                let row = Operation { lease: None, ..sent_operation(state, MINUTE) };
                let step = check(&row, format!("Unknown {code}"));
                assert_eq!(step.record.first_sent_at, row.first_sent_at);
                assert_eq!(step.record.next_lookup_at, None, "nobody can be asked");
            }
        }
    }
    // Finding out goes on: at once, while it is pending, and by role maintain after that.
    let sent = sent_operation(State::RetryScheduled, MINUTE);
    for denial in DENIALS {
        let denied = Permission::Denied(denial);
        let run = run_of(claim(&sent, Twins::Free, denied, &holding()));
        assert_eq!(run.purpose, Purpose::LookUp, "the checks guard sending only");
        let both = AttemptRule { resend: RESENDS[1], ..holding() };
        let step = step_of(claim(&sent, Twins::Free, denied, &both));
        assert_eq!((step.record.state, step.record.next_lookup_at), (State::Unknown, Some(NOW)));
    }
}

#[test]
fn an_approval_is_asked_for_once_and_waited_for() {
    let asks =
        |row: &Operation| step_of(claim(row, Twins::Free, Permission::NeedsApproval, &holding()));
    for row in [operation(State::Queued), held(OTHER), expired(operation(State::Claimed))] {
        let step = asks(&in_order(row));
        let record = &step.record;
        assert_eq!(record.state, State::AwaitingApproval);
        assert_eq!(record.reason, Some(Reason::AwaitingApproval));
        assert!(step.asks_approval && !step.frees_order && !step.frees_twins);
        assert_eq!((step.publish_at, record.due_at), (None, ahead(72 * HOUR)));
        assert!(!events(&step).contains(&"refused"));
    }
    let waits = Operation { due_at: ahead(SECOND), ..operation(State::AwaitingApproval) };
    for permission in [Permission::Allowed, Permission::NeedsApproval] {
        let seen = claim(&waits, Twins::Free, permission, &holding());
        assert!(matches!(seen, Claim::Leave(Leave::Waiting)), "its answer publishes it");
    }
    let overdue = Operation { due_at: NOW, ..waits };
    let seen = claim(&overdue, Twins::Free, Permission::NeedsApproval, &holding());
    assert_eq!(word(&seen), "Rejected approval_timed_out");
    // A restore may have marked it; nobody is asked about what is not sent again anyhow.
    let sent = sent_operation(State::AwaitingApproval, MINUTE);
    let seen = step_of(claim(&sent, Twins::Free, Permission::NeedsApproval, &holding()));
    assert_eq!((seen.record.state, seen.record.next_lookup_at), (State::Unknown, Some(NOW)));
    let sent = sent_operation(State::Queued, MINUTE);
    let dedup = AttemptRule { resend: RESENDS[1], ..holding() };
    let seen = step_of(claim(&sent, Twins::Free, Permission::NeedsApproval, &dedup));
    assert_eq!(seen.record.state, State::Unknown);
    assert!(!seen.asks_approval);
}

/// A twin is held before anybody is asked to approve it.
#[test]
fn nobody_is_asked_to_approve_a_twin() {
    let row = operation(State::Queued);
    let seen = claim(&row, Twins::Behind(OTHER), Permission::NeedsApproval, &holding());
    assert_eq!(word(&seen), "Held suspected_twin");
}

#[test]
fn the_mark_asks_once_more() {
    let row = operation(State::Claimed);
    let ticket = Ticket { token: row.token, prior_first_sent_at: None, marked: false, at: NOW };
    let mark = |row: &Operation, permission| mark_sent(row, &ticket, permission, NOW);
    for denial in DENIALS {
        let seen = mark(&row, Permission::Denied(denial));
        assert!(matches!(seen, Marking::Forbidden(why) if why == denial));
    }
    let seen = mark(&row, Permission::NeedsApproval);
    assert!(matches!(seen, Marking::Forbidden(Denial::ApprovalWithdrawn)));
    // The commit of the first mark was not answered, and the right is gone meanwhile.
    let sent = sent_operation(State::Sent, SECOND);
    let seen = mark(&sent, Permission::Denied(Denial::NotAuthorized));
    assert!(matches!(seen, Marking::Forbidden(Denial::NotAuthorized)));
    // Whoever lost the claim is told that, whatever it may.
    let stale = Operation { token: Token(9), ..row };
    let seen = mark(&stale, Permission::Denied(Denial::NotAuthorized));
    assert!(matches!(seen, Marking::Lost));
}
