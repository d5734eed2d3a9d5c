//! No order of crashes, pauses, losses, repetitions and verbs makes a second effect or a false label.
//!
//! A model checker goes through every state that a few records, workers and a downstream can come to,
//! and asks the real decisions of `domain` what happens next. Only what stands round them is modelled:
//! the shell's transactions, the wire, the clock, the downstream and people.

mod downstream;
mod moves;
mod properties;
mod protocol;
mod same;
mod setup;
mod shell;
mod world;

use std::time::Instant;

use stateright::{Checker as _, HasDiscoveries, Model as _};

use oncebox::domain::lifecycle::State;

use setup::{Service, Setup};
use shell::Shell;
use world::Budget;

/// More states than any run has; a run that has more has no end.
const MOST_STATES: usize = 400_000;

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
    for (property, path) in checker.discoveries() {
        println!("{name}: broken: {property}");
        for step in path.into_actions() {
            println!("    {step:?}");
        }
    }
    let reached = checker.model().reached.lock().unwrap().clone();
    println!(
        "model {name}: {} states, {} moves, depth {}, {:.1} s; ends: {reached:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64(),
    );
    checker.assert_properties();
    assert!(checker.state_count() < MOST_STATES, "{name}: not every state was seen");
    for state in must_reach {
        assert!(reached.contains(state), "{name}: no record ever came to {state:?}");
    }
}

#[test]
fn a_blind_downstream() {
    let budget = Budget { takeovers: 2, crashes: 1, freezes: 1, refusals: 1, ..Budget::default() };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    holds(Setup { budget, must_reach, ..Setup::new("blind", Service::Blind) });
}

#[test]
fn a_downstream_that_knows_the_key() {
    let budget = Budget { takeovers: 2, crashes: 1, freezes: 1, refusals: 1, ..Budget::default() };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    let service = Service::Remembers(world::ticks(setup::WINDOW));
    holds(Setup { budget, must_reach, ..Setup::new("dedup", service) });
}
