//! A suspected twin is told the older key at both doors, in the same words, and goes on when the
//! submission says that a second effect is meant.

use oncebox::domain::lifecycle::State;
use oncebox::domain::reason::Reason;
use oncebox::ingress::{Asker, Results, Submission};
use oncebox::store::Which;
use oncebox::tool::Authorizers;
use serde_json::json;

use super::kit::{self, AGENT};
use crate::support::contracts::deduplicating;
use crate::support::doors::{Door, force};
use crate::support::wire::execute;
use crate::support::world::World;

const TOOL: &str = "tickets.keyed";

/// The same call under two keys; the younger was rejected as the older one's twin.
async fn twins(world: &World) {
    let arguments = r#"{"queue_id":"support","subject":"same"}"#;
    for step in ["older", "younger"] {
        let submission =
            Submission { arguments: arguments.into(), ..kit::asked(world, TOOL, step, "support") };
        world.submit(&submission).await.unwrap();
    }
    force(world, "older", State::Applied, None, true).await;
    force(world, "younger", State::Rejected, Some(Reason::SuspectedTwin), false).await;
    execute(
        world,
        "update oncebox.operations y set held_behind = o.operation_id from oncebox.operations o \
         where y.operation_key = 'acme:test:run:younger' and o.operation_key = 'acme:test:run:older'",
    )
    .await;
}

fn again(world: &World, distinct_from: Option<&str>) -> Submission {
    Submission {
        arguments: r#"{"queue_id":"support","subject":"same"}"#.into(),
        distinct_from: distinct_from.map(str::to_owned),
        ..kit::asked(world, TOOL, "younger", "support")
    }
}

#[tokio::test]
async fn both_doors_name_the_older_key_and_take_it() {
    let (world, _downstream) = kit::stage(deduplicating).await;
    twins(&world).await;
    let mut told = Vec::new();
    for door in Door::BOTH {
        for other in [None, Some("acme:test:run:another")] {
            told.push(door.submit(&world, &again(&world, other)).await.unwrap());
        }
    }
    assert_eq!(told[0]["suspected_twin_of"], json!("acme:test:run:older"));
    assert_eq!(told[0]["reason"], json!("suspected_twin"));
    assert!(told.iter().all(|envelope| *envelope == told[0]), "{told:?}");
    for door in Door::BOTH {
        let (world, _downstream) = kit::stage(deduplicating).await;
        twins(&world).await;
        let meant = again(&world, Some("acme:test:run:older"));
        let opened = door.submit(&world, &meant).await.unwrap();
        assert_eq!(opened["status"], json!("in_flight"), "{door:?}: {opened}");
        assert!(opened["suspected_twin_of"].is_null(), "{door:?}: {opened}");
    }
}

#[tokio::test]
async fn the_older_key_is_named_to_those_who_may_see_it() {
    let (world, _downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    twins(&world).await;
    let results = Results::new(Authorizers::default()).unwrap();
    let which = Which::Key { tenant: "acme".into(), key: kit::key("younger") };
    let asker = Asker { tenant: "acme", actor: Some(AGENT) };
    for named in [None, Some("acme:test:run:older")] {
        let told = world.submit(&again(&world, None)).await.unwrap();
        assert_eq!(told.suspected_twin_of.as_deref(), named);
        assert_eq!(told.reason, Some("suspected_twin"));
        let told = results.look(&mut world.connect().await, &which, asker).await.unwrap().unwrap();
        assert_eq!(told.suspected_twin_of.as_deref(), named);
        kit::grant(&world, TOOL, &[]).await;
    }
}
