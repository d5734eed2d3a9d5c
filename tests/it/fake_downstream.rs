//! The fake downstream does what it is told: each fault that a test can order happens, for as many calls as were named.

mod checks;
mod contracts;
mod jobs;
mod lookups;
mod policy;

use std::time::Duration;

use crate::support::downstream::{Answer, Downstream};
use crate::support::eventually;

/// A client whose call has arrived, and that gives up on it, as every client does.
async fn gives_up(downstream: &Downstream, call: impl Future<Output = Answer>) {
    let before = downstream.calls().await;
    let patience = async {
        eventually("the call has arrived", 10, async || {
            (downstream.calls().await > before).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::select! {
        answer = call => panic!("answered: {answer:?}"),
        () = patience => {}
    }
}

/// What is asked for.
const BODY: &str = r#"{"queue": "q", "subject": "s", "body": "b", "reference": "case 7"}"#;

/// Creates a ticket under an `Idempotency-Key`.
async fn create(downstream: &Downstream, key: &str) -> Answer {
    let header = format!("Idempotency-Key: {key}");
    downstream.ask("POST", "/tickets", &[&header], BODY).await
}

async fn get(downstream: &Downstream, path: &str) -> Answer {
    downstream.ask("GET", path, &[], "").await
}

async fn status(downstream: &Downstream, path: &str) -> u16 {
    get(downstream, path).await.status
}
