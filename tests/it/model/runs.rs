//! The runs: each a contract, a downstream, and what may go wrong with them.
//!
//! None lets everything go wrong at once: that would be more states than anybody waits for. Together
//! they have each trouble beside each kind of downstream that it matters to.

use oncebox::domain::contract::AbsentRule;
use oncebox::domain::lifecycle::State;

use super::setup::{Service, Setup, WINDOW};
use super::world::{Budget, Told, Verb, ticks};

const REMEMBERS: Service = Service::Remembers(ticks(WINDOW));

/// A worker that is late, for as long as the run lasts, or dies.
const LATE: Budget = Budget { overruns: 1, ..Budget::NONE };

/// The same, and one that dies at any moment besides.
const CRASH: Budget = Budget { crashes: 1, ..LATE };

/// Each key is an effect, and nobody can be asked.
pub(super) fn blind() -> Setup {
    let budget = Budget { freezes: 1, refusals: 1, unheard: 1, ..CRASH };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    Setup { budget, must_reach, ..Setup::new("blind", Service::Blind) }
}

/// The downstream knows our key for a while.
pub(super) fn dedup() -> Setup {
    let budget = Budget { freezes: 1, refusals: 1, ..CRASH };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    Setup { budget, must_reach, ..Setup::new("dedup", REMEMBERS) }
}

/// Attempts of which nothing leaves, and answers that say *not now*, among open ones.
pub(super) fn dedup_deferred() -> Setup {
    let budget = Budget { deferrals: 2, unheard: 1, ..LATE };
    let must_reach = &[State::Applied, State::Unknown];
    Setup { budget, must_reach, ..Setup::new("dedup, deferred", REMEMBERS) }
}

/// Only a look-up says whether the effect is there.
pub(super) fn lookup() -> Setup {
    let budget = Budget { blanks: 1, ..LATE };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    let setup = Setup { budget, must_reach, ..Setup::new("look-up", Service::Blind) };
    setup.with_lookup(true, AbsentRule::Resend)
}

/// The same with a worker that is frozen right before its first byte.
pub(super) fn lookup_frozen() -> Setup {
    let budget = Budget { freezes: 1, ..LATE };
    Setup { name: "look-up, frozen", budget, ..lookup() }
}

/// The look-up asks a cache: what it does not find proves nothing.
pub(super) fn cache() -> Setup {
    let budget = Budget { blanks: 1, ..LATE };
    let must_reach = &[State::Applied, State::Unknown];
    let setup = Setup { budget, must_reach, ..Setup::new("cache", Service::Blind) };
    setup.with_lookup(false, AbsentRule::Resend)
}

/// Absence goes to a person, who may open the operation again.
pub(super) fn absent_to_people() -> Setup {
    let budget = Budget { verbs: 2, ..LATE };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    let setup =
        Setup { jumps: true, budget, must_reach, ..Setup::new("absent to people", Service::Blind) };
    setup.with_lookup(true, AbsentRule::Operator)
}

/// Sent again with the same key while it is known, looked up after that; refused on a re-send.
pub(super) fn dedup_lookup() -> Setup {
    let budget = Budget { refusals: 1, ..LATE };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    let setup = Setup { budget, must_reach, ..Setup::new("dedup, look-up", REMEMBERS) };
    setup.with_lookup(true, AbsentRule::Resend)
}

/// The provider makes a job of each request.
pub(super) fn jobs() -> Setup {
    let budget = Budget { freezes: 1, blanks: 1, job_failures: 1, ..LATE };
    let must_reach = &[State::Accepted, State::Applied, State::Unknown, State::FailedPermanent];
    Setup { budget, must_reach, ..Setup::new("jobs", Service::Blind) }.with_jobs()
}

/// The provider makes one job of each key.
pub(super) fn jobs_dedup() -> Setup {
    let budget = Budget { job_failures: 1, ..LATE };
    let must_reach = &[State::Accepted, State::Applied, State::Unknown, State::FailedPermanent];
    Setup { budget, must_reach, ..Setup::new("jobs, dedup", Service::Natural) }.with_jobs()
}

/// A job's effect can be looked up, which says nothing while a job may run.
pub(super) fn jobs_lookup() -> Setup {
    let setup = Setup::new("jobs, look-up", Service::Blind);
    let must_reach = &[State::Accepted, State::Applied, State::Unknown];
    let setup = Setup { jumps: true, budget: LATE, must_reach, ..setup }.with_jobs();
    setup.with_lookup(true, AbsentRule::Resend)
}

