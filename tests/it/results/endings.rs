//! Which endings are told, in which words, and that an event stands and falls with its settle.

use std::process::Command;

use serde_json::json;
use sqlx::Row as _;

use super::listener::{Heard, Listener};
use crate::consumer::kit;
use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::process::oncebox;
use crate::support::wire::{execute, left};
use crate::support::world::World;

const TOLD: &str = "results: true\nretry: {initial: 100ms, max: 300ms, jitter: 0}";

async fn world() -> (World, Downstream) {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, TOLD)).await;
    world.contract(&mails(&downstream.url, TOLD)).await;
    (world, downstream)
}

/// The event of `step`, which is the only one.
fn of<'a>(heard: &'a [Heard], step: &str) -> &'a Heard {
    let key = format!("acme:test:run:{step}");
    let mut found = heard.iter().filter(|event| event.body["operation_key"] == key);
    let event = found.next().unwrap_or_else(|| panic!("no event of {step}: {heard:?}"));
    assert!(found.next().is_none(), "more than one event of {step}");
    event
}

async fn nothing_is_left(world: &World) {
    crate::support::eventually("the outbox is empty", 20, async || {
        (left(world).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_ending_is_told_once_to_whoever_listens() {
    let (world, downstream) = world().await;
    let listener = Listener::to(&world, "acme.#").await;
    let fault = json!({"on": "tickets", "key_contains": "", "status": 422, "times": 1});
    downstream.control(fault).await;
    downstream.control(json!({"on": "mail", "drop_response": true})).await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "refused").await;
    kit::ends(&world, "refused", "failed_permanent").await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut applied = kit::submission(&world, "tickets.create", "applied");
    applied.traceparent = Some(trace.to_owned());
    world.submit(&applied).await.unwrap();
    kit::submit(&world, "mail.send", "lost").await;
    let invalid =
        "select oncebox.submit('acme', 'test', 'run', 'invalid', 'mail.send', '1', '{\"to\": 7}')";
    execute(&world, invalid).await;
    // Refused at the door: there is no record, and nothing to tell of.
    let refused = world.submission("tickets.create", "refused_at_the_door", r#"{"subject":7}"#);
    world.submit(&refused).await.unwrap_err();
    let heard = listener.hears(4).await;
    let keys: Vec<&str> = ["applied", "refused", "lost", "invalid"]
        .map(|step| of(&heard, step).routing_key.as_str())
        .into();
    let expected = [
        "acme.tickets.create.applied",
        "acme.tickets.create.failed_permanent",
        "acme.mail.send.unknown",
        "acme.mail.send.rejected",
    ];
    assert_eq!(keys, expected);
    let record = kit::record(&world, "applied").await;
    assert!(record.response.is_some(), "kept, and not told");
    let event = of(&heard, "applied");
    assert_eq!(
        event.body,
        json!({
            "status": "applied", "operation_id": record.id, "operation_key": "acme:test:run:applied",
            "effect_reference": record.receipt, "response": null, "safe_to_repeat": true,
            "next_action": "none", "retry_after_seconds": null, "reason": null,
            "tool": "tickets.create", "tool_version": "1", "suspected_twin_of": null,
        })
    );
    assert_eq!(
        event.headers,
        json!({
            "oncebox-operation-key": "acme:test:run:applied", "oncebox-tenant": "acme", "traceparent": trace,
        })
    );
    assert_eq!((event.kind.as_str(), event.persistent), ("oncebox.result.v1", true));
    assert_eq!(event.content_type, "application/json");
    assert_eq!(of(&heard, "lost").body["reason"], "no_proof");
    assert_eq!(of(&heard, "lost").body["next_action"], "reconcile");
    nothing_is_left(&world).await;
    assert!(listener.next().await.is_none());
    roles.stop().await;
}

#[tokio::test]
async fn without_a_listener_nothing_fails_and_nothing_is_left() {
    let (world, _downstream) = world().await;
    let roles = world.run("relay,worker");
    for step in ["a", "b", "c"] {
        kit::submit(&world, "tickets.create", step).await;
        kit::ends(&world, step, "applied").await;
    }
    nothing_is_left(&world).await;
    roles.stop().await;
}

#[tokio::test]
async fn a_contract_that_wants_none_makes_none() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "results: false")).await;
    // A settle that wrote an event would be refused.
    execute(&world, "alter table oncebox.outbox add check (event_routing is null)").await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "a").await;
    kit::ends(&world, "a", "applied").await;
    roles.stop().await;
}

