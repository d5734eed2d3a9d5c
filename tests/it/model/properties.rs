//! What must hold in every state, whatever happened.

use stateright::Property;

use oncebox::domain::claim::{Purpose, Twins};
use oncebox::domain::lifecycle::State;
use oncebox::domain::reason::Reason;

use super::same::hash_of;
use super::shell::Shell;
use super::world::{Act, Budget, JobFate, Move, Reply, Row, Rule, Sight, Stage, World};

pub(super) const ONE_EFFECT: &str = "one effect an operation";
pub(super) const ONE_JOB: &str = "one job that runs or made its effect";
pub(super) const ONE_OF_TWINS: &str = "one effect of twins, unless a person let the other go";
pub(super) const NO_BLIND_SEND: &str = "no second send without proof";
pub(super) const APPLIED_TRUE: &str = "applied has its effect";
pub(super) const REJECTED_TRUE: &str = "rejected has no effect and none to come";
pub(super) const FAILED_TRUE: &str = "failed_permanent has no effect and none to come";
pub(super) const APPLIED_STAYS: &str = "applied never changes";
pub(super) const STALE_WRITES_PROOF: &str = "an old token writes nothing but evidence";
pub(super) const RECEIPT_KEPT: &str = "a receipt is never thrown away";
pub(super) const PEOPLE_FIRST: &str = "what people were told of is not sent by itself";
pub(super) const ALLOWED: &str = "nothing is sent without permission";
pub(super) const COMES_TO_AN_END: &str = "each operation can still come to an end or to a person";

/// The properties, by name.
pub(super) fn all() -> Vec<Property<Shell>> {
    vec![
        Property::always(ONE_EFFECT, |_, world: &World| {
            world.rows.iter().all(|row| row.effects.len() <= 1)
        }),
        Property::always(ONE_JOB, |_, world: &World| {
            let counts = |job: &&JobFate| **job == JobFate::Done || job.runs_at(world.now);
            world.rows.iter().all(|row| row.jobs.iter().filter(counts).count() <= 1)
        }),
        Property::always(ONE_OF_TWINS, |_, world: &World| {
            let standing: usize = world.rows.iter().map(|row| row.standing().count()).sum();
            standing <= 1 || world.rows.iter().any(|row| row.released)
        }),
        Property::always(NO_BLIND_SEND, |_, world: &World| {
            world.broken != Some(Rule::BlindSecondSend)
        }),
        Property::always(APPLIED_TRUE, |_, world: &World| {
            world.rows.iter().filter(|row| row.state() == State::Applied).all(is_truly_applied)
        }),
        Property::always(REJECTED_TRUE, |_, world: &World| none_to_come(world, State::Rejected)),
        Property::always(FAILED_TRUE, |_, world: &World| {
            none_to_come(world, State::FailedPermanent)
        }),
        Property::always(APPLIED_STAYS, |_, world: &World| {
            world.broken != Some(Rule::AppliedChanged)
        }),
        Property::always(STALE_WRITES_PROOF, |_, world: &World| {
            world.broken != Some(Rule::StaleWrite)
        }),
        Property::always(RECEIPT_KEPT, |_, world: &World| {
            world.broken != Some(Rule::ReceiptDropped)
        }),
        Property::always(PEOPLE_FIRST, |_, world: &World| {
            world.broken != Some(Rule::SentBehindPeople)
        }),
        Property::always(ALLOWED, |_, world: &World| world.broken != Some(Rule::SentForbidden)),
        Property::always(COMES_TO_AN_END, |shell, world| shell.comes_to_an_end(world)),
    ]
}

fn is_truly_applied(row: &Row) -> bool {
    let reference = row.record.effect_reference.as_deref();
    row.effects.iter().any(|made| Some(made.receipt.as_str()) == reference)
}

