//! Whose endings are told: what the contract said when the operation was submitted or reopened.

use oncebox::domain::lifecycle::State;
use oncebox::domain::reason::Reason;

use crate::consumer::kit;
use crate::support::doors::{Door, force};
use crate::support::downstream::tickets;
use crate::support::world::World;

const URL: &str = "http://127.0.0.1:9";

async fn told(world: &World, step: &str) -> bool {
    let mut connection = world.connect().await;
    sqlx::query_scalar("select results from oncebox.operations where operation_key = $1")
        .bind(format!("acme:test:run:{step}"))
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

async fn submit(world: &World, door: Door, step: &str) {
    door.submit(world, &kit::submission(world, "tickets.create", step)).await.unwrap();
}

#[tokio::test]
async fn the_contract_of_the_submission_says_so_at_both_doors() {
    for door in Door::BOTH {
        let world = World::new().await;
        world.contract(&tickets(URL, "")).await;
        submit(&world, door, "before").await;
        // Not material: the same version may say otherwise later, for what is submitted then.
        world.contract(&tickets(URL, "results: true")).await;
        submit(&world, door, "after").await;
        assert_eq!((told(&world, "before").await, told(&world, "after").await), (false, true));
        force(&world, "before", State::Rejected, Some(Reason::PreconditionFailed), false).await;
        submit(&world, door, "before").await;
        assert!(told(&world, "before").await, "{door:?}: opened again under what is said now");
        world.contract(&tickets(URL, "")).await;
        submit(&world, door, "last").await;
        assert_eq!((told(&world, "after").await, told(&world, "last").await), (true, false));
    }
}

#[tokio::test]
async fn a_text_that_is_another_contract_changes_nothing() {
    let world = World::new().await;
    world.contract(&tickets(URL, "")).await;
    let other = tickets(URL, "results: true").replace("/tickets", "/other");
    world.contract(&other).await;
    submit(&world, Door::Sql, "a").await;
    assert!(!told(&world, "a").await);
}

#[tokio::test]
async fn no_tool_can_have_the_queue_of_the_events() {
    let world = World::new().await;
    let registered = sqlx::query(
        "insert into oncebox.contracts (tool_name, tool_version, contract_text, material_digest) values ('results', '1', '', '')",
    )
    .execute(&mut world.connect().await)
    .await;
    assert!(registered.is_err());
}
