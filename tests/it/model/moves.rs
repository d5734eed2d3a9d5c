//! Which moves there are in a state, and where each leads.

use std::time::Duration;

use stateright::{Model, Property};

use oncebox::domain::claim::Purpose;
use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::Timestamp;

use super::properties;
use super::shell::Shell;
use super::world::{Act, JobFate, Move, Reply, Rule, Sight, Stage, TICK, Verb, World};

/// Longer than all but a twin's wait.
const SOON: Duration = Duration::from_secs(600);

const SIGHTS: [Sight; 3] = [Sight::Truth, Sight::NotSeen, Sight::Blank];

impl Model for Shell {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![self.setup.begin()]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        // What comes after a broken rule is of no interest, but for what a second send may do.
        if world.broken.is_some_and(|rule| rule != Rule::BlindSecondSend) {
            return;
        }
        moves.push(Move::Wait);
        for at in 0..world.attempts.len() {
            self.moves_of(world, at, moves);
        }
        moves.extend((0..world.wire.len()).map(Move::ServeLate));
        for row in 0..world.rows.len() {
            moves.push(Move::Deliver(row));
            if world.rows[row].jobs.iter().any(|job| job.runs_at(world.now)) {
                moves.extend([true, false].map(|done| Move::EndJob { row, done }));
            }
            if world.rows[row].record.next_lookup_at.is_some() {
                moves.extend(SIGHTS.map(|sight| Move::Inquire(row, sight)));
            }
            if world.left.verbs > 0 {
                moves.extend(self.setup.verbs.iter().map(|verb| Move::Operate(row, *verb)));
            }
            if world.rows[row].state() == State::AwaitingApproval {
                moves.extend([Verb::Approve, Verb::Deny].map(|verb| Move::Operate(row, verb)));
            }
        }
        if world.inquiry.is_some() {
            moves.push(Move::Conclude);
        }
        if world.left.revocations > 0 {
            moves.push(Move::Revoke);
        }
    }

    fn next_state(&self, world: &World, step: Move) -> Option<World> {
        self.after(world, &step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Shell {
    fn moves_of(&self, world: &World, at: usize, moves: &mut Vec<Move>) {
        let attempt = &world.attempts[at];
        match &attempt.stage {
            Stage::Begun if attempt.purpose != Purpose::Send => {
                moves.extend(SIGHTS.map(|sight| Move::Look(at, sight)));
            }
            Stage::Begun if self.setup.has_to_mark(attempt.purpose, attempt.ticket.marked) => {
                // A policy that says no is asked before the mark.
                if self.setup.rule.asks_before_send && !world.granted {
                    moves.push(Move::Forbid(at));
                } else {
                    moves.extend([true, false].map(|heard| Move::Mark { attempt: at, heard }));
                }
            }
            Stage::Begun => {
                moves.extend([Move::Send(at), Move::NotSent(at), Move::Freeze(at)]);
            }
            Stage::Frozen { .. } => moves.push(Move::Thaw(at)),
            Stage::Waiting(_) => {
                for reply in [Reply::Heard, Reply::Unconfirmed, Reply::Unreadable, Reply::Lost] {
                    let acts = [Act::Make, Act::Refuse, Act::NotNow];
                    moves.extend(acts.map(|act| Move::Serve(at, act, reply)));
                }
                moves.push(Move::GiveUp(at));
            }
            Stage::Learned(_) => {
                moves.extend([true, false].map(|heard| Move::Settle { attempt: at, heard }));
            }
        }
        moves.push(Move::Crash(at));
    }

    /// The state after `step`; `None` when it cannot be made, or changes nothing.
    pub(super) fn after(&self, world: &World, step: &Move) -> Option<World> {
        let mut next = world.clone();
        let world = &mut next;
        match *step {
            Move::Wait => self.wait(world)?,
            Move::Deliver(row) => self.deliver(world, row)?,
            Move::Mark { attempt, heard } => self.mark(world, attempt, heard)?,
            Move::Forbid(at) => self.forbid(world, at),
            Move::NotSent(at) => self.not_sent(world, at)?,
            Move::Send(at) => self.send(world, at)?,
            Move::Freeze(at) => self.freeze(world, at)?,
            Move::Thaw(at) => self.thaw(world, at)?,
            Move::Serve(at, act, reply) => self.serve(world, at, act, reply)?,
            Move::ServeLate(at) => self.serve_late(world, at),
            Move::GiveUp(at) => self.give_up(world, at),
            Move::Look(at, sight) => self.look(world, at, sight)?,
            Move::Settle { attempt, heard } => self.settle(world, attempt, heard)?,
            Move::Crash(at) => self.crash(world, at)?,
            Move::EndJob { row, done } => self.end_job(world, row, done)?,
            Move::Inquire(row, sight) => self.inquire(world, row, sight)?,
            Move::Conclude => self.conclude(world)?,
            Move::Revoke => self.revoke(world)?,
            Move::Operate(row, verb) => self.operate(world, row, verb)?,
        }
        self.forget(world);
        Some(next)
    }

    /// A tick, while something can be different by it soon; else to the moment when it can.
    pub(super) fn wait(&self, world: &mut World) -> Option<()> {
        let now = world.now;
        let next = self.moments(world).into_iter().filter(|at| *at > now).min()?;
        let far = self.setup.jumps || next.since(now) >= SOON;
        world.now = if far { next } else { now.after(TICK) };
        let now = world.now;
        world.wire.retain(|request| now < request.until);
        Some(())
    }

    /// Every moment that some decision, or the world, compares the clock with.
    fn moments(&self, world: &World) -> Vec<Timestamp> {
        let rule = &self.setup.rule;
        let visible_after = self.setup.visible_after();
        let mut moments: Vec<Timestamp> = world.wire.iter().map(|request| request.until).collect();
        for attempt in &world.attempts {
            moments.extend(match &attempt.stage {
                Stage::Begun => {
                    let lease = attempt.lease_ends.before(rule.margin);
                    [lease, attempt.send_before.unwrap_or(lease)]
                }
                Stage::Frozen { awake_by } => [*awake_by; 2],
                Stage::Waiting(request) => [request.until; 2],
                Stage::Learned(_) => continue,
            });
        }
        for row in world.rows.iter().filter(|row| !row.state().is_finished()) {
            let record = &row.record;
            let asked = record.state.is_pending() || record.next_lookup_at.is_some();
            if !asked && world.left.verbs == 0 {
                continue;
            }
            if record.state.is_pending() {
                moments.push(record.due_at);
                moments.extend(rule.window_end(record));
            }
            moments.extend(record.lease.as_ref().map(|lease| lease.until));
            moments.extend(record.next_lookup_at);
            moments.extend(row.jobs.iter().filter_map(|job| match job {
                JobFate::Runs { until } => Some(*until),
                JobFate::Done | JobFate::Failed => None,
            }));
            if record.may_have_been_sent() {
                let lasts = rule.timeout + rule.stall_margin;
                let assumed = record.lease.as_ref().map_or(record.updated_at, |lease| lease.until);
                let over = record.attempts_over_at.unwrap_or(assumed.after(lasts));
                let work = rule.poll.map(|poll| poll.give_up + rule.margin).unwrap_or_default();
                moments.extend([over, over.after(work).after(visible_after).after(rule.margin)]);
                moments.extend(row.effects.iter().map(|made| made.at.after(visible_after)));
            }
        }
        moments
    }
}
