//! What adds or cannot be undone, and can neither be told twice nor be found out about, is kept manual:
//! a worker sends it only where a person approves each request.

use serde_json::Value;

use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::eventually;
use crate::support::process::{Process, oncebox};
use crate::support::world::World;

const APPROVED: &str = "approval: {wait: 1h, expires: 1h}";
const SOME: &str = "approval: {when: {/to: [press]}, wait: 1h, expires: 1h}";
const WHY: &str = "it is kept manual, since the effect cannot be undone";

/// The mails as what they are: not to be undone.
fn irreversible(downstream: &Downstream, more: &str) -> String {
    mails(&downstream.url, more).replace("effect_class: key_based", "effect_class: irreversible")
}

/// Exit code and everything that a command says.
fn said(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = oncebox(world, arguments).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&all).into_owned())
}

async fn ends(world: &World, step: &str, more: (&str, &str)) {
    eventually(&format!("{step} is {more:?}"), 30, async || {
        let status = world.status(step).await;
        ((status.0.as_str(), status.1.as_str()) == more).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_approvals_a_worker_leaves_the_tool_out_and_says_why() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    // An approval of some requests is none of the others.
    world.contract(&irreversible(&downstream, SOME)).await;
    let log = world.contracts.join("worker.log");
    let mut command = oncebox(&world, &["run", "--role", "relay,worker,maintain"]);
    command.stdout(std::process::Stdio::null());
    let _roles = Process::start_logging(command, &log);

    let mail = r#"{"to":"a","subject":"b"}"#;
    world.submit(&world.submission("mail.send", "mail", mail)).await.unwrap();
    let ticket = r#"{"subject":"Refund","body":"twice"}"#;
    world.submit(&world.submission("tickets.create", "ticket", ticket)).await.unwrap();
    ends(&world, "ticket", ("applied", "")).await;
    let served: Vec<String> = sqlx::query_scalar("select tool_name from oncebox.workers")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap();
    assert_eq!(served, ["tickets.create"]);
    assert_eq!(world.status("mail").await.0, "pending");
    assert_eq!(downstream.total().await, 1, "no mail is sent");
    let logged = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = logged.lines().filter(|line| line.contains(WHY)).collect();
    let [line] = lines.as_slice() else { panic!("{logged}") };
    assert!(line.contains("mail.send") && line.contains("tool is not served"), "{line}");

    let (_, told) = said(&world, &["doctor"]);
    assert!(told.lines().any(|line| line.contains("mail.send 1") && line.contains(WHY)), "{told}");
    let file = world.contracts.join("mail.send@1.yaml");
    let (code, told) = said(&world, &["contract", "activate", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("no worker will serve mail.send 1") && told.contains(WHY), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_approvals_it_runs_once_a_person_has_approved() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&irreversible(&downstream, APPROVED)).await;
    let roles = world.run("relay,worker,maintain");
    for (step, subject) in [("yes", "b"), ("open", "c")] {
        let mail = format!(r#"{{"to":"a","subject":"{subject}"}}"#);
        world.submit(&world.submission("mail.send", step, &mail)).await.unwrap();
        ends(&world, step, ("pending", "awaiting_approval")).await;
    }
    assert_eq!(downstream.total().await, 0, "nothing is sent before");
    let fingerprint: String = sqlx::query_scalar(
        "select request_fingerprint from oncebox.operations where operation_key = 'acme:test:run:yes'",
    )
    .fetch_one(&mut world.connect().await)
    .await
    .unwrap();
    let key = "acme:test:run:yes";
    let approve = ["ops", "approve", key, "--fingerprint", &fingerprint, "--by", "ann"];
    let (code, told) = said(&world, &approve);
    assert_eq!(code, Some(0), "{told}");
    ends(&world, "yes", ("applied", "")).await;
    roles.stop().await;
    assert_eq!(world.status("open").await, ("pending".into(), "awaiting_approval".into()));
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (1, 1));

    let output =
        oncebox(&world, &["contract", "check", "--trace", key, "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["ok"]), (Some(0), &true.into()), "{report:#}");
}
