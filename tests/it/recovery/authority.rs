//! "Absent" frees a send only where the contract calls it the truth; else a person decides.

use serde_json::json;

use super::stage::{RETRY, Stage, THREE, times};
use crate::support::contracts::looked_up;

#[tokio::test]
async fn an_absence_without_authority_frees_no_send() {
    let stage =
        Stage::with(|url| looked_up(url).not_authoritative().absent_to_an_operator(), THREE).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().say_absent(5).await;
    stage.submit("s").await;
    stage.ends_for("s", "unknown", "no_proof").await;
    let why = stage.told("s", "retry_scheduled").await;
    assert!(why.contains(&json!({"why": "absent_without_authority"})), "{why:?}");
    // The cache comes to know it, and proof is proof.
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.tickets().count().await, 1);
    roles.stop().await;
}

/// What `authoritative: true` is trusted with: a downstream that says so and is wrong gets the effect
/// twice, and the record names the one that answered.
#[tokio::test]
async fn an_absence_with_authority_is_believed() {
    let stage = Stage::with(looked_up, RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().drop_answer(1).await;
    stage.downstream.lookups().say_absent(5).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (2, Some("T-2")));
    assert_eq!(stage.downstream.most_per_key().await, 2);
    roles.stop().await;
}

#[tokio::test]
async fn an_absence_goes_to_a_person_where_the_contract_says_so() {
    let stage = Stage::with(|url| looked_up(url).absent_to_an_operator(), RETRY).await;
    let roles = stage.run("100ms");
    stage.downstream.tickets().drop_connection(1).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "absent_needs_decision").await;
    assert!(record.sent, "a person decides whether nothing was done");
    assert_eq!(stage.column("s", "next_lookup_at").await, None);
    // The person has it made.
    let finding = "resolve s --not-applied --by ann --reason looked";
    let (code, _, told) = stage.ops(finding).await;
    assert_eq!(code, Some(0), "{told}");
    let (code, _, told) = stage.ops("retry s --reopen --by ann --reason wanted").await;
    assert_eq!(code, Some(0), "{told}");
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    let trace = stage.world.trace("s").await;
    assert_eq!((times(&trace, "resolved"), times(&trace, "sent")), (2, 2), "{trace:?}");
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}
