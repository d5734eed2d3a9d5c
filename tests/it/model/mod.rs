//! No order of crashes, pauses, losses, repetitions and verbs makes a second effect or a false label.
//!
//! A model checker goes through every state that a few records, workers and a downstream can come to,
//! and asks the real decisions of `domain` what happens next. Only what stands round them is modelled:
//! the shell's transactions, the wire, the clock, the downstream and people.

mod downstream;
mod moves;
mod mutations;
mod people;
mod properties;
mod protocol;
mod runs;
mod same;
mod setup;
mod shell;
mod world;

use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries, Model as _};

use setup::Setup;
use shell::Shell;

/// More states than any run has; a run that has more has no end.
const MOST_STATES: usize = 1_000_000;

/// Explores every state of `setup`, prints how many there were, and demands that no rule is broken.
fn holds(setup: Setup) {
    let begun = Instant::now();
    let name = setup.name;
    let must_reach = setup.must_reach;
    let checker = Shell::new(setup, None)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(MOST_STATES)
        .spawn_bfs()
        .join();
    let reached = checker.model().reached.lock().unwrap().clone();
    println!(
        "model {name}: {} states, {} moves, depth {}, {:.1} s; ends: {reached:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64(),
    );
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let steps = path.into_actions();
        panic!("{name}: not true any more: {property}, after {steps:#?}");
    }
    assert!(checker.state_count() < MOST_STATES, "{name}: not every state was seen");
    for state in must_reach {
        assert!(reached.contains(state), "{name}: no record ever came to {state:?}");
    }
}

macro_rules! holds {
    ($($run:ident),* $(,)?) => {
        $(#[test] fn $run() { holds(runs::$run()); })*
    };
}

holds! {
    blind, dedup, dedup_deferred, lookup, lookup_frozen, cache, absent_to_people, dedup_lookup,
    jobs, jobs_dedup, jobs_lookup, already, done_by_another, grants, grants_lookup, policy,
    approvals, unconfirmed, operators, twins, twins_people,
}
