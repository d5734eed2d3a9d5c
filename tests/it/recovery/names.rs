//! A look-up asks by our key, by the business's own reference, or by the receipt; it is asked only
//! where what it asks by is known.

use super::stage::{RETRY, Stage};
use crate::support::contracts::{ContractText, blind, looked_up};

fn text(kind: ContractText) -> String {
    kind.timeout("900ms").more("lease: 2s").more(RETRY).text()
}

#[tokio::test]
async fn by_the_businesss_reference() {
    // The subject is the reference, both where it is made and where it is looked for.
    let contract = |url: &str| text(looked_up(url)).replace("{idempotency_key}", "{/subject}");
    let stage = Stage::of(contract).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("case-7").await;
    let record = stage.ends("case-7", "applied").await;
    assert_eq!((record.attempts, record.receipt.as_deref()), (1, Some("T-1")));
    assert_eq!(stage.downstream.lookups().of("case-7").count().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn by_the_operations_id() {
    let contract = |url: &str| text(looked_up(url)).replace("{idempotency_key}", "{operation_id}");
    let stage = Stage::of(contract).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    let record = stage.ends("s", "applied").await;
    let asked = stage.downstream.lookups().of(&record.id.to_string()).count().await;
    assert_eq!((record.receipt.as_deref(), asked), (Some("T-1"), 1));
    roles.stop().await;
}

#[tokio::test]
async fn by_the_receipt_where_one_is_known() {
    let contract = |url: &str| {
        let by_receipt = text(looked_up(url))
            .replace("/tickets?reference={idempotency_key}", "/tickets/{receipt}");
        assert!(by_receipt.contains("{receipt}"));
        by_receipt
    };
    let stage = Stage::of(contract).await;
    let roles = stage.run("5m");
    // An answer that never came named no receipt: there is nothing to ask by.
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    let record = stage.ends_for("s", "unknown", "no_proof").await;
    assert!(record.receipt.is_none());
    assert_eq!(stage.column("s", "next_lookup_at").await, None);
    assert_eq!(stage.downstream.lookups().count().await, 0);
    let (code, _, told) = stage.ops("retry s --by ann --reason again").await;
    assert_eq!(code, Some(1), "{told}");
    // One is known, and what it says of the effect was in doubt.
    stage.set("s", "effect_reference = 'T-1'").await;
    let (code, _, told) = stage.ops("retry s --by ann --reason again").await;
    assert_eq!(code, Some(0), "{told}");
    let record = stage.ends("s", "applied").await;
    assert_eq!(record.receipt.as_deref(), Some("T-1"));
    assert_eq!(stage.downstream.lookups().of("T-1").count().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_tool_that_cannot_be_asked_is_unknown_at_once() {
    let stage = Stage::with(blind, RETRY).await;
    let roles = stage.run("5m");
    stage.downstream.tickets().drop_answer(1).await;
    stage.submit("s").await;
    stage.ends_for("s", "unknown", "no_proof").await;
    assert_eq!(stage.downstream.calls().await, 1);
    roles.stop().await;
}
