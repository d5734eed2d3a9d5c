//! A policy service decides right before each send; one that cannot be asked has not allowed.

use serde_json::json;

use super::kit;
use crate::support::contracts::deduplicating;

#[tokio::test]
async fn who_is_denied_sends_nothing_and_may_come_again() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).policy().more(kit::RETRY)).await;
    downstream.policy().deny_all().await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    downstream.policy().allow_all().await;
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    let story = kit::story(&world, "a").await;
    assert!(story.contains("claimed authorized sent"), "{story}");
    let input = downstream.policy().inputs().await.pop().unwrap();
    assert_eq!(input["actor"], kit::AGENT, "{input}");
    roles.stop().await;
}

#[tokio::test]
async fn an_unreachable_policy_is_waited_for_and_never_an_allow() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).policy().more(kit::RETRY)).await;
    let policy = downstream.policy();
    policy.always(500).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    policy.arrived(3, 20).await;
    let record = kit::record(&world, "a").await;
    assert_eq!((record.status.as_str(), record.attempts, record.sent), ("pending", 0, false));
    assert_eq!(kit::requests(&downstream).await, 0);
    policy.as_usual().await;
    policy.drop_connection(1).await;
    policy.garbage(1).await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    assert!(policy.count().await >= 6);
    roles.stop().await;
}

/// Scenario "Authorization is revoked between attempts", where a policy service decides.
#[tokio::test]
async fn a_policy_that_denies_between_attempts_leaves_it_unknown() {
    let kind = |url: &str| deduplicating(url).policy().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    downstream.policy().deny_actor(kit::AGENT).await;
    let record = kit::ends_for(&world, "a", "unknown", "not_authorized").await;
    assert_eq!((record.attempts, record.sent), (1, true));
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    assert!(!kit::story(&world, "a").await.contains("rejected"));
    roles.stop().await;
}

#[tokio::test]
async fn a_policy_that_is_away_between_attempts_delays_the_second() {
    let kind = |url: &str| deduplicating(url).policy().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    downstream.policy().fail(1).await;
    kit::until(&world, "a", "the policy was away", |record| {
        record.reason.as_deref() == Some("policy_unreachable")
    })
    .await;
    assert_eq!(kit::requests(&downstream).await, 1);
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 2));
    roles.stop().await;
}
