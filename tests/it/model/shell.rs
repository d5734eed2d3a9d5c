//! What workers, role maintain and operators do round a decision: lock, decide, write under the token.
//!
//! Each function here is one transaction, or one step between two, of `consumer`, `reconcile` or
//! `operator`. A transaction holds the row's lock from its read to its commit, so that it is one step
//! of the model.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};

use oncebox::domain::attempt::{Ambiguity, Denial, Learned, NotSent};
use oncebox::domain::claim::{Around, Claim, Claimant, Marking, Predecessor, Purpose, Twins};
use oncebox::domain::evidence::Evidence;
use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::{DownstreamKey, Operation, Timestamp};
use oncebox::domain::permission::{ApprovalState, Permission, permission};
use oncebox::domain::reason::Reason;
use oncebox::domain::settle::Settle;
use oncebox::domain::step::Step;

use super::protocol::{Fault, Protocol};
use super::setup::{Service, Setup, id};
use super::world::{Attempt, Report, Request, Rule, Sight, Stage, World, ticks};

/// A run of the model: the shell round the decisions, and what the checker remembers besides states.
pub(super) struct Shell {
    pub(super) setup: Setup,
    pub(super) protocol: Protocol,
    /// Hashes of states that are known to come to an end.
    pub(super) ends: Mutex<HashSet<u64>>,
    /// States that some record has come to.
    pub(super) reached: Mutex<BTreeSet<State>>,
}

impl Shell {
    pub(super) fn new(setup: Setup, fault: Option<Fault>) -> Self {
        let protocol = Protocol { rule: setup.rule, fault };
        let (ends, reached) = (Mutex::default(), Mutex::default());
        Self { setup, protocol, ends, reached }
    }

    /// Writes `step`, fenced by the token that its record had when it was read.
    pub(super) fn write(&self, world: &mut World, number: usize, step: &Step) {
        let now = world.now;
        let row = &mut world.rows[number];
        let before = Arc::clone(&row.record);
        if before.token != step.read_token {
            return;
        }
        let mut record = step.record.clone();
        record.updated_at = now;
        let waits = matches!(record.state, State::Unknown | State::Parked);
        record.unresolved_since = waits.then(|| before.unresolved_since.unwrap_or(now));
        row.told |= record.state == State::Unknown && before.state != State::Unknown;
        let other = record.effect_reference != before.effect_reference;
        if before.state == State::Applied && (record.state != State::Applied || other) {
            world.broken = Some(Rule::AppliedChanged);
        }
        if step.asks_approval {
            world.approval = Some(ApprovalState::Requested);
        }
        self.reached.lock().unwrap().insert(record.state);
        row.record = Arc::new(record);
    }

    /// A delivery: `consumer::claim`.
    pub(super) fn deliver(&self, world: &mut World, number: usize) -> Option<()> {
        if world.attempts.len() >= self.setup.workers {
            return None;
        }
        let record = Arc::clone(&world.rows[number].record);
        if record.lease.is_some() {
            world.left.overruns = world.left.overruns.checked_sub(1)?;
        }
        let twins = self.twins(world, number);
        let around = Around {
            predecessor: Predecessor::Finished,
            twins: twins.unwrap_or(Twins::Free),
            permission: self.permission(world),
            approval_wait: ticks(4),
        };
        // The deployment's secret may be another one at each claim.
        let key = format!("k{number}-{}", record.token.0);
        let downstream_key = || DownstreamKey { key: key.clone(), secret_id: "s".to_owned() };
        let claimant = Claimant { owner: "w", alone: true, downstream_key: &downstream_key };
        let run = match self.protocol.claim(&record, &around, world.now, &claimant) {
            Claim::Leave(_) | Claim::Alone => return None,
            Claim::Write(step) => {
                self.write(world, number, &step);
                return Some(());
            }
            Claim::Run(run) => run,
        };
        let sends = run.purpose == Purpose::Send;
        if sends && world.rows[number].told {
            world.broken = Some(Rule::SentBehindPeople);
        }
        if sends && self.setup.rule.marks_in_claim() && around.permission != Permission::Allowed {
            world.broken = Some(Rule::SentForbidden);
        }
        self.write(world, number, &run.step);
        let claimed = &run.step.record;
        world.attempts.push(Attempt {
            row: number,
            ticket: run.ticket,
            purpose: run.purpose,
            key: claimed.downstream_key.as_ref().map(|key| key.key.clone()).unwrap_or_default(),
            lease_ends: claimed.lease.as_ref().map_or(world.now, |lease| lease.until),
            send_before: run.send_within.map(|within| world.now.after(within)),
            stage: Stage::Begun,
        });
        Some(())
    }

