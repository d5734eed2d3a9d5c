//! A key belongs to its tenant and environment, and is compared byte for byte.

use oncebox::ingress::Submission;

use super::{REFUND, world};
use crate::support::doors::Door;
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;

fn order(tenant: &str, environment: &str, step: &str) -> Submission {
    Submission {
        tenant: tenant.into(),
        environment: environment.into(),
        workflow_id: "orders".into(),
        step_id: step.into(),
        tool: "tickets.create".into(),
        arguments: REFUND.into(),
        ..Submission::default()
    }
}

#[tokio::test]
async fn the_same_key_of_another_tenant_or_environment_is_another_operation() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let places = [("t1", "staging"), ("t2", "staging"), ("t1", "production")];
    for (n, (tenant, environment)) in places.into_iter().enumerate() {
        let told =
            Door::BOTH[n % 2].submit(&world, &order(tenant, environment, "order-1")).await.unwrap();
        assert_eq!(told["status"], "in_flight");
    }
    let roles = world.run("relay,worker,maintain");
    world.settled(30).await;
    roles.stop().await;
    assert_eq!(downstream.total().await, 3);
    for door in Door::BOTH {
        let mut references = Vec::new();
        for (tenant, environment) in places {
            let told = door.submit(&world, &order(tenant, environment, "order-1")).await.unwrap();
            assert_eq!(told["status"], "replayed", "{door:?}");
            assert!(
                told["operation_key"]
                    .as_str()
                    .unwrap()
                    .starts_with(&format!("{tenant}:{environment}:"))
            );
            references.push(told["effect_reference"].as_str().unwrap().to_owned());
        }
        references.sort();
        references.dedup();
        assert_eq!(references.len(), 3, "{door:?}: nobody sees another's receipt");
    }
}

#[tokio::test]
async fn keys_that_only_look_alike_are_different_keys() {
    let world = world().await;
    let alike = [
        "é", "e\u{301}", "É", "a", "A", "a ", "a\u{a0}", "ß", "ss", "ﬁ", "fi", "%3A", ":", "1",
        "１",
    ];
    for (n, step) in alike.into_iter().enumerate() {
        let door = Door::BOTH[n % 2];
        door.submit(&world, &order("t1", "test", step)).await.unwrap();
        let stands = world.count("select count(*) from oncebox.operations").await;
        assert_eq!(stands, i64::try_from(n).unwrap() + 1, "{step:?}");
    }
}

#[tokio::test]
async fn a_colon_moved_from_one_part_to_the_next_makes_another_key() {
    for door in Door::BOTH {
        let world = world().await;
        for (workflow, step) in [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a%253Ab", "c")] {
            let submission =
                Submission { workflow_id: workflow.into(), ..order("t1", "test", step) };
            door.submit(&world, &submission).await.unwrap();
        }
        assert_eq!(world.count("select count(*) from oncebox.operations").await, 4, "{door:?}");
    }
}