/// The events wait while the record moves on: each is published in the words of its own moment.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_that_is_resolved_is_told_twice() {
    let (world, downstream) = world().await;
    let listener = Listener::to(&world, "acme.mail.send.*").await;
    downstream.control(json!({"on": "mail", "drop_response": true})).await;
    kit::submit(&world, "mail.send", "lost").await;
    let relay = world.run("relay");
    nothing_is_left(&world).await;
    relay.stop().await;
    let worker = world.run("worker");
    kit::ends(&world, "lost", "unknown").await;
    worker.stop().await;
    let resolve = "ops resolve acme:test:run:lost --applied M-7 --by ann --reason seen";
    let resolve: Vec<&str> = resolve.split(' ').collect();
    assert!(oncebox(&world, &resolve).output().unwrap().status.success());
    assert_eq!(left(&world).await, 2);
    let relay = world.run("relay");
    let heard = listener.hears(2).await;
    let mut told: Vec<_> = heard
        .iter()
        .map(|event| (event.routing_key.as_str(), event.body["effect_reference"].as_str()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, [("acme.mail.send.applied", Some("M-7")), ("acme.mail.send.unknown", None)]);
    assert!(heard.iter().all(|e| e.routing_key.ends_with(e.body["status"].as_str().unwrap())));
    relay.stop().await;
}

/// Settles are made to fail at their commit, after every statement: what they wrote is gone whole.
#[tokio::test]
async fn an_event_stands_and_falls_with_its_settle() {
    let (world, _downstream) = world().await;
    for statement in [
        "create function oncebox.test_refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'not this one' using errcode = '23514'; end $$",
        "create constraint trigger test_refuse after update on oncebox.operations deferrable initially deferred \
         for each row when (new.status = 'applied') execute function oncebox.test_refuse()",
    ] {
        execute(&world, statement).await;
    }
    let listener = Listener::to(&world, "#").await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "a").await;
    let record = kit::ends(&world, "a", "unknown").await;
    assert_eq!(record.reason.as_deref(), Some("store_failed"));
    let heard = listener.hears(1).await;
    assert_eq!(heard[0].routing_key, "acme.tickets.create.unknown");
    nothing_is_left(&world).await;
    assert!(listener.next().await.is_none(), "no event of a settle that was rolled back");
    roles.stop().await;
    // And the other way round: no ending of such a record without its event.
    execute(&world, "drop trigger test_refuse on oncebox.operations").await;
    execute(&world, "alter table oncebox.outbox add check (event_routing not like '%.applied')")
        .await;
    let roles = world.run("relay,worker");
    kit::submit(&world, "tickets.create", "b").await;
    kit::ends(&world, "b", "unknown").await;
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_an_operation_needs_no_event_and_no_relay() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    kit::submit(&world, "tickets.create", "a").await;
    let relay = world.run("relay");
    nothing_is_left(&world).await;
    relay.stop().await;
    let mut wait: Command = oncebox(&world, &["ops", "wait", "acme:test:run:a", "--json"]);
    let waits = wait.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let worker = world.run("worker");
    let output = tokio::task::spawn_blocking(|| waits.wait_with_output().unwrap()).await.unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &told["status"]), (Some(0), &json!("applied")));
    worker.stop().await;
    let mut connection = world.connect().await;
    let row = sqlx::query("select results from oncebox.operations").fetch_one(&mut connection);
    assert!(!row.await.unwrap().get::<bool, _>("results"));
}