    /// What grants and approvals say: `consumer::around::Permits`.
    fn permission(&self, world: &World) -> Permission {
        // A policy outside the database is asked by the worker, not by its claim.
        let asks_grant = self.setup.asks_grant && !self.setup.rule.asks_before_send;
        let approval = self.setup.asks_approval.then_some(world.approval);
        let margin = self.setup.rule.margin;
        permission(asks_grant.then_some(world.granted), approval, world.now, margin)
    }

    /// What the records say of its twins: `store::twins`. `None`: nobody asks. The digest's row is a
    /// lock, held to the commit; a transaction is one step here.
    pub(super) fn twins(&self, world: &World, number: usize) -> Option<Twins> {
        let within = self.setup.rule.twins?;
        let record = &world.rows[number].record;
        let released = |record: &Operation| record.twin.as_ref().is_some_and(|twin| twin.released);
        if released(record) || record.may_have_been_sent() || record.leased_at(world.now) {
            return None;
        }
        let others = || {
            let known = |(at, other): &(usize, &Operation)| *at != number && other.twin.is_some();
            world.rows.iter().map(|row| &*row.record).enumerate().filter(known)
        };
        let open = |other: &Operation| other.state.is_pending() || other.state == State::Unknown;
        let applied = others().find(|(_, other)| {
            let undone = other.reason == Some(Reason::Compensated);
            let came_about =
                other.state == State::Applied || (other.state == State::FailedPermanent && undone);
            let meanwhile = record.state == State::Held && other.updated_at > record.opened_at;
            let recent = other.updated_at > world.now.before(within) && !undone;
            came_about && (meanwhile || recent)
        });
        let goes = others().find(|(_, other)| open(other) && released(other));
        let waits = others().find(|(at, other)| {
            let older = (other.opened_at, *at) < (record.opened_at, number);
            let comes = !(other.state == State::Queued && world.now < other.due_at);
            open(other) && !released(other) && older && comes
        });
        Some(match (applied, goes.or(waits)) {
            (Some((at, _)), _) => Twins::Applied(id(at)),
            (None, Some((at, _))) => Twins::Behind(id(at)),
            (None, None) => Twins::Free,
        })
    }

    /// The sent mark: `consumer::mark`.
    pub(super) fn mark(&self, world: &mut World, at: usize, heard: bool) -> Option<()> {
        let Attempt { row, ticket, .. } = world.attempts[at].clone();
        let record = Arc::clone(&world.rows[row].record);
        let allowed = self.permission(world);
        let decided = self.protocol.mark(&record, &ticket, allowed, world.now);
        if !heard && !matches!(decided, Marking::Write(_)) {
            return None;
        }
        let learned = match decided {
            Marking::Lost => NotSent::ClaimLost,
            Marking::Forbidden(denial) => NotSent::Forbidden(denial),
            Marking::Write(step) => {
                if record.token != ticket.token {
                    world.broken = Some(Rule::StaleWrite);
                }
                if allowed != Permission::Allowed {
                    world.broken = Some(Rule::SentForbidden);
                }
                if self.protocol.mark_is_durable() {
                    self.write(world, row, &step);
                }
                if heard {
                    world.attempts[at].ticket.marked = true;
                    return Some(());
                }
                world.left.unheard = world.left.unheard.checked_sub(1)?;
                NotSent::ClaimLost
            }
        };
        world.attempts[at].stage = Stage::Learned(Report::Attempt(Learned::NotSent(learned)));
        Some(())
    }

