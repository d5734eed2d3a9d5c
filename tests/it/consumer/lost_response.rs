//! A lost answer is neither success nor failure: a deduplicating tool is asked again with the same
//! key, a blind one is not called again.

use super::kit;
use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::world::World;
use oncebox::domain::outcome::{NextAction, Status};

#[tokio::test]
async fn a_deduplicating_tool_is_sent_again_with_the_same_key() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, kit::RETRY)).await;
    let faults = [
        ("dropped", serde_json::json!({"drop_response": true})),
        ("cut", serde_json::json!({"truncate": true})),
        ("no_http", serde_json::json!({"garbage": "wire"})),
        ("no_json", serde_json::json!({"garbage": "body"})),
        ("no_receipt", serde_json::json!({"garbage": "receipt"})),
        ("server_error", serde_json::json!({"status_after_effect": 500})),
        ("late", serde_json::json!({"delay_ms_after_effect": 3000})),
    ];
    let roles = world.run("relay,worker,maintain");
    for (step, fault) in faults {
        let mut rule = fault;
        rule["on"] = "tickets".into();
        rule["times"] = 1.into();
        downstream.control(rule).await;
        kit::submit(&world, "tickets.create", step).await;
        let record = kit::ends(&world, step, "applied").await;
        assert_eq!(record.attempts, 2, "{step}");
        let trace = world.trace(step).await;
        assert_eq!(trace.iter().filter(|event| *event == "sent").count(), 2, "{step}: {trace:?}");
        assert!(trace.iter().any(|event| event == "retry_scheduled"), "{step}: {trace:?}");
    }
    assert_eq!(downstream.total().await, 7);
    assert_eq!(downstream.most_per_key().await, 1);
    roles.stop().await;
}

#[tokio::test]
async fn a_blind_tool_is_called_once_and_its_operation_is_unknown() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&mails(&downstream.url, kit::RETRY)).await;
    let faults = [
        ("dropped", serde_json::json!({"drop_response": true})),
        ("late", serde_json::json!({"delay_ms_after_effect": 3000})),
        ("before", serde_json::json!({"drop_before_effect": true})),
        ("server_error", serde_json::json!({"status": 503})),
        ("redirect", serde_json::json!({"redirect": "/mail"})),
    ];
    let roles = world.run("relay,worker,maintain");
    for (step, fault) in faults {
        let mut rule = fault;
        rule["on"] = "mail".into();
        rule["times"] = 1.into();
        downstream.control(rule).await;
        kit::submit(&world, "mail.send", step).await;
        let record = kit::ends(&world, step, "unknown").await;
        assert_eq!(record.reason.as_deref(), Some("no_proof"), "{step}");
        assert_eq!((record.attempts, record.sent), (1, true), "{step}");
        // Another delivery starts nothing and is acked.
        let channel = kit::channel(&world).await;
        kit::publish(&world, &channel, "mail.send", &kit::envelope(&world, step).await).await;
        crate::support::eventually("the delivery left its trace", 20, async || {
            let trace = world.trace(step).await;
            (trace.iter().filter(|event| *event == "unknown").count() == 2).then_some(())
        })
        .await;
        // A second submission is told so, and told what to do.
        let again = world.submit(&kit::submission(&world, "mail.send", step)).await.unwrap();
        assert_eq!((again.status, again.safe_to_repeat), (Status::Unknown, false));
        assert_eq!(again.next_action, NextAction::Reconcile);
    }
    let counted = downstream.effects().await;
    assert_eq!((&counted["requests"], &counted["total"]), (&5.into(), &2.into()));
    roles.stop().await;
}
