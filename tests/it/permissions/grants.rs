//! An actor without a grant makes no effect; the same submission may come again when there is one.

use std::sync::Arc;

use async_trait::async_trait;
use oncebox::domain::attempt::{Effect, Receipt, Response};
use oncebox::ingress::Submission;
use oncebox::runtime::RustTools;
use oncebox::tool::{Call, SettlingConnection, TransactionalRefusal, TransactionalTool};
use serde_json::json;
use sqlx::Executor as _;

use super::kit::{self, AGENT, Kind};
use crate::consumer::kit::rust_contract;
use crate::support::contracts::{blind, deduplicating, looked_up};
use crate::support::wire::execute;
use crate::support::world::World;

/// The three kinds of tools: one whose send is marked in its claim, and two with a mark of its own.
const KINDS: [(&str, Kind); 3] =
    [("tickets.keyed", deduplicating), ("tickets.found", looked_up), ("tickets.blind", blind)];

#[tokio::test]
async fn without_a_grant_nothing_is_sent_and_with_one_the_same_submission_is_applied_once() {
    for (tool, kind) in KINDS {
        let (world, downstream) = kit::stage(|url| kind(url).granted()).await;
        let roles = kit::roles(&world);
        kit::ask(&world, tool, "a", "support").await;
        let record = kit::ends_for(&world, "a", "rejected", "not_authorized").await;
        assert_eq!((record.attempts, record.sent), (0, false), "{tool}");
        let story = kit::story(&world, "a").await;
        assert!(!story.contains("authorized") && !story.contains("sent"), "{tool}: {story}");
        assert_eq!(kit::requests(&downstream).await, 0, "{tool}");

        kit::grant(&world, tool, &[]).await;
        let again = world.submit(&kit::asked(&world, tool, "a", "support")).await.unwrap();
        assert_eq!(serde_json::to_value(again.status).unwrap(), "in_flight", "{tool}");
        kit::ends(&world, "a", "applied").await;
        let counted = downstream.effects().await;
        assert_eq!((&counted["total"], &counted["requests"]), (&json!(1), &json!(1)), "{tool}");
        let story = kit::story(&world, "a").await;
        assert!(story.contains("claimed authorized sent committed settled"), "{tool}: {story}");
        roles.stop().await;
    }
}

/// Writes a row.
struct Ledger;

#[async_trait]
impl TransactionalTool for Ledger {
    async fn apply(
        &self,
        _call: &Call,
        connection: &mut SettlingConnection,
    ) -> Result<Effect, TransactionalRefusal> {
        let written = connection.execute("insert into public.ledger default values").await;
        written.map_err(|_| TransactionalRefusal::Retry)?;
        Ok(Effect { receipt: Receipt::new("L-1").unwrap(), response: Response::None })
    }
}

/// Its effect is in the settling transaction, which looks at the grants itself.
#[tokio::test]
async fn a_transactional_effect_is_not_made_without_a_grant() {
    let world = World::new().await;
    let contract = rust_contract("ledger.write", "transactional", "authorization: {grants: true}");
    world.contract(&contract).await;
    execute(&world, "create table public.ledger (n int)").await;
    let tools = RustTools::default().with_transactional("ledger.write", "1", Arc::new(Ledger));
    let roles = world.run_with("relay,worker,maintain", kit::MARGIN, tools);
    let submission = Submission {
        actor: Some(AGENT.into()),
        ..world.submission("ledger.write", "a", r#"{"n":"a"}"#)
    };
    world.submit(&submission).await.unwrap();
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    assert_eq!(world.count("select count(*) from public.ledger").await, 0);
    kit::grant(&world, "ledger.write", &[]).await;
    world.submit(&submission).await.unwrap();
    kit::ends(&world, "a", "applied").await;
    assert_eq!(world.count("select count(*) from public.ledger").await, 1);
    let story = kit::story(&world, "a").await;
    assert!(story.contains("claimed authorized settled"), "{story}");
    roles.stop().await;
}

#[tokio::test]
async fn a_tool_that_asks_nobody_says_nothing_of_permission() {
    let (world, _downstream) = kit::stage(deduplicating).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends(&world, "a", "applied").await;
    assert!(!kit::story(&world, "a").await.contains("authorized"));
    roles.stop().await;
}

#[tokio::test]
async fn a_grant_counts_for_the_arguments_that_it_is_limited_to() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    let limits = r#"{"/queue_id": ["support", "billing"]}"#;
    kit::grant(&world, "tickets.keyed", &["--where", limits]).await;
    let roles = kit::roles(&world);
    for (step, queue, status) in
        [("a", "support", "applied"), ("b", "billing", "applied"), ("c", "vip", "rejected")]
    {
        kit::ask(&world, "tickets.keyed", step, queue).await;
        kit::ends(&world, step, status).await;
    }
    assert_eq!(kit::requests(&downstream).await, 2);
    roles.stop().await;
}

#[tokio::test]
async fn only_a_grant_that_is_in_force_counts() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    let roles = kit::roles(&world);
    kit::grant(&world, "tickets.keyed", &["--until", "2020-01-01T00:00:00Z"]).await;
    kit::grant(&world, "tickets.keyed", &["--from", "2100-01-01T00:00:00Z"]).await;
    let revoked = kit::grant(&world, "tickets.keyed", &[]).await;
    kit::revoke(&world, &revoked).await;
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    let until = ["--from", "2020-01-01T00:00:00Z", "--until", "2100-01-01T00:00:00Z"];
    kit::grant(&world, "tickets.keyed", &until).await;
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends(&world, "a", "applied").await;
    roles.stop().await;
}

#[tokio::test]
async fn nobody_elses_grant_counts() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    for (tenant, actor, tool) in [
        ("other", AGENT, "tickets.keyed"),
        ("acme", "agent-70", "tickets.keyed"),
        ("acme", AGENT, "tickets.blind"),
    ] {
        let words = ["grants", "add", "--tenant", tenant, "--actor", actor, "--tool", tool];
        kit::done(&world, &[&words[..], &["--by", "ann"]].concat()).await;
    }
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    let nobody = Submission { actor: None, ..kit::asked(&world, "tickets.keyed", "b", "support") };
    world.submit(&nobody).await.unwrap();
    kit::ends_for(&world, "b", "rejected", "not_authorized").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}

/// A limit that no program here can read, written past the command line.
#[tokio::test]
async fn a_limit_that_cannot_be_read_allows_nothing() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    for limits in ["[]", r#"{"queue_id": ["support"]}"#, r#"{"/queue_id": []}"#] {
        forced_grant(&world, limits).await;
    }
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "support").await;
    kit::ends_for(&world, "a", "rejected", "not_authorized").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}

async fn forced_grant(world: &World, limits: &str) {
    sqlx::query(
        "insert into oncebox.grants (grant_id, tenant_id, actor, tool_name, arguments, granted_by) \
         values (gen_random_uuid(), 'acme', $1, 'tickets.keyed', $2::text::json, 'ann')",
    )
    .bind(AGENT)
    .bind(limits)
    .execute(&mut world.connect().await)
    .await
    .unwrap();
}
