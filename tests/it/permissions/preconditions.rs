//! A precondition is asked before the first send, and never after something may have been sent.

use serde_json::json;

use super::kit;
use crate::support::contracts::deduplicating;

#[tokio::test]
async fn one_that_fails_sends_nothing_and_the_same_submission_may_come_again() {
    let kind = |url: &str| deduplicating(url).precondition().more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let conditions = downstream.preconditions();
    conditions.always(412).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends_for(&world, "a", "rejected", "precondition_failed").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    conditions.as_usual().await;
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    roles.stop().await;
}

#[tokio::test]
async fn one_that_cannot_be_asked_is_waited_for() {
    let kind = |url: &str| deduplicating(url).precondition().more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let conditions = downstream.preconditions();
    conditions.fail(3).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((conditions.count().await, kit::requests(&downstream).await), (4, 1));
    assert_eq!(kit::record(&world, "a").await.attempts, 1, "waits are no attempts");
    roles.stop().await;
}

/// The first send may have closed the queue itself: what it left says nothing against a repeat.
#[tokio::test]
async fn it_is_not_asked_again_before_a_second_send() {
    let kind = |url: &str| deduplicating(url).precondition().more(kit::SLOW_RETRY);
    let (world, downstream) = kit::stage(kind).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::until(&world, "a", "its answer is lost", |record| {
        record.phase.as_deref() == Some("retry_scheduled")
    })
    .await;
    downstream.preconditions().always(412).await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 2));
    assert_eq!(downstream.preconditions().count().await, 1);
    roles.stop().await;
}