    /// `consumer::effect`: whoever is asked outside the database says no.
    pub(super) fn forbid(&self, world: &mut World, at: usize) {
        let learned = Learned::NotSent(NotSent::Forbidden(Denial::NotAuthorized));
        world.attempts[at].stage = Stage::Learned(Report::Attempt(learned));
    }

    /// The gate's last check, and the first byte: `consumer::effect::Guard`.
    pub(super) fn send(&self, world: &mut World, at: usize) -> Option<()> {
        let Attempt { lease_ends, send_before, .. } = world.attempts[at];
        if self.protocol.gate_is_open(lease_ends, send_before, world.now) {
            self.leave(world, at, world.now.after(self.setup.may_take()));
        } else {
            world.left.overruns = world.left.overruns.checked_sub(1)?;
            let learned = Learned::NotSent(NotSent::LeaseTooShort);
            world.attempts[at].stage = Stage::Learned(Report::Attempt(learned));
        }
        Some(())
    }

    pub(super) fn freeze(&self, world: &mut World, at: usize) -> Option<()> {
        let Attempt { lease_ends, send_before, .. } = world.attempts[at];
        world.left.freezes = world.left.freezes.checked_sub(1)?;
        world.attempts[at].stage =
            Stage::Frozen { awake_by: lease_ends.after(self.setup.longest_freeze) };
        self.protocol.gate_is_open(lease_ends, send_before, world.now).then_some(())
    }

    pub(super) fn thaw(&self, world: &mut World, at: usize) -> Option<()> {
        let Attempt { row, stage: Stage::Frozen { awake_by }, .. } = world.attempts[at] else {
            return None;
        };
        let until = awake_by.after(self.setup.rule.timeout);
        let until = until.min(world.now.after(self.setup.may_take()));
        // A freeze across the window's end is a residue that the README names.
        let seen_at = world.rows[row].seen_at.filter(|_| self.setup.service != Service::Blind);
        let in_window = seen_at.is_none_or(|seen| self.setup.recognises(seen, until));
        (world.now < awake_by && in_window).then(|| self.leave(world, at, until))
    }

    fn leave(&self, world: &mut World, at: usize, until: Timestamp) {
        let Attempt { row: number, key, .. } = world.attempts[at].clone();
        let row = &mut world.rows[number];
        let known = row
            .seen_at
            .map_or(self.setup.recognises(until, until), |seen| self.setup.recognises(seen, until));
        if !row.unproved.is_empty() && !known {
            world.broken = Some(Rule::BlindSecondSend);
        }
        row.unproved.push(until);
        let request = Request { row: number, key, until };
        world.attempts[at].stage = Stage::Waiting(request);
    }

    /// The worker stops waiting, and the downstream may act all the same.
    pub(super) fn give_up(&self, world: &mut World, at: usize) {
        let Stage::Waiting(mut request) = world.attempts[at].stage.clone() else { return };
        let until = request.until.min(world.now.after(self.setup.rule.stall_margin));
        world.rows[request.row].over_at(request.until, until);
        request.until = until;
        if world.now < until {
            world.wire.push(request);
        }
        let learned = Learned::Ambiguous(Ambiguity::Broken);
        world.attempts[at].stage = Stage::Learned(Report::Attempt(learned));
    }

    /// No connection: nothing leaves, and the worker knows it.
    pub(super) fn not_sent(&self, world: &mut World, at: usize) -> Option<()> {
        world.left.deferrals = world.left.deferrals.checked_sub(1)?;
        let learned = Learned::NotSent(NotSent::Unreachable);
        world.attempts[at].stage = Stage::Learned(Report::Attempt(learned));
        Some(())
    }

    pub(super) fn crash(&self, world: &mut World, at: usize) -> Option<()> {
        world.left.crashes = world.left.crashes.checked_sub(1)?;
        if let Stage::Waiting(request) = world.attempts.remove(at).stage
            && world.now < request.until
        {
            world.wire.push(request);
        }
        Some(())
    }

