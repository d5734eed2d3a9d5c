//! `within`: a twin that was applied less than that ago stands in the way too; an older one does not.

use oncebox::ingress::Submission;

use super::{Stage, key};
use crate::support::doors::Door;

#[tokio::test(flavor = "multi_thread")]
async fn applied_a_moment_ago_or_long_ago() {
    for door in Door::BOTH {
        let stage = Stage::new(|contract| contract.more("twins: {hold: true, within: 1h}")).await;
        let roles = stage.run_with("relay,worker");
        stage.submit("a").await;
        stage.ends("a", "applied").await;
        stage.through(door, &stage.asking("b", "s")).await;
        stage.rejected_for("b", "a").await;
        let meant = Submission { distinct_from: Some(key("a")), ..stage.asking("b", "s") };
        stage.through(door, &meant).await;
        stage.ends("b", "applied").await;
        assert_eq!(stage.downstream.total().await, 2, "{door:?}");
        stage
            .execute(
                "update oncebox.operations set updated_at = updated_at - interval '61 minutes'",
            )
            .await;
        stage.through(door, &stage.asking("c", "s")).await;
        stage.ends("c", "applied").await;
        assert_eq!(stage.downstream.total().await, 3, "{door:?}");
        roles.stop().await;
    }
}

/// Without it, what has been applied is past.
#[tokio::test(flavor = "multi_thread")]
async fn by_default_what_was_applied_stands_in_nobodys_way() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run_with("relay,worker");
    for (count, step) in ["a", "b", "c"].into_iter().enumerate() {
        stage.submit(step).await;
        stage.ends(step, "applied").await;
        assert_eq!(stage.downstream.total().await, u64::try_from(count).unwrap() + 1);
    }
    roles.stop().await;
}

/// What ended without an effect is no twin to wait for, however short ago.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_a_moment_ago_stands_in_nobodys_way() {
    let stage = Stage::new(|contract| contract.more("twins: {hold: true, within: 1h}")).await;
    let roles = stage.run_with("relay,worker");
    stage.refuse(422).await;
    stage.submit("a").await;
    stage.ends("a", "failed_permanent").await;
    stage.submit("b").await;
    stage.ends("b", "applied").await;
    roles.stop().await;
}
