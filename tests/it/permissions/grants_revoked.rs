//! A permission that is lost stops the next send, and nothing else: what may have been sent is found
//! out about, and is never called rejected.

use serde_json::json;

use super::kit;
use crate::support::contracts::{blind, deduplicating, looked_up};

/// Scenario "Authorization is revoked between attempts": the first attempt's answer is lost, so that the
/// effect may exist; the downstream would deduplicate, and still nothing is sent again.
#[tokio::test]
async fn authorization_is_revoked_between_attempts() {
    let kind = |url: &str| deduplicating(url).granted().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let grant = kit::grant(&world, "tickets.keyed", &[]).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    kit::revoke(&world, &grant).await;
    let record = kit::ends_for(&world, "a", "unknown", "not_authorized").await;
    assert_eq!((record.attempts, record.sent), (1, true));
    // Neither a new grant nor the same submission sends what people were told of.
    kit::grant(&world, "tickets.keyed", &[]).await;
    let again = world.submit(&kit::asked(&world, "tickets.keyed", "a", "support")).await.unwrap();
    assert_eq!(serde_json::to_value(again.status).unwrap(), "unknown");
    assert_eq!(kit::cli(&world, &["ops", "retry", &kit::key("a")]).await.code, 1);
    let counted = downstream.effects().await;
    assert_eq!((&counted["total"], &counted["requests"]), (&json!(1), &json!(1)));
    assert!(!kit::story(&world, "a").await.contains("rejected"));
    roles.stop().await;
}

/// Fault "Permission revoked before retry": nothing is sent again, and the look-up finds the effect that
/// the lost answer was about.
#[tokio::test]
async fn permission_revoked_before_retry_is_reconciled_by_look_up() {
    let kind = |url: &str| deduplicating(url).also_looked_up().granted().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let grant = kit::grant(&world, "tickets.keyed", &[]).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    kit::revoke(&world, &grant).await;
    let record = kit::ends(&world, "a", "applied").await;
    assert!(record.receipt.is_some());
    let counted = downstream.effects().await;
    assert_eq!((&counted["total"], &counted["requests"]), (&json!(1), &json!(1)));
    let story = kit::story(&world, "a").await;
    assert!(story.contains("unknown") && story.contains("reconciled"), "{story}");
    assert!(!story.contains("rejected"), "{story}");
    roles.stop().await;
}

#[tokio::test]
async fn a_tool_that_can_only_be_looked_up_needs_no_permission_to_find_out() {
    let kind = |url: &str| looked_up(url).granted().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let grant = kit::grant(&world, "tickets.found", &[]).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.found", "a", "support").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    kit::revoke(&world, &grant).await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!(kit::requests(&downstream).await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn revoked_before_a_retry_of_what_was_certainly_not_done_is_rejected() {
    let kind = |url: &str| deduplicating(url).granted().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let grant = kit::grant(&world, "tickets.keyed", &[]).await;
    kit::tickets(&downstream, json!({"status": 429, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::until(&world, "a", "it is put off", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    kit::revoke(&world, &grant).await;
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (0, 1));
    roles.stop().await;
}

/// The precondition holds the attempt between its claim, which the grant allowed, and its mark.
#[tokio::test]
async fn revoked_between_the_claim_and_the_first_byte_nothing_is_sent() {
    let kind = |url: &str| blind(url).granted().precondition().more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let grant = kit::grant(&world, "tickets.blind", &[]).await;
    downstream.preconditions().hold().await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.blind", "a", "support").await;
    downstream.preconditions().arrived(1, 20).await;
    kit::revoke(&world, &grant).await;
    downstream.preconditions().let_go().await;
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}
