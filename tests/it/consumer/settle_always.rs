//! A settle can always be written: a receipt that cannot be kept proves nothing, a response that
//! cannot be kept is left out, a row that the database refuses is unknown, and no neighbour notices.

use std::sync::Arc;

use oncebox::domain::attempt::{MAX_RECEIPT_BYTES, Receipt, Response};
use oncebox::runtime::RustTools;
use oncebox::tool::{Call, Gate};
use serde_json::json;
use sqlx::Executor as _;

use super::kit::{self, Scripted};
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;

#[tokio::test]
async fn a_receipt_that_is_none_is_ambiguous() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, kit::RETRY)).await;
    let roles = world.run("relay,worker");
    let receipts = [
        ("long", json!("T".repeat(MAX_RECEIPT_BYTES + 1))),
        ("nul", json!("T-\0")),
        ("empty", json!("")),
        ("null", json!(null)),
        ("list", json!(["T-1"])),
    ];
    for (step, receipt) in receipts {
        let body = json!({"ticket_id": receipt, "status": "open"});
        downstream.control(json!({"status": 201, "body": body, "times": 1})).await;
        kit::submit(&world, "tickets.create", step).await;
        let record = kit::ends(&world, step, "applied").await;
        assert_eq!(record.attempts, 2, "{step}: the first answer proved nothing");
        assert!(record.receipt.unwrap().starts_with("T-"), "{step}");
    }
    let longest = "T".repeat(MAX_RECEIPT_BYTES);
    let body = json!({"ticket_id": longest, "status": "open"});
    downstream.control(json!({"status": 201, "body": body, "times": 1})).await;
    kit::submit(&world, "tickets.create", "longest").await;
    let record = kit::ends(&world, "longest", "applied").await;
    assert_eq!((record.attempts, record.receipt), (1, Some(longest)));
    roles.stop().await;
}

#[tokio::test]
async fn a_response_that_is_too_large_is_left_out() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, kit::RETRY)).await;
    let body = json!({"ticket_id": "T-9", "status": "x".repeat(70_000)});
    downstream.control(json!({"status": 201, "body": body, "times": 1})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "large").await;
    let record = kit::ends(&world, "large", "applied").await;
    assert_eq!((record.receipt.as_deref(), record.response), (Some("T-9"), None));
    assert!(record.response_dropped);
    kit::submit(&world, "tickets.create", "small").await;
    let record = kit::ends(&world, "small", "applied").await;
    assert!(record.response.is_some() && !record.response_dropped);
    roles.stop().await;
}

#[tokio::test]
async fn what_the_database_would_not_take_costs_the_response_only() {
    let world = World::new().await;
    world.contract(&kit::blind_rust_contract("rust.one", "concurrency: {process: 32}")).await;
    let tool = Scripted(|call: Call, gate: Gate| async move {
        let sending = match gate.open().await {
            Ok(sending) => sending,
            Err(closed) => return closed,
        };
        let response = match kit::n(&call).as_str() {
            "no_json" => "no json".to_owned(),
            "nul" => "\"\0\"".to_owned(),
            "deep" => format!("{}{}", "[".repeat(30_000), "]".repeat(30_000)),
            _ => r#"{"amount":9007199254740993,"rate":1e400}"#.to_owned(),
        };
        sending.applied(Receipt::new("R").unwrap(), Response::keep(response))
    });
    let tools = RustTools::default().with("rust.one", "1", Arc::new(tool));
    let steps = ["a", "no_json", "nul", "deep", "b"];
    kit::submit_all(&world, "rust.one", steps.iter().map(|&step| step.to_owned())).await;
    let roles = world.run_with("relay,worker", &[], tools);
    world.settled(20).await;
    for step in steps {
        let record = kit::record(&world, step).await;
        let good = step.len() == 1;
        assert_eq!((record.status.as_str(), record.response_dropped), ("applied", !good), "{step}");
        let kept = good.then(|| r#"{"amount":9007199254740993,"rate":1e400}"#.to_owned());
        assert_eq!(record.response, kept, "{step}");
    }
    roles.stop().await;
}

#[tokio::test]
async fn a_row_that_the_database_refuses_is_unknown_and_its_neighbours_are_applied() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "concurrency: {process: 32}")).await;
    // Stands for whatever a database may refuse: one row takes no response, another no receipt.
    let refusing = "create function oncebox.test_refuse() returns trigger language plpgsql as $$ begin \
            if (new.operation_key like '%:lean' and new.response_json is not null) \
              or (new.operation_key like '%:never' and new.effect_reference is not null) then \
              raise exception 'refused' using errcode = 'check_violation'; end if; return new; end $$; \
         create trigger test_refuse before update on oncebox.operations for each row execute function oncebox.test_refuse()";
    world.connect().await.execute(sqlx::raw_sql(refusing)).await.unwrap();
    downstream.control(json!({"pause": true})).await;
    let roles = world.run("relay,worker");
    let good = (0..20).map(|n| format!("s{n}"));
    kit::submit_all(&world, "tickets.create", good.chain(["lean".into(), "never".into()])).await;
    kit::arrived(&downstream, 22).await;
    downstream.control(json!({"pause": false})).await;
    world.settled(20).await;
    let applied = "select count(*) from oncebox.operations where status = 'applied'";
    assert_eq!(world.count(applied).await, 21);
    let lean = kit::record(&world, "lean").await;
    assert!(lean.response_dropped && lean.receipt.is_some(), "{lean:?}");
    let never = kit::record(&world, "never").await;
    assert_eq!((never.status.as_str(), never.reason.as_deref()), ("unknown", Some("store_failed")));
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (22, 1));
    roles.stop().await;
}

#[tokio::test]
async fn a_row_that_cannot_even_be_read_delays_no_neighbours_settle() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "concurrency: {process: 32}")).await;
    downstream.control(json!({"pause": true})).await;
    let roles = world.run("relay,worker");
    let good = (0..20).map(|n| format!("s{n}"));
    kit::submit_all(&world, "tickets.create", good.chain(["junk".into()])).await;
    kit::arrived(&downstream, 21).await;
    let junk = "update oncebox.operations set request_fingerprint = 'junk' where operation_key like '%:junk'";
    world.connect().await.execute(junk).await.unwrap();
    downstream.control(json!({"pause": false})).await;
    crate::support::eventually("the others are applied", 20, async || {
        let applied = "select count(*) from oncebox.operations where status = 'applied'";
        (world.count(applied).await == 20).then_some(())
    })
    .await;
    assert_eq!(kit::record(&world, "junk").await.status, "pending", "nobody called it done");
    roles.stop().await;
}