/// A second request is answered *already done*.
pub(super) fn already() -> Setup {
    let budget = Budget { freezes: 1, ..CRASH };
    let must_reach = &[State::Applied, State::Unknown];
    let setup = Setup::new("already", Service::Natural);
    Setup { says_already: true, budget, must_reach, ..setup }
}

/// Somebody else has done it. One attempt: a re-send that is answered *already done* counts, by the
/// contract's word.
pub(super) fn done_by_another() -> Setup {
    let mut setup = Setup::new("done by another", Service::Natural);
    setup.rule.attempts = 1;
    let must_reach = &[State::Unknown];
    Setup { done_by_another: true, budget: CRASH, must_reach, ..setup }
}

/// The grant is revoked, before or after a send; the downstream knows our key.
pub(super) fn grants() -> Setup {
    let budget = Budget { revocations: 1, ..CRASH };
    let must_reach = &[State::Applied, State::Rejected, State::Unknown];
    Setup { asks_grant: true, budget, must_reach, ..Setup::new("grants", REMEMBERS) }
}

/// The same for a tool that is looked up, with its mark written by itself.
pub(super) fn grants_lookup() -> Setup {
    let setup = Setup::new("grants, look-up", Service::Blind);
    let must_reach = &[State::Applied, State::Rejected, State::Unknown];
    let budget = Budget { revocations: 1, ..LATE };
    Setup { asks_grant: true, budget, must_reach, ..setup }.with_lookup(true, AbsentRule::Resend)
}

/// A policy outside the database is asked before each send.
pub(super) fn policy() -> Setup {
    let mut setup = Setup::new("policy", REMEMBERS);
    setup.rule.asks_before_send = true;
    let budget = Budget { revocations: 1, ..LATE };
    let must_reach = &[State::Applied, State::Rejected, State::Unknown];
    Setup { asks_grant: true, budget, must_reach, ..setup }
}

/// A person is asked; the approval runs out, or is taken back.
pub(super) fn approvals() -> Setup {
    let budget = Budget { revocations: 1, ..CRASH };
    let must_reach = &[State::AwaitingApproval, State::Applied, State::Rejected, State::Unknown];
    let setup = Setup::new("approvals", REMEMBERS);
    Setup { asks_approval: true, budget, must_reach, ..setup }
}

/// The effect is proved, and its postcondition cannot be asked at once.
pub(super) fn unconfirmed() -> Setup {
    let budget = Budget { unconfirmed: 1, blanks: 1, ..Budget::NONE };
    let must_reach = &[State::Applied, State::Unknown];
    let setup = Setup { budget, must_reach, ..Setup::new("unconfirmed", REMEMBERS) };
    setup.with_lookup(true, AbsentRule::Resend)
}

/// Operators resolve and open again what nobody else can tell.
pub(super) fn operators() -> Setup {
    let budget = Budget { freezes: 1, verbs: 2, ..LATE };
    let must_reach = &[State::Applied, State::Unknown, State::FailedPermanent];
    Setup { budget, must_reach, ..Setup::new("operators", Service::Blind) }
}

/// Two operations with the same arguments under two keys.
pub(super) fn twins() -> Setup {
    let mut setup = Setup::new("twins", Service::Blind);
    setup.rule.twins = Some(ticks(100_000));
    setup.rule.attempts = 1;
    let must_reach = &[State::Held, State::Applied, State::Unknown, State::Rejected];
    let budget = Budget { refusals: 1, ..CRASH };
    Setup { operations: 2, jumps: true, budget, must_reach, ..setup }
}

/// The same, with an operator who ends the one, or lets the other go.
pub(super) fn twins_people() -> Setup {
    let budget = Budget { verbs: 1, ..Budget::NONE };
    let verbs = &[Verb::Release, Verb::Resolve(Told::NotApplied)];
    Setup { name: "twins, people", budget, verbs, workers: 1, ..twins() }
}

/// A worker is frozen right before its first byte for longer than the stall margin: the README says
/// what may come of it.
pub(super) fn frozen_too_long() -> Setup {
    let mut setup = lookup_frozen();
    setup.name = "frozen too long";
    setup.longest_freeze = ticks(40);
    setup
}
