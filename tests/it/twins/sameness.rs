//! Twins have the same tenant, environment, tool and material arguments, whatever their version, their
//! door, the order of their members and what they leave to defaults.

use oncebox::ingress::Submission;

use super::Stage;
use crate::support::contracts::{ContractText, deduplicating};
use crate::support::doors::Door;
use crate::support::world::Running;

/// Somebody under way, and an operation that differs as `other` says, through both doors.
async fn beside(stage: &Stage, other: impl Fn(Submission) -> Submission, held: bool) -> Running {
    let roles = stage.run();
    stage.under_way("a").await;
    for (step, door) in [("b", Door::Rust), ("c", Door::Sql)] {
        stage.through(door, &other(stage.asking(step, "s"))).await;
        let phase = if held { "held" } else { "sent" };
        crate::support::eventually(&format!("{step} is {phase}"), 20, async || {
            let found: Option<String> = sqlx::query_scalar(
                "select phase from oncebox.operations where workflow_step(operation_key) = $1",
            )
            .bind(step)
            .fetch_one(&mut stage.world.connect().await)
            .await
            .unwrap();
            (found.as_deref() == Some(phase)).then_some(())
        })
        .await;
        if !held {
            // The next one would be held behind this one, and not behind the first.
            stage.pause(false).await;
            stage.world.settled(20).await;
            stage.pause(true).await;
        }
    }
    stage.pause(false).await;
    stage.world.settled(20).await;
    roles
}

/// The last part of a key.
const STEP: &str = "create function public.workflow_step(operation_key text) returns text language sql \
    return split_part(operation_key, ':', 4)";

async fn check(other: impl Fn(Submission) -> Submission, held: bool) {
    let stage = Stage::new(|contract| contract).await;
    stage.execute(STEP).await;
    let roles = beside(&stage, other, held).await;
    assert_eq!(stage.downstream.total().await, if held { 1 } else { 3 });
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_is_no_twin() {
    check(|submission| Submission { tenant: "other".into(), ..submission }, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_environment_is_no_twin() {
    check(|submission| Submission { environment: "prod".into(), ..submission }, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_material_arguments_are_no_twin() {
    let other = r#"{"queue_id":"q","subject":"S"}"#;
    check(|submission| Submission { arguments: other.into(), ..submission }, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_members_order_and_spelling_are_a_twin() {
    let same = r#"{ "subject": "\u0073", "queue_id":"q" }"#;
    check(|submission| Submission { arguments: same.into(), ..submission }, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_actor_and_workflow_are_a_twin() {
    let other = |submission| Submission {
        actor: Some("eve".into()),
        workflow_id: "another".into(),
        metadata: Some("{}".into()),
        ..submission
    };
    check(other, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tool_is_no_twin() {
    let stage = Stage::new(|contract| contract).await;
    stage.execute(STEP).await;
    let more = deduplicating(&stage.downstream.url).name("tickets.again").timeout(super::PATIENT);
    stage.world.contract(&more.text()).await;
    stage.execute("update oncebox.contracts set is_current = true").await;
    let other = |submission| Submission { tool: "tickets.again".into(), ..submission };
    let roles = beside(&stage, other, false).await;
    assert_eq!(stage.downstream.total().await, 3);
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_a_twin() {
    let stage = Stage::new(|contract| contract).await;
    stage.execute(STEP).await;
    let second = |contract: ContractText| contract.version("2").timeout(super::PATIENT);
    stage.world.contract(&second(deduplicating(&stage.downstream.url)).text()).await;
    let other = |submission| Submission { tool_version: Some("2".into()), ..submission };
    let roles = beside(&stage, other, true).await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// A member that is left out is what its default says.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_to_a_default_is_a_twin() {
    let stage = Stage::bare().await;
    stage.execute(STEP).await;
    let contract = deduplicating(&stage.downstream.url)
        .timeout(super::PATIENT)
        .text()
        .replace("required: [queue_id, subject]", "required: [subject]")
        .replace(
            "fields: [/queue_id, /subject]",
            "fields: [/queue_id, /subject], defaults: {/queue_id: q}",
        )
        .replace("queue: \"{/queue_id}\"", "queue: q");
    stage.world.contract(&contract).await;
    stage.activate(&contract).await;
    let other = |submission| Submission { arguments: r#"{"subject":"s"}"#.into(), ..submission };
    let roles = beside(&stage, other, true).await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}
