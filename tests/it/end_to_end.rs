//! One committed submission becomes one effect, whatever is repeated; a rolled-back one leaves nothing.

use sqlx::Executor as _;

use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::world::World;
use oncebox::domain::outcome::Status;
use oncebox::ingress::Publisher;

#[tokio::test]
async fn a_submission_becomes_one_effect_and_a_second_is_replayed() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let roles = world.run("relay,worker,maintain");
    let submission =
        world.submission("tickets.create", "s1", r#"{"subject":"Refund","body":"twice"}"#);
    let first = world.submit(&submission).await.unwrap();
    assert_eq!(first.status, Status::InFlight);
    world.settled(20).await;
    let second = world.submit(&submission).await.unwrap();
    assert_eq!(second.status, Status::Replayed);
    assert!(second.effect_reference.is_some());
    assert_eq!(downstream.total().await, 1);
    let other = world.submission("tickets.create", "s1", r#"{"subject":"Refund","body":"thrice"}"#);
    let refused = world.submit(&other).await.unwrap();
    assert_eq!(
        (refused.status, refused.reason),
        (Status::Rejected, Some("operation_key_reused_with_different_request"))
    );
    roles.stop().await;
    let trace = world.trace("s1").await;
    assert_eq!(
        trace,
        ["proposed", "validated", "claimed", "sent", "committed", "settled", "acknowledged"]
    );
}

#[tokio::test]
async fn a_blind_tool_is_marked_before_it_sends_and_never_sent_twice() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&mails(&downstream.url, "")).await;
    downstream.control(serde_json::json!({"on": "mail", "drop_response": true, "times": 1})).await;
    let roles = world.run("relay,worker,maintain");
    for step in ["lost", "fine"] {
        let arguments = format!(r#"{{"to":"a","subject":"{step}"}}"#);
        world.submit(&world.submission("mail.send", step, &arguments)).await.unwrap();
        world.settled(20).await;
    }
    assert_eq!(world.status("lost").await, ("unknown".into(), "no_proof".into()));
    assert_eq!(world.status("fine").await.0, "applied");
    assert_eq!(downstream.total().await, 2);
    assert_eq!(downstream.most_per_key().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_rolled_back_transaction_leaves_nothing() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let submission = world.submission("tickets.create", "s1", r#"{"subject":"Refund"}"#);
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    Publisher::default().submit(&mut connection, &submission).await.unwrap();
    connection.execute("rollback").await.unwrap();
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 0);
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 0);
    assert_eq!(world.count("select count(*) from oncebox.operation_events").await, 0);
}

#[tokio::test]
async fn a_share_that_was_full_goes_on_when_its_operations_are_settled() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "concurrency: {process: 2}")).await;
    for step in 0..9 {
        let arguments = format!(r#"{{"subject":"{step}","body":"text"}}"#);
        world
            .submit(&world.submission("tickets.create", &step.to_string(), &arguments))
            .await
            .unwrap();
    }
    let roles = world.run("relay,worker");
    world.settled(20).await;
    assert_eq!(downstream.total().await, 9);
    roles.stop().await;
}
