//! The table: every step of the path, how it is held, for whom, and how each operation may end.

use super::families::{Before, Case, Family};
use super::faults::{Fault, Ill};
use super::hold::{Change, Exchange};
use crate::support::contracts::ContractText;

/// One step.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) held: Exchange,
    pub(super) victim: Victim,
    pub(super) contract: fn(Family, &str) -> ContractText,
    pub(super) cases: Vec<Case>,
    /// The operations are unknown before the step begins.
    pub(super) of_unknowns: bool,
}

/// Whose exchange it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// A worker for each downstream: one connection writes one transaction at a time.
    Workers,
    /// One worker for all.
    Worker,
    Relay,
    Maintain,
    /// A person's `ops resolve`, one for each operation.
    Person(Finding),
}

/// What the person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Applied,
    NotApplied,
}

const OPERATIONS: &str = "update on oncebox.operations";

fn record(when: &'static str) -> Exchange {
    Exchange::Commit(Change { event: OPERATIONS, when })
}

fn fresh() -> Vec<Case> {
    Family::ALL.map(Case::fresh).to_vec()
}

fn after(families: &[Family], befores: &[Before]) -> Vec<Case> {
    let of = |family: &Family| {
        befores
            .iter()
            .map(|before| Case { before: *before, ..Case::fresh(*family) })
            .collect::<Vec<_>>()
    };
    families.iter().flat_map(of).collect()
}

/// The step of this name.
pub(super) fn find(name: &str) -> Step {
    all().into_iter().find(|step| step.name == name).expect("a step of this name")
}

/// Every step, in the order of an operation's way.
pub(super) fn all() -> Vec<Step> {
    use Before::{Made, NotMade};
    use Family::{Blind, Deduplicating, LookedUp};
    let step = |name, held, victim, contract, cases| Step {
        name,
        held,
        victim,
        contract,
        cases,
        of_unknowns: false,
    };
    let of_unknowns = |name, held, victim, contract, cases| Step {
        of_unknowns: true,
        ..step(name, held, victim, contract, cases)
    };
    let claimed = "new.claim_epoch > old.claim_epoch and new.lease_until is not null";
    let marked = "new.phase = 'sent' and old.phase = 'claimed'";
    let applied = "new.status = 'applied' and old.status <> 'applied'";
    let removed = Change { event: "delete on oncebox.outbox", when: "old.event_routing is null" };
    let usual: fn(Family, &str) -> ContractText = Family::usual;
    let looks: fn(Family, &str) -> ContractText = |family, url| match family {
        // The downstream that deduplicates is sent to again as long as attempts are left.
        Deduplicating => family.once(url).also_looked_up(),
        LookedUp | Blind => family.usual(url),
    };
    let looks_once: fn(Family, &str) -> ContractText = |family, url| match family {
        Deduplicating => family.once(url).also_looked_up(),
        LookedUp | Blind => family.once(url),
    };
    let askable = after(&[Deduplicating, LookedUp], &[Made, NotMade]);
    vec![
        step("publish", Exchange::Publish, Victim::Relay, usual, fresh()),
        step("confirm", Exchange::Confirm, Victim::Relay, usual, fresh()),
        step("remove", Exchange::Commit(removed), Victim::Relay, usual, fresh()),
        step("claim", record(claimed), Victim::Workers, usual, fresh()),
        step("authorize", Exchange::Call("policy"), Victim::Worker, Family::asking, fresh()),
        step("sent", record(marked), Victim::Workers, Family::asking, fresh()),
        step("effect", Exchange::Call("tickets"), Victim::Worker, usual, fresh()),
        step("settle", record(applied), Victim::Workers, usual, fresh()),
        step("ack", Exchange::Ack, Victim::Worker, usual, fresh()),
        step(
            "accept",
            record("new.phase = 'accepted' and old.phase <> 'accepted'"),
            Victim::Workers,
            Family::jobs,
            fresh(),
        ),
        step("poll", Exchange::Call("poll"), Victim::Worker, Family::jobs, fresh()),
        step("look_up", Exchange::Call("lookup"), Victim::Worker, looks, askable.clone()),
        of_unknowns(
            "look_up_of_an_unknown",
            Exchange::Call("lookup"),
            Victim::Maintain,
            looks_once,
            askable,
        ),
        of_unknowns(
            "resolve_applied",
            record(applied),
            Victim::Person(Finding::Applied),
            Family::once,
            after(&Family::ALL, &[Made]),
        ),
        of_unknowns(
            "resolve_not_applied",
            record("new.status = 'failed_permanent'"),
            Victim::Person(Finding::NotApplied),
            Family::once,
            after(&Family::ALL, &[NotMade]),
        ),
    ]
}

impl Step {
    /// The statuses in which an operation may end, by what can be known at all.
    pub(super) fn endings(&self, fault: Fault, case: Case) -> &'static [&'static str] {
        const APPLIED: &[&str] = &["applied"];
        const UNKNOWN: &[&str] = &["unknown"];
        const FAILED: &[&str] = &["failed_permanent"];
        /// The frozen worker may wake up to a receipt that others could not have.
        const EITHER: &[&str] = &["applied", "unknown"];
        if case.before == Before::NotMade {
            // Proved to be absent: sent again, unless that was the last attempt or a person was told.
            let again = self.name == "look_up" && case.family == Family::LookedUp;
            return if again { APPLIED } else { FAILED };
        }
        if case.family != Family::Blind || case.before == Before::Made {
            return APPLIED;
        }
        // Unknown exactly when its request may have left and no answer came back to anyone.
        match (self.name, fault.ill, fault.done) {
            // The mark stands, and its owner is gone.
            ("sent", Ill::Killed | Ill::Paused, true) => UNKNOWN,
            ("effect", Ill::Paused, true) => EITHER,
            ("effect", _, _) => UNKNOWN,
            // What the answer said died with its only reader.
            ("settle" | "accept", Ill::Killed, false) => UNKNOWN,
            _ => APPLIED,
        }
    }
}
