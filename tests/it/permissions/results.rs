//! A stored result is handed out to those who may see it: the asking actor is checked, whoever
//! submitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use oncebox::domain::evidence::Allowance;
use oncebox::domain::lifecycle::State;
use oncebox::ingress::{Asker, ResultError, Results, Submission};
use oncebox::store::Which;
use oncebox::tool::{Action, Authorizer, Authorizers, Question};
use serde_json::{Value, json};

use super::kit::{self, AGENT};
use crate::support::contracts::deduplicating;
use crate::support::doors::{Door, force};
use crate::support::world::World;

const TOOL: &str = "tickets.keyed";

/// An applied operation of [`AGENT`], with a receipt and a response.
async fn applied(world: &World, step: &str, queue: &str) {
    kit::ask(world, TOOL, step, queue).await;
    force(world, step, State::Applied, None, true).await;
}

/// What a second submission by `actor` is told.
async fn replayed(world: &World, step: &str, queue: &str, actor: Option<&str>) -> Value {
    let submission =
        Submission { actor: actor.map(str::to_owned), ..kit::asked(world, TOOL, step, queue) };
    serde_json::to_value(world.submit(&submission).await.unwrap()).unwrap()
}

async fn looked(
    world: &World,
    results: &Results,
    step: &str,
    actor: Option<&str>,
) -> Result<Value, ResultError> {
    let which = Which::Key { tenant: "acme".into(), key: kit::key(step) };
    let asker = Asker { tenant: "acme", actor };
    let told = results.look(&mut world.connect().await, &which, asker).await?;
    Ok(serde_json::to_value(told.expect("there is one")).unwrap())
}

/// `(status, response, effect_reference, reason)`
fn result(told: &Value) -> Value {
    json!([told["status"], told["response"], told["effect_reference"], told["reason"]])
}

fn seen(status: &str) -> Value {
    json!([status, {"ticket_id": "T-1"}, "T-1", null])
}

fn withheld(status: &str) -> Value {
    json!([status, null, null, "not_authorized"])
}

#[tokio::test]
async fn without_authorization_the_result_is_everyones_and_nobody_is_asked() {
    let (world, downstream) = kit::stage(deduplicating).await;
    applied(&world, "a", "support").await;
    // Whoever asked would find no table.
    crate::support::wire::execute(&world, "alter table oncebox.grants rename to elsewhere").await;
    assert_eq!(result(&replayed(&world, "a", "support", None).await), seen("replayed"));
    let results = Results::new(Authorizers::default()).unwrap();
    assert_eq!(result(&looked(&world, &results, "a", None).await.unwrap()), seen("applied"));
    assert_eq!(downstream.policy().count().await, 0);
}

#[tokio::test]
async fn grants_are_asked_of_the_asking_actor() {
    let (world, _downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    applied(&world, "a", "support").await;
    applied(&world, "b", "vip").await;
    let results = Results::new(Authorizers::default()).unwrap();
    for actor in [Some(AGENT), Some("bob"), None] {
        assert_eq!(result(&replayed(&world, "a", "support", actor).await), withheld("replayed"));
        let told = looked(&world, &results, "a", actor).await.unwrap();
        assert_eq!(result(&told), withheld("applied"), "{actor:?}");
    }
    let limits = r#"{"/queue_id": ["support"]}"#;
    let words = ["grants", "add", "--tenant", "acme", "--actor", "bob", "--tool", TOOL, "--where"];
    let given = kit::done(&world, &[&words[..], &[limits, "--by", "ann", "--json"]].concat()).await;
    let bobs = given.json()["grant_id"].as_str().unwrap().to_owned();
    assert_eq!(result(&replayed(&world, "a", "support", Some("bob")).await), seen("replayed"));
    assert_eq!(
        result(&replayed(&world, "a", "support", Some(AGENT)).await),
        withheld("replayed"),
        "who submitted it has no grant"
    );
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(result(&told), seen("applied"));
    assert_eq!(result(&replayed(&world, "b", "vip", Some("bob")).await), withheld("replayed"));
    let told = looked(&world, &results, "b", Some("bob")).await.unwrap();
    assert_eq!(result(&told), withheld("applied"), "not of these arguments");

    kit::revoke(&world, &bobs).await;
    assert_eq!(result(&replayed(&world, "a", "support", Some("bob")).await), withheld("replayed"));
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(result(&told), withheld("applied"));
}

/// In the caller's transaction nobody outside can be asked: what the SQL door tells, too.
#[tokio::test]
async fn where_a_policy_decides_a_submission_tells_the_reference_and_a_look_the_response() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).policy()).await;
    applied(&world, "a", "support").await;
    let policy = downstream.policy();
    let told = replayed(&world, "a", "support", Some("bob")).await;
    assert_eq!(result(&told), json!(["replayed", null, "T-1", null]));
    let at_the_sql_door =
        Door::Sql.submit(&world, &kit::asked(&world, TOOL, "a", "support")).await.unwrap();
    assert_eq!(result(&at_the_sql_door), result(&told));
    assert_eq!(policy.count().await, 0);

    let results = Results::new(Authorizers::default()).unwrap();
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(result(&told), seen("applied"));
    let input = policy.inputs().await.pop().unwrap();
    assert_eq!((&input["action"], &input["actor"]), (&json!("read"), &json!("bob")), "{input}");
    policy.deny_actor("bob").await;
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(result(&told), withheld("applied"));
    policy.always(500).await;
    let unreachable = looked(&world, &results, "a", Some(AGENT)).await.unwrap_err();
    assert!(matches!(unreachable, ResultError::PolicyUnreachable), "{unreachable:?}");
    policy.as_usual().await;
    let told = looked(&world, &results, "a", Some(AGENT)).await.unwrap();
    assert_eq!(result(&told), seen("applied"));
}