/// Whether the label "no effect" is true, and stays so, for each record in `state`. An effect that a
/// person undid is told of as such.
fn none_to_come(world: &World, state: State) -> bool {
    let labelled = |(_, row): &(usize, &Row)| row.state() == state;
    world.rows.iter().enumerate().filter(labelled).all(|(number, row)| {
        let undone = row.record.reason == Some(Reason::Compensated);
        let none = if undone { row.standing().next().is_none() } else { row.effects.is_empty() };
        none && !world.may_still_act(number)
    })
}

/// More steps than any record needs from anywhere to its end.
const MOST_STEPS: usize = 200;

impl Shell {
    /// Whether each operation can still come to an end, or to a person, in the hardest case: everybody
    /// who works on one has just died, and no message is left but what the sweep publishes. From then
    /// on nothing goes wrong.
    pub(super) fn comes_to_an_end(&self, world: &World) -> bool {
        let mut world = world.clone();
        if world.broken.is_some() {
            return true;
        }
        world.attempts.clear();
        world.wire.clear();
        world.inquiry = None;
        // Nothing goes wrong from here on, so that nothing of what may still go wrong matters.
        world.left = Budget { overruns: u8::MAX, ..Budget::NONE };
        let mut passed = Vec::new();
        for _ in 0..MOST_STEPS {
            let hash = hash_of(&world);
            let known = self.ends.lock().unwrap().contains(&hash);
            if known || world.rows.iter().all(Row::is_at_rest) {
                passed.push(hash);
                self.ends.lock().unwrap().extend(passed);
                return true;
            }
            passed.push(hash);
            let Some(next) = self.kindly(&world) else { return false };
            world = next;
        }
        false
    }

    /// The next step when everybody does what is right.
    fn kindly(&self, world: &World) -> Option<World> {
        let steps: Vec<Move> = if world.attempts.is_empty() {
            let jobs = (0..world.rows.len()).map(|row| Move::EndJob { row, done: true });
            let due = (0..world.rows.len()).filter(|row| self.is_published(world, *row));
            due.map(Move::Deliver).chain(jobs).chain([Move::Wait]).collect()
        } else {
            let marked = Move::Mark { attempt: 0, heard: true };
            match &world.attempts[0].stage {
                Stage::Begun if self.has_to_ask(world) => vec![Move::Look(0, Sight::Truth)],
                Stage::Begun if self.has_to_be_marked(world) && world.granted => vec![marked],
                Stage::Begun if self.has_to_be_marked(world) => {
                    let asked = self.setup.rule.asks_before_send;
                    vec![if asked { Move::Forbid(0) } else { marked }]
                }
                Stage::Begun | Stage::Frozen { .. } => vec![Move::Send(0)],
                Stage::Waiting(_) => vec![Move::Serve(0, Act::Make, Reply::Heard)],
                Stage::Learned(_) => vec![Move::Settle { attempt: 0, heard: true }],
            }
        };
        steps.iter().find_map(|step| self.after(world, step))
    }

    fn has_to_ask(&self, world: &World) -> bool {
        world.attempts[0].purpose != Purpose::Send
    }

    fn has_to_be_marked(&self, world: &World) -> bool {
        let attempt = &world.attempts[0];
        self.setup.has_to_mark(attempt.purpose, attempt.ticket.marked)
    }

    /// Whether the sweep publishes this record now: `store::sweep`.
    fn is_published(&self, world: &World, number: usize) -> bool {
        let record = &world.rows[number].record;
        let due = record.due_at <= world.now;
        let may_go = || !matches!(self.twins(world, number), Some(Twins::Behind(_)));
        match record.state {
            State::Queued | State::RetryScheduled => due && record.lease.is_none(),
            State::Claimed | State::Sent => {
                record.lease.as_ref().is_some_and(|lease| lease.until <= world.now)
            }
            State::AwaitingApproval | State::Accepted => due,
            State::Held => due || may_go(),
            State::Parked
            | State::Applied
            | State::Rejected
            | State::FailedPermanent
            | State::Unknown
            | State::Expired => false,
        }
    }
}