    /// A question's answer: `consumer::effect::look_up`, or a poll.
    pub(super) fn look(&self, world: &mut World, at: usize, sight: Sight) -> Option<()> {
        let Attempt { row, purpose, lease_ends, .. } = world.attempts[at];
        let over = purpose == Purpose::LookUp && world.now >= lease_ends;
        let sight = if over { Sight::Blank } else { sight };
        if sight == Sight::Blank && !over {
            world.left.blanks = world.left.blanks.checked_sub(1)?;
        }
        let evidence = match purpose {
            Purpose::Poll => self.poll(world, row, sight)?,
            Purpose::LookUp | Purpose::Send => self.look_up(world, row, sight)?,
        };
        world.attempts[at].stage = Stage::Learned(Report::Answer(evidence));
        Some(())
    }

    /// The settle: `consumer::settle`.
    pub(super) fn settle(&self, world: &mut World, at: usize, heard: bool) -> Option<()> {
        let Attempt { row, ticket, purpose, stage, .. } = world.attempts[at].clone();
        let Stage::Learned(report) = stage else { return None };
        let record = Arc::clone(&world.rows[row].record);
        let settled = self.protocol.settle(&record, &ticket, purpose, &report, world.now);
        let proof = report.proof(ticket.is_resend());
        if let Settle::Write(step) = &settled {
            if record.token != ticket.token && !report.is_evidence(ticket.is_resend()) {
                world.broken = Some(Rule::StaleWrite);
            }
            self.write(world, row, step);
        }
        if proof && world.rows[row].record.effect_reference.is_none() {
            world.broken = Some(Rule::ReceiptDropped);
        }
        if heard {
            world.attempts.remove(at);
            return Some(());
        }
        world.left.unheard = world.left.unheard.checked_sub(1)?;
        matches!(settled, Settle::Write(_)).then_some(())
    }

    /// Forgets attempts that can do nothing any more: under an old token, not marked or past the gate,
    /// or with nothing to tell. Their tokens stay old, so that whenever they come back, the decision is
    /// the one that is asked for here. It keeps the model small.
    pub(super) fn forget(&self, world: &mut World) {
        let mut at = 0;
        while at < world.attempts.len() {
            if self.is_spent(world, &world.attempts[at]) {
                world.attempts.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn is_spent(&self, world: &World, attempt: &Attempt) -> bool {
        let Attempt { row, ticket, purpose, lease_ends, send_before, .. } = attempt;
        let record = &world.rows[*row].record;
        if record.token == ticket.token {
            return false;
        }
        let lost = |report: &Report| {
            let settled = self.protocol.settle(record, ticket, *purpose, report, world.now);
            matches!(settled, Settle::LostLease)
        };
        let unsent = |why| lost(&Report::Attempt(Learned::NotSent(why)));
        match &attempt.stage {
            Stage::Begun if *purpose != Purpose::Send => false,
            Stage::Begun if self.setup.has_to_mark(*purpose, ticket.marked) => {
                let marked = self.protocol.mark(record, ticket, Permission::Allowed, world.now);
                matches!(marked, Marking::Lost) && unsent(NotSent::ClaimLost)
            }
            Stage::Begun => {
                let open = self.protocol.gate_is_open(*lease_ends, *send_before, world.now);
                !open && unsent(NotSent::LeaseTooShort)
            }
            Stage::Frozen { awake_by } => *awake_by <= world.now,
            Stage::Waiting(_) => false,
            Stage::Learned(report) => !report.proof(ticket.is_resend()) && lost(report),
        }
    }
}

impl Report {
    /// Whether it proves the effect, from an attempt that was a re-send or not.
    fn proof(&self, resend: bool) -> bool {
        match self {
            Self::Attempt(Learned::Applied(_) | Learned::Unconfirmed(..))
            | Self::Answer(Evidence::Found(_) | Evidence::Unconfirmed(..)) => true,
            Self::Attempt(Learned::Already(_)) => resend,
            Self::Attempt(_) | Self::Answer(_) => false,
        }
    }

    /// Whether anybody may bring it: proof, or the word of a provider that owns a job.
    fn is_evidence(&self, resend: bool) -> bool {
        self.proof(resend) || matches!(self, Self::Attempt(Learned::Accepted(_)))
    }
}
