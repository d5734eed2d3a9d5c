//! A real operation's trace holds together, and one that was doctored does not.

use serde_json::Value;

use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::process::oncebox;
use crate::support::wire::execute;
use crate::support::world::World;

/// Exit code and report of `contract check --trace`.
fn reviewed(world: &World, operation: &str) -> (Option<i32>, Value) {
    let output =
        oncebox(world, &["contract", "check", "--trace", operation, "--json"]).output().unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

fn words(report: &Value, list: &str, member: &str) -> Vec<String> {
    let rows = report[list].as_array().unwrap();
    rows.iter().map(|row| row[member].as_str().unwrap_or("-").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_operation_is_marked_step_by_step_and_a_doctored_trace_is_flagged() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    // The first answer is lost after the service's commit: the same key is sent again.
    downstream
        .control(serde_json::json!({"on": "tickets", "drop_response": true, "times": 1}))
        .await;
    let roles = world.run("relay,worker,maintain");
    let submission =
        world.submission("tickets.create", "s1", r#"{"subject":"Refund","body":"twice"}"#);
    let submitted = world.submit(&submission).await.unwrap();
    world.settled(30).await;
    roles.stop().await;

    let key = "acme:test:run:s1";
    let (code, report) = reviewed(&world, key);
    assert_eq!((code, &report["ok"]), (Some(0), &Value::Bool(true)), "{report:#}");
    assert_eq!(words(&report, "flags", "severity"), Vec::<String>::new(), "{report:#}");
    let marks = words(&report, "transitions", "mark");
    let once_each: Vec<&str> = marks.iter().map(String::as_str).filter(|m| *m != "-").collect();
    let begins = ["proposed", "validated", "claimed", "sent"];
    assert_eq!(once_each[..4], begins, "{report:#}");
    assert_eq!(once_each.iter().filter(|mark| **mark == "sent").count(), 2, "{report:#}");
    assert!(once_each.contains(&"committed") && once_each.contains(&"acknowledged"), "{marks:?}");
    // The operation's id names it too.
    let id = submitted.operation_id.unwrap().to_string();
    assert_eq!(reviewed(&world, &id).1["transitions"], report["transitions"]);

    // The receipt's transition goes: a jump from sent to applied.
    execute(&world, "delete from oncebox.operation_events where event = 'committed'").await;
    let (code, report) = reviewed(&world, key);
    assert_eq!((code, &report["ok"]), (Some(1), &Value::Bool(false)), "{report:#}");
    assert_eq!(words(&report, "flags", "id"), ["applied_without_receipt"], "{report:#}");

    // The submission's and a claim's go too.
    execute(&world, "delete from oncebox.operation_events where event = 'proposed' or event = 'claimed' and claim_epoch = 1").await;
    let (_, report) = reviewed(&world, key);
    let ids = words(&report, "flags", "id");
    for id in ["not_proposed", "sent_unclaimed", "applied_without_receipt"] {
        assert!(ids.iter().any(|flagged| flagged == id), "{id} in {ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_send_of_a_blind_tool_is_flagged_for_people_too() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&mails(&downstream.url, "")).await;
    downstream.control(serde_json::json!({"on": "mail", "drop_response": true, "times": 1})).await;
    let roles = world.run("relay,worker,maintain");
    let arguments = r#"{"to":"a","subject":"lost"}"#;
    world.submit(&world.submission("mail.send", "s1", arguments)).await.unwrap();
    world.settled(20).await;
    roles.stop().await;
    let (code, report) = reviewed(&world, "acme:test:run:s1");
    assert_eq!(code, Some(0), "unknown is an honest ending: {report:#}");

    execute(&world, "insert into oncebox.operation_events (operation_id, event, claim_epoch) select o.operation_id, e.event, o.claim_epoch from oncebox.operations o, unnest(array['claimed', 'sent']) as e(event)").await;
    let output = oncebox(&world, &["contract", "check", "--trace", "acme:test:run:s1"]).output();
    let output = output.unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{page}");
    assert!(page.contains("red flag second_send_without_proof: sent again"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_is_not_there_is_said_so() {
    let world = World::new().await;
    let check = |operation: &str| {
        let output =
            oncebox(&world, &["contract", "check", "--trace", operation]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, told) = check("acme:test:run:none");
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("there is no such operation"), "{told}");
    let (code, told) = check("no key");
    assert_eq!(code, Some(2), "{told}");
    let output = oncebox(&world, &["contract", "check"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "neither files nor a trace");
}
