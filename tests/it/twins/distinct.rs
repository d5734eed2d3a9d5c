//! `distinct_from` is the application's word that a second effect is meant: it lets the operation go
//! beside the one that it names, at the first submission or after a rejection, and beside no other.

use oncebox::ingress::Submission;
use serde_json::json;

use super::{Stage, key};
use crate::support::doors::Door;

fn distinct(submission: Submission, older: &str) -> Submission {
    Submission { distinct_from: Some(key(older)), ..submission }
}

/// Row of the article: new key with same arguments, where the user's intent is new. Row of the
/// article: same arguments with a new logical operation key, allowed, and two records.
#[tokio::test(flavor = "multi_thread")]
async fn named_at_the_first_submission() {
    for door in Door::BOTH {
        let stage = Stage::new(|contract| contract).await;
        let roles = stage.run();
        stage.under_way("a").await;
        stage.through(door, &distinct(stage.asking("b", "s"), "a")).await;
        stage.phase("b", "sent").await;
        stage.pause(false).await;
        stage.ends("a", "applied").await;
        stage.ends("b", "applied").await;
        assert_eq!(stage.downstream.total().await, 2, "{door:?}: two effects");
        assert_eq!(stage.world.count("select count(*) from oncebox.operations").await, 2);
        roles.stop().await;
    }
}

/// Row of the article: new key with same arguments, and nobody said that the intent is new: held.
#[tokio::test(flavor = "multi_thread")]
async fn not_named_and_held() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    stage.submit_held("b").await;
    stage.pause(false).await;
    stage.rejected_for("b", "a").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// Row of the article: same arguments with a new logical operation key, where policy permits it: the
/// contract does, with `hold: false`, and for classes that hold none by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn not_held_by_contract() {
    for change in ["twins: {hold: false}", ""] {
        let stage = Stage::new(|contract| match change {
            "" => contract.effect_class("append"),
            change => contract.more(change),
        })
        .await;
        let roles = stage.run();
        stage.under_way("a").await;
        stage.submit("b").await;
        stage.phase("b", "sent").await;
        stage.pause(false).await;
        stage.world.settled(20).await;
        assert_eq!(stage.downstream.total().await, 2, "{change}");
        roles.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn named_after_a_rejection() {
    for door in Door::BOTH {
        let stage = Stage::new(|contract| contract).await;
        let roles = stage.run();
        stage.under_way("a").await;
        stage.through(door, &stage.asking("b", "s")).await;
        stage.held("b").await;
        stage.pause(false).await;
        stage.rejected_for("b", "a").await;
        for wrong in [stage.asking("b", "s"), distinct(stage.asking("b", "s"), "c")] {
            let told = stage.through(door, &wrong).await;
            assert_eq!(told["status"], "rejected", "{door:?}");
            assert_eq!(told["suspected_twin_of"], json!(key("a")), "{door:?}");
            stage.rejected_for("b", "a").await;
        }
        let told = stage.through(door, &distinct(stage.asking("b", "s"), "a")).await;
        assert_eq!(told["status"], "in_flight", "{door:?}");
        stage.ends("b", "applied").await;
        assert_eq!(stage.downstream.total().await, 2, "{door:?}");
        roles.stop().await;
    }
}

/// The one that it was rejected for is still under way: it goes beside it.
#[tokio::test(flavor = "multi_thread")]
async fn named_while_the_older_one_is_open() {
    for door in Door::BOTH {
        let stage = Stage::new(|contract| contract).await;
        let roles = stage.run();
        stage.under_way("a").await;
        stage.submit_held("b").await;
        stage
            .execute(
                "update oncebox.operations set due_at = due_at - interval '25 hours', \
                   queued_at = queued_at - interval '25 hours' where phase = 'held'",
            )
            .await;
        stage.rejected_for("b", "a").await;
        stage.through(door, &distinct(stage.asking("b", "s"), "a")).await;
        stage.phase("b", "sent").await;
        stage.pause(false).await;
        stage.world.settled(20).await;
        assert_eq!(stage.downstream.total().await, 2, "{door:?}");
        roles.stop().await;
    }
}

/// The one that is named shows what it asks for only when the other is under way already: it goes, too.
#[tokio::test(flavor = "multi_thread")]
async fn named_by_one_that_goes_first() {
    let stage = Stage::new(|contract| contract).await;
    stage.keep(Door::Sql, &stage.asking("a", "s")).await;
    let roles = stage.run();
    stage.pause(true).await;
    stage.through(Door::Rust, &distinct(stage.asking("b", "s"), "a")).await;
    stage.phase("b", "sent").await;
    stage.deliver("a").await;
    stage.phase("a", "sent").await;
    stage.pause(false).await;
    stage.world.settled(20).await;
    assert_eq!(stage.downstream.total().await, 2);
    roles.stop().await;
}

/// Two are under way and one of them is named: it is held behind the other.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_is_named() {
    for (named, other) in [("a", "b"), ("b", "a")] {
        let stage = Stage::new(|contract| contract).await;
        let roles = stage.run();
        stage.under_way("a").await;
        stage.through(Door::Rust, &distinct(stage.asking("b", "s"), "a")).await;
        stage.phase("b", "sent").await;
        stage.through(Door::Rust, &distinct(stage.asking("c", "s"), named)).await;
        stage.held("c").await;
        assert_eq!(stage.behind("c").await, Some(key(other)));
        stage.pause(false).await;
        stage.rejected_for("c", other).await;
        assert_eq!(stage.downstream.total().await, 2);
        roles.stop().await;
    }
}
