//! Above all: permission, approval, precondition or anything else that is lost *after* an unproved send
//! never ends as rejected, and never as a failure without proof.

use uuid::Uuid;

use super::*;
use crate::domain::attempt::Denial;
use crate::domain::claim::{
    Around, Claim, Claimant, Marking, Predecessor, Recomputed, Twins, decide as claim, mark_sent,
};
use crate::domain::permission::Permission;
use crate::domain::records::{
    ahead, alone, downstream_key, lease_until, lookup, material, other_material, person,
};
use crate::domain::verbs::{self, Answer};

const DENIALS: [Denial; 5] = [
    Denial::NotAuthorized,
    Denial::ApprovalDenied,
    Denial::ApprovalWithdrawn,
    Denial::ApprovalExpired,
    Denial::PreconditionFailed,
];

fn every_permission() -> Vec<Permission> {
    let mut all = vec![Permission::Allowed, Permission::NeedsApproval];
    all.extend(DENIALS.map(Permission::Denied));
    all
}

/// Every rule on sending again, with and without a look-up and something to ask first.
fn every_rule() -> Vec<AttemptRule> {
    let mut all = Vec::new();
    for resend in [RESENDS[0], RESENDS[1], RESENDS[2]] {
        for lookup in [None, Some(lookup())] {
            for asks_before_send in [false, true] {
                let twins = Some(Duration::ZERO);
                all.push(AttemptRule { lookup, asks_before_send, twins, ..rule(resend) });
            }
        }
    }
    all
}

/// Every pending record that may have been sent, as any claim could find it.
fn every_unproved() -> Vec<Operation> {
    let mut rows = Vec::new();
    for state in State::ALL.into_iter().filter(|state| state.is_pending()) {
        for age in [MINUTE, 25 * HOUR] {
            for lease in [None, lease_until(ago(SECOND)), lease_until(ahead(SECOND))] {
                let leased = matches!(state, State::Claimed | State::Sent);
                if lease.is_some() && !leased {
                    continue;
                }
                for fingerprint in [None, Some(material().fingerprint)] {
                    for lost_claims in [0, 4] {
                        for attempts in [0, 1, 4] {
                            let row = in_order(sent_operation(state, age));
                            rows.push(Operation {
                                lease: lease.clone(),
                                fingerprint: fingerprint.clone(),
                                lost_claims,
                                attempts,
                                ..row
                            });
                        }
                    }
                }
            }
        }
    }
    rows
}

fn hold(before: &Operation, step: &Step, seen: &str) {
    let no_effect = [State::Rejected, State::FailedPermanent, State::Expired];
    assert!(!no_effect.contains(&step.record.state), "{:?}: {seen}", step.record.state);
    assert_eq!(step.record.first_sent_at, before.first_sent_at, "the mark is gone: {seen}");
    assert!(step.trace.iter().all(|row| row.event != "refused"), "{seen}");
}

#[test]
fn no_claim_calls_an_unproved_send_rejected() {
    let (same, other) = (material(), other_material());
    let readings = [Recomputed::Valid(&same), Recomputed::Valid(&other), Recomputed::Invalid];
    let twins = [Twins::Free, Twins::Behind(Uuid::nil()), Twins::Applied(Uuid::nil())];
    let key = downstream_key("fresh");
    let claimant = Claimant { owner: "worker-2", alone: true, downstream_key: &|| key.clone() };
    for row in every_unproved() {
        for rule in every_rule() {
            for recomputed in readings {
                for twins in twins {
                    for permission in every_permission() {
                        for predecessor in [Predecessor::Finished, Predecessor::Unfinished] {
                            let around = Around { predecessor, twins, permission, ..alone() };
                            let seen = format!("{rule:?} {around:?} {recomputed:?} {row:?}");
                            match claim(&row, recomputed, &around, NOW, &rule, &claimant) {
                                Claim::Write(step) => hold(&row, &step, &seen),
                                Claim::Leave(_) | Claim::Alone => {}
                                Claim::Run(run) => {
                                    hold(&row, &run.step, &seen);
                                    // Nothing is sent that is not allowed, or not the same request.
                                    let sends = run.purpose == Purpose::Send;
                                    let may = permission == Permission::Allowed;
                                    assert!(!sends || may, "{seen}");
                                    assert!(!sends || run.ticket.is_resend(), "{seen}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// From the mark on: whatever a check says then, or the tool, ends by the settle.
#[test]
fn no_denial_at_the_mark_calls_an_unproved_send_rejected() {
    let unproved: Vec<NotSent> = DENIALS
        .map(NotSent::Forbidden)
        .into_iter()
        .chain([NotSent::Unbuildable, NotSent::PolicyUnreachable, NotSent::PreconditionUnreachable])
        .collect();
    for state in [State::Claimed, State::Sent] {
        for age in [MINUTE, 25 * HOUR] {
            for rule in every_rule() {
                for given_up in [false, true] {
                    let opened_at = ago(if given_up { 100 * HOUR } else { MINUTE });
                    let deferrals = if given_up { 5000 } else { 0 };
                    let row = Operation { opened_at, deferrals, ..sent_operation(state, age) };
                    let ticket = Ticket {
                        token: row.token,
                        prior_first_sent_at: row.first_sent_at,
                        marked: state == State::Sent,
                        at: NOW,
                    };
                    for permission in every_permission() {
                        let why = match mark_sent(&row, &ticket, permission, NOW) {
                            Marking::Write(step) => {
                                hold(&row, &step, "marked");
                                continue;
                            }
                            Marking::Lost => NotSent::ClaimLost,
                            Marking::Forbidden(denial) => NotSent::Forbidden(denial),
                        };
                        let learned = Learned::NotSent(why);
                        let step = written(decide(&row, &ticket, &learned, NOW, &rule, 0.5));
                        hold(&row, &step, &format!("{permission:?} {rule:?} {row:?}"));
                    }
                    for why in &unproved {
                        let learned = Learned::NotSent(*why);
                        let step = written(decide(&row, &ticket, &learned, NOW, &rule, 0.5));
                        hold(&row, &step, &format!("{why:?} {rule:?} {row:?}"));
                    }
                }
            }
        }
    }
}

/// A first send is another matter: nothing was sent, so rejected is the truth.
#[test]
fn the_same_denials_reject_what_was_never_sent() {
    for rule in every_rule() {
        for denial in DENIALS {
            let row = operation(State::Claimed);
            let ticket =
                Ticket { token: row.token, prior_first_sent_at: None, marked: false, at: NOW };
            let learned = Learned::NotSent(NotSent::Forbidden(denial));
            let step = written(decide(&row, &ticket, &learned, NOW, &rule, 0.5));
            assert_eq!(step.record.state, State::Rejected);
            assert_eq!(step.record.reason, Some(denial.reason()));
            assert!(!step.record.may_have_been_sent());
        }
    }
}

/// A restore may have marked a record that waits for an approval.
#[test]
fn no_answer_of_a_person_calls_an_unproved_send_rejected() {
    let row = Operation { due_at: ahead(HOUR), ..sent_operation(State::AwaitingApproval, MINUTE) };
    for answer in [Answer::Approve, Answer::Deny] {
        let step = verbs::answer(&row, answer, NOW, &person()).unwrap();
        hold(&row, &step, &format!("{answer:?}"));
    }
}
