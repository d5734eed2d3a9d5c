//! What a submission promises, at the Rust API and at the SQL function.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

mod bad_input;
mod cancelled;
mod contracts_registry;
mod deadlocks;
mod durability;
mod migrations;
mod no_locks;
mod one_transaction;
mod ordering_numbers;
mod pooled;
mod publishers_role;
mod reopening;
mod same_at_both_doors;
mod same_request;
mod second_submission;
mod tenants;
mod versions;
mod waiting;

use oncebox::ingress::Submission;

use crate::support::downstream::tickets;
use crate::support::world::World;

/// A world with tool `tickets.create` version 1, whose downstream nobody answers.
async fn world() -> World {
    let world = World::new().await;
    world.contract(&tickets(NOWHERE, "")).await;
    world
}

/// Nobody listens here.
const NOWHERE: &str = "http://127.0.0.1:9";

/// The arguments that these tests submit, unless they mind.
const REFUND: &str = r#"{"subject":"Refund","body":"secret-of-the-first"}"#;

/// What another request under the same key asks for.
const OTHER: &str = r#"{"subject":"Refund","body":"secret-of-the-second"}"#;

/// A submission of `REFUND` for `step`.
fn refund(world: &World, step: &str) -> Submission {
    world.submission("tickets.create", step, REFUND)
}

/// The same with other arguments.
fn asking(world: &World, step: &str, arguments: &str) -> Submission {
    world.submission("tickets.create", step, arguments)
}
