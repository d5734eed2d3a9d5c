//! The policy says yes, no, nothing, or cannot be asked, and remembers what it was asked.

use serde_json::{Value, json};

use super::gives_up;
use crate::support::downstream::{Answer, Downstream};

async fn ask(downstream: &Downstream, actor: &str) -> Answer {
    let input = json!({"input": {"actor": actor, "tenant": "acme", "tool": "tickets.create"}});
    downstream.ask("POST", "/v1/data/oncebox/allow", &[], &input.to_string()).await
}

async fn result(downstream: &Downstream, actor: &str) -> Value {
    let answer = ask(downstream, actor).await;
    assert_eq!(answer.status, 200);
    answer.json()["result"].clone()
}

#[tokio::test]
async fn everybody_may_until_somebody_is_denied_and_may_again_after_that() {
    let downstream = Downstream::start();
    let policy = downstream.policy();
    assert_eq!(result(&downstream, "ann").await, true);
    policy.deny_actor("ann").await;
    policy.deny_actor("ann").await;
    assert_eq!(result(&downstream, "ann").await, false);
    assert_eq!(result(&downstream, "anna").await, true);
    policy.deny_all().await;
    assert_eq!(result(&downstream, "anna").await, false);
    policy.allow_actor("ann").await;
    assert_eq!(result(&downstream, "ann").await, false, "all are denied still");
    policy.allow_all().await;
    for actor in ["ann", "anna"] {
        assert_eq!(result(&downstream, actor).await, true, "{actor}");
    }
}

#[tokio::test]
async fn what_was_asked_is_kept_and_counted_by_actor() {
    let downstream = Downstream::start();
    for actor in ["ann", "bob", "ann"] {
        ask(&downstream, actor).await;
    }
    let inputs = downstream.policy().inputs().await;
    assert_eq!(inputs.len(), 3);
    assert_eq!(inputs[1], json!({"actor": "bob", "tenant": "acme", "tool": "tickets.create"}));
    assert_eq!(downstream.policy().of("ann").count().await, 2);
    let bare = downstream.ask("POST", "/v1/data/oncebox/allow", &[], "{}").await;
    assert_eq!((bare.status, downstream.policy().count().await), (400, 3));
}

#[tokio::test]
async fn a_policy_without_an_answer_says_neither_yes_nor_no() {
    let downstream = Downstream::start();
    let policy = downstream.policy();
    policy.undefined(1).await;
    assert_eq!(ask(&downstream, "ann").await.json(), json!({}));
    policy.say_nothing(1).await;
    assert_eq!(result(&downstream, "ann").await, Value::Null);
    policy.garbage(1).await;
    let garbage = ask(&downstream, "ann").await;
    assert!(garbage.status == 200 && garbage.json().is_null(), "{garbage:?}");
    policy.fail(1).await;
    policy.unavailable(3, 1).await;
    policy.drop_connection(1).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(ask(&downstream, "ann").await.status);
    }
    assert_eq!(statuses, [500, 503, 0, 200]);
    policy.of("ann").hang(1).await;
    gives_up(&downstream, ask(&downstream, "ann")).await;
    assert_eq!(result(&downstream, "ann").await, true);
}
