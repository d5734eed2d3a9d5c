//! An approval can be withdrawn until the effect: then there is no effect, or there is one and nobody
//! says otherwise.

use serde_json::json;

use super::kit::{self, Kind};
use crate::support::contracts::{ContractText, blind, deduplicating};

fn vip(kind: ContractText) -> ContractText {
    kind.approved("vip", "1h", "1h")
}

#[tokio::test]
async fn withdrawn_while_it_waits_for_a_worker_it_ends_at_once() {
    let kind = |url: &str| vip(deduplicating(url)).more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    let early = kit::withdraw(&world, "a").await;
    assert!(early.code == 1 && early.told.contains("no approval was given yet"), "{early:?}");
    roles.stop().await;

    kit::approve(&world, "a").await;
    let ended = kit::withdraw(&world, "a").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    kit::ends_for(&world, "a", "rejected", "approval_withdrawn").await;
    let roles = kit::roles(&world);
    // What the approval had published finds a verdict.
    crate::support::eventually("the message is dealt with", 20, async || {
        kit::story(&world, "a").await.ends_with("replayed").then_some(())
    })
    .await;
    assert_eq!(kit::requests(&downstream).await, 0);
    let twice = kit::withdraw(&world, "a").await;
    assert!(twice.code == 1 && twice.told.contains("already ended"), "{twice:?}");

    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!(downstream.total().await, 1);
    roles.stop().await;
}

/// The precondition holds the attempt between its claim, which the approval allowed, and its mark.
#[tokio::test]
async fn withdrawn_between_the_claim_and_the_first_byte_nothing_is_sent() {
    let kind = |url: &str| vip(blind(url)).precondition().more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    downstream.preconditions().hold().await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.blind", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    downstream.preconditions().arrived(1, 20).await;
    let ended = kit::withdraw(&world, "a").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    downstream.preconditions().let_go().await;
    let record = kit::ends_for(&world, "a", "rejected", "approval_withdrawn").await;
    assert_eq!((record.attempts, record.sent), (0, false));
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}

#[tokio::test]
async fn withdrawn_after_an_unproved_send_nothing_is_sent_again_and_it_is_unknown() {
    let kind = |url: &str| vip(deduplicating(url)).more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    let ended = kit::withdraw(&world, "a").await;
    assert!(ended.code == 1 && ended.told.contains("an earlier one may have worked"), "{ended:?}");
    kit::ends_for(&world, "a", "unknown", "approval_withdrawn").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    assert!(!kit::story(&world, "a").await.contains("rejected"));
    roles.stop().await;
}

#[tokio::test]
async fn what_is_applied_is_not_taken_back() {
    let kind = |url: &str| vip(deduplicating(url)).more(kit::RETRY);
    let (world, _downstream) = kit::stage(kind).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    kit::ends(&world, "a", "applied").await;
    let ended = kit::withdraw(&world, "a").await;
    assert!(ended.code == 1 && ended.told.contains("already applied"), "{ended:?}");
    kit::ends(&world, "a", "applied").await;
    let seen = kit::done(&world, &["ops", "show", &kit::key("a"), "--json"]).await.json();
    assert_eq!(seen["approval"]["state"], "approved");
    roles.stop().await;
}

/// Approved and withdrawn while workers run: what the operator was told is what happened.
#[tokio::test]
async fn a_withdrawal_that_races_the_effect_ends_either_way_and_never_both() {
    for (tool, kind) in [("tickets.keyed", deduplicating as Kind), ("tickets.blind", blind)] {
        // No second send, so that each has one effect or none.
        let kind = |url: &str| vip(kind(url)).more(kit::RETRY);
        let (world, downstream) = kit::stage(kind).await;
        let roles = kit::roles(&world);
        let steps: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
        for step in &steps {
            kit::ask(&world, tool, step, "vip").await;
        }
        for step in &steps {
            kit::waits(&world, step).await;
        }
        let mut effects = 0;
        for (n, step) in steps.iter().enumerate() {
            let pause = std::time::Duration::from_millis(u64::try_from(n).unwrap() * 3);
            let (_, ended) = tokio::join!(kit::approve(&world, step), async {
                tokio::time::sleep(pause).await;
                loop {
                    let ended = kit::withdraw(&world, step).await;
                    if !ended.told.contains("no approval was given yet") {
                        return ended;
                    }
                }
            });
            let record =
                kit::until(&world, step, "it has ended", |record| record.status != "pending").await;
            match (ended.code, record.status.as_str(), record.reason.as_deref()) {
                (0, "rejected", Some("approval_withdrawn")) => {}
                (1, "applied", None) => effects += 1,
                other => panic!("{tool} {step}: {other:?} {ended:?}"),
            }
        }
        assert_eq!(downstream.total().await, effects, "{tool}");
        assert_eq!(kit::requests(&downstream).await, effects, "{tool}");
        roles.stop().await;
    }
}
