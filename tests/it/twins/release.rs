//! `ops release` lets a held one go beside its twin, by a person's word, which the trace keeps. It is
//! no approval.

use super::Stage;
use crate::support::doors::column;

#[tokio::test(flavor = "multi_thread")]
async fn both_run_and_the_trace_says_by_whose_word() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    stage.submit_held("b").await;
    stage.submit_held("c").await;
    stage.does("ops release acme:test:run:b --by ann --reason meant --json");
    stage.phase("b", "sent").await;
    assert_eq!(stage.world.status("c").await.1, "held", "nobody spoke for it");
    stage.pause(false).await;
    stage.ends("a", "applied").await;
    stage.ends("b", "applied").await;
    stage.ends("c", "rejected").await;
    assert_eq!(stage.downstream.total().await, 2);
    let word = "(select detail->>'verb' || ' ' || (detail->>'by') || ' ' || (detail->>'why') \
        from oncebox.operation_events e where e.operation_id = o.operation_id and e.event = 'resolved')";
    assert_eq!(column(&stage.world, "b", word).await.as_deref(), Some("release ann meant"));
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_needs_an_approval_needs_it_still() {
    let stage = Stage::new(|contract| contract.approved("q", "1h", "1h")).await;
    let roles = stage.run();
    stage.submit("a").await;
    stage.phase("a", "awaiting_approval").await;
    // What waits for a person is open: its twin is held behind it, and not asked about.
    stage.submit_held("b").await;
    stage.does("ops release acme:test:run:b --by ann --json");
    stage.phase("b", "awaiting_approval").await;
    assert_eq!(stage.downstream.effects().await["requests"], 0);
    assert_eq!(stage.world.status("a").await.1, "awaiting_approval");
    roles.stop().await;
}

/// It keeps one effect through its retries, and what is released is never held again.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_one_keeps_one_effect_through_its_retries() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    stage.submit_held("b").await;
    stage.does("ops release acme:test:run:b --by ann --json");
    stage.phase("b", "sent").await;
    let put_off = serde_json::json!({ "status": 429, "retry_after": "1", "times": 2 });
    stage.downstream.control(put_off).await;
    let lost = serde_json::json!({ "drop_response": true, "times": 1 });
    stage.downstream.control(lost).await;
    stage.pause(false).await;
    stage.ends("a", "applied").await;
    stage.ends("b", "applied").await;
    assert_eq!((stage.downstream.total().await, stage.downstream.most_per_key().await), (2, 1));
    roles.stop().await;
}
