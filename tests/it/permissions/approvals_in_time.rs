//! A request that nobody answers ends; an approval holds for a time, and for every retry in it.

use serde_json::json;

use super::kit::{self, Kind};
use crate::support::contracts::{blind, deduplicating};
use crate::support::eventually;

#[tokio::test]
async fn a_request_that_nobody_answers_ends_rejected() {
    let kind = |url: &str| deduplicating(url).approved("vip", "1s", "1h").more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::ends_for(&world, "a", "rejected", "approval_timed_out").await;
    let told = kit::cli(&world, &["ops", "wait", &kit::key("a"), "--json"]).await.json();
    assert_eq!(
        (&told["safe_to_repeat"], &told["next_action"]),
        (&json!(true), &json!("ask_for_approval"))
    );
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}

/// Maintain is away, so that nobody ends it; an answer comes too late all the same.
#[tokio::test]
async fn an_answer_that_comes_too_late_is_none() {
    let kind = |url: &str| deduplicating(url).approved("vip", "500ms", "1h").more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    let roles = world.run_with("relay,worker", kit::MARGIN, Default::default());
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    let over = "select count(*) from oncebox.operations where due_at < clock_timestamp()";
    eventually("the time to answer is over", 10, async || {
        (world.count(over).await == 1).then_some(())
    })
    .await;
    let (key, fingerprint) = (kit::key("a"), kit::shown(&world, "a").await);
    for verb in ["approve", "deny"] {
        let words = ["ops", verb, &key, "--fingerprint", &fingerprint, "--by", "ann", "--reason"];
        let ended = kit::cli(&world, &[&words[..], &["late"]].concat()).await;
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.told.contains("the time to answer is over"), "{ended:?}");
    }
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}

/// The downstream puts every attempt off until the approval has run out; nothing was done, so that it is
/// rejected, and the same submission asks again.
#[tokio::test]
async fn an_approval_that_runs_out_before_anything_was_done_rejects() {
    for (tool, kind) in [("tickets.keyed", deduplicating as Kind), ("tickets.blind", blind)] {
        let kind = |url: &str| kind(url).approved("vip", "1h", "3s").more(kit::RETRY);
        let (world, downstream) = kit::stage(kind).await;
        kit::tickets(&downstream, json!({"name": "later", "status": 429})).await;
        let roles = kit::roles(&world);
        kit::ask(&world, tool, "a", "vip").await;
        kit::waits(&world, "a").await;
        kit::approve(&world, "a").await;
        let record = kit::ends_for(&world, "a", "rejected", "approval_expired").await;
        assert_eq!((record.attempts, record.sent), (0, false), "{tool}");
        assert_eq!(downstream.total().await, 0, "{tool}");
        downstream.control(json!({"remove": "later"})).await;
        kit::ask(&world, tool, "a", "vip").await;
        kit::waits(&world, "a").await;
        kit::approve(&world, "a").await;
        kit::ends(&world, "a", "applied").await;
        assert_eq!(downstream.total().await, 1, "{tool}");
        roles.stop().await;
    }
}

#[tokio::test]
async fn an_approval_that_runs_out_after_an_unproved_send_leaves_it_unknown() {
    let kind = |url: &str| {
        let retry = "retry: {initial: 5s, max: 5s, jitter: 0}";
        deduplicating(url).approved("vip", "1h", "4s").more(retry)
    };
    let (world, downstream) = kit::stage(kind).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 1})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    let record = kit::ends_for(&world, "a", "unknown", "approval_expired").await;
    assert_eq!((record.attempts, record.sent), (1, true));
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    assert!(!kit::story(&world, "a").await.contains("rejected"));
    roles.stop().await;
}

#[tokio::test]
async fn one_approval_covers_every_retry() {
    let kind = |url: &str| deduplicating(url).approved("vip", "1h", "1h").more(kit::RETRY);
    let (world, downstream) = kit::stage(kind).await;
    kit::tickets(&downstream, json!({"status": 429, "times": 2})).await;
    kit::tickets(&downstream, json!({"drop_response": true, "times": 2})).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 5));
    let story = kit::story(&world, "a").await;
    assert_eq!(story.matches("authorized sent").count(), 5, "each send is allowed anew: {story}");
    assert_eq!(story.matches("resolved").count(), 1, "{story}");
    roles.stop().await;
}