#[tokio::test]
async fn where_there_is_no_result_nobody_is_asked() {
    let (world, downstream) = kit::stage(|url| deduplicating(url).policy()).await;
    downstream.policy().always(500).await;
    kit::ask(&world, TOOL, "a", "support").await;
    let results = Results::new(Authorizers::default()).unwrap();
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(told["status"], "in_flight");
    assert_eq!(downstream.policy().count().await, 0);
}

#[tokio::test]
async fn another_tenants_operation_is_not_there() {
    let (world, _downstream) = kit::stage(deduplicating).await;
    applied(&world, "a", "support").await;
    let results = Results::new(Authorizers::default()).unwrap();
    let id = kit::record(&world, "a").await.id;
    let mut connection = world.connect().await;
    for which in [Which::Id(id), Which::Key { tenant: "acme".into(), key: kit::key("a") }] {
        for (tenant, there) in [("acme", true), ("other", false)] {
            let asker = Asker { tenant, actor: Some(AGENT) };
            let told = results.look(&mut connection, &which, asker).await.unwrap();
            assert_eq!(told.is_some(), there, "{tenant} {which:?}");
        }
    }
}

/// Says what it is told to, to reads only.
#[derive(Default)]
struct Says(AtomicU8);

#[async_trait]
impl Authorizer for Says {
    async fn allow(&self, ask: &Question<'_>) -> Allowance {
        assert_eq!((ask.action, ask.tenant, ask.actor), (Action::Read, "acme", Some("bob")));
        assert!(ask.arguments.member("queue_id").is_some());
        match self.0.load(Ordering::SeqCst) {
            0 => Allowance::Allowed,
            1 => Allowance::Denied,
            _ => panic!("as ordered"),
        }
    }
}

#[tokio::test]
async fn where_code_decides_it_is_asked_about_each_look() {
    let kind = |url: &str| deduplicating(url).more("authorization: {code: house}");
    let (world, _downstream) = kit::stage(kind).await;
    applied(&world, "a", "support").await;
    let told = replayed(&world, "a", "support", Some("bob")).await;
    assert_eq!(result(&told), json!(["replayed", null, "T-1", null]));
    let says = Arc::new(Says::default());
    let mut authorizers = Authorizers::default();
    authorizers.add("house", Arc::clone(&says) as _);
    let results = Results::new(authorizers).unwrap();
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(result(&told), seen("applied"));
    says.0.store(1, Ordering::SeqCst);
    let told = looked(&world, &results, "a", Some("bob")).await.unwrap();
    assert_eq!(result(&told), withheld("applied"));
    says.0.store(2, Ordering::SeqCst);
    let failed = looked(&world, &results, "a", Some("bob")).await.unwrap_err();
    assert!(matches!(failed, ResultError::PolicyUnreachable), "a panic is no answer: {failed:?}");
    let nobody = Results::new(Authorizers::default()).unwrap();
    let failed = looked(&world, &nobody, "a", Some("bob")).await.unwrap_err();
    assert!(matches!(failed, ResultError::NoAuthorizer(_)), "{failed:?}");
}
