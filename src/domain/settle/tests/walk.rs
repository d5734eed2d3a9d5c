//! Random lives of one operation: workers that claim, send, die, freeze and wake up, answers that get
//! lost, clocks that pass leases and windows, operators at any moment. The downstream counts effects.

use proptest::prelude::*;

use crate::domain::attempt::{Ambiguity, Learned, NotSent, Receipt};
use crate::domain::claim::{self, Claim, Claimant, Marking, Recomputed, Ticket};
use crate::domain::lifecycle::State;
use crate::domain::operation::{Operation, Timestamp, Token};
use crate::domain::reason::Reason;
use crate::domain::records::{
    HOUR, MINUTE, NOW, RESENDS, SECOND, alone, downstream_key, effect, material, operation, person,
    rule,
};
use crate::domain::rule::{AttemptRule, Resend};
use crate::domain::settle::{self, Settle};
use crate::domain::verbs::{self, Finding};

/// What the downstream does with a request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Done,
    DoneButLost,
    LostBefore,
    Refused,
    NotNow,
    Denied,
    Unreachable,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    /// A worker takes the record, if it can.
    Claim,
    /// Worker number n, as far as it got, sends and settles.
    Work(usize, Answer),
    /// Worker number n panics or drains before its first byte.
    Stop(usize, bool),
    Pass(u64),
    Retry,
    Reopen,
    /// A person looks into the downstream's books and writes down what is there.
    Resolve,
}

fn any_move() -> impl Strategy<Value = Move> {
    use Answer as A;
    let answer = proptest::sample::select(vec![
        A::Done,
        A::DoneButLost,
        A::DoneButLost,
        A::LostBefore,
        A::Refused,
        A::NotNow,
        A::Denied,
        A::Unreachable,
    ]);
    let seconds = proptest::sample::select(vec![1, 5, 31, 31, 60, 600, 3600, 86_400]);
    prop_oneof![
        6 => Just(Move::Claim),
        5 => (0..4usize, answer).prop_map(|(worker, answer)| Move::Work(worker, answer)),
        1 => (0..4usize, any::<bool>()).prop_map(|(worker, panics)| Move::Stop(worker, panics)),
        4 => seconds.prop_map(Move::Pass),
        1 => Just(Move::Retry),
        1 => Just(Move::Reopen),
        1 => Just(Move::Resolve),
    ]
}

/// A claim that some worker believes in.
struct Owner {
    ticket: Ticket,
    lease_until: Timestamp,
    send_until: Option<Timestamp>,
}

struct World {
    row: Operation,
    now: Timestamp,
    rule: AttemptRule,
    owners: Vec<Owner>,
    /// The downstream's books: effects, and until when it knows the key of the last one.
    effects: u32,
    known_until: Option<Timestamp>,
}

impl World {
    fn new(resend: Resend) -> Self {
        let row = Operation {
            fingerprint: None,
            downstream_key: None,
            results: true,
            ..operation(State::Queued)
        };
        let rule = AttemptRule { attempts: 6, ..rule(resend) };
        Self { row, now: NOW, rule, owners: Vec::new(), effects: 0, known_until: None }
    }

    /// Put back after its record was lost: what it did before is in the downstream's books only.
    fn put_back(resend: Resend) -> Self {
        let mut world = Self::new(resend);
        world.row.token = Token(0);
        world.row.first_sent_at = Some(NOW);
        world.row.reason = Some(Reason::MayHaveBeenSent);
        // A transactional effect was lost with its record.
        world.effects = u32::from(resend != Resend::InTransaction);
        world
    }

    fn write(&mut self, step: super::Step) {
        assert_eq!(step.read_token, self.row.token);
        assert!(step.trace.iter().all(|row| row.event != "refused"), "{:?}", step.trace);
        let applied = self.row.state == State::Applied;
        assert!(!applied || step.record.state == State::Applied, "applied was undone");
        assert!(step.record.token >= self.row.token);
        let key = |row: &Operation| row.downstream_key.as_ref().map(|key| key.key.clone());
        assert!(key(&self.row).is_none() || key(&self.row) == key(&step.record));
        let ends = step.record.state != self.row.state && step.record.state.is_ending();
        assert_eq!(step.announces, ends, "{:?} -> {:?}", self.row.state, step.record.state);
        self.row = Operation { updated_at: self.now, ..step.record };
    }

    fn claim(&mut self) {
        let key = || downstream_key(&format!("key-{}", self.now.0));
        let claimant = Claimant { owner: "w", alone: true, downstream_key: &key };
        let material = material();
        let recomputed = Recomputed::Valid(&material);
        let now = self.now;
        match claim::decide(&self.row, recomputed, &alone(), now, &self.rule, &claimant) {
            Claim::Run(run) => {
                let lease_until = run.step.record.lease.as_ref().unwrap().until;
                let send_until = run.send_within.map(|within| now.after(within));
                self.owners.push(Owner { ticket: run.ticket, lease_until, send_until });
                self.write(run.step);
            }
            Claim::Write(step) => self.write(*step),
            Claim::Leave(_) => {}
            Claim::Alone => panic!("nothing else runs"),
        }
    }

    /// The last steps before the first byte: the mark, the worker's own clock, the window.
    fn may_send(&mut self, owner: &mut Owner) -> bool {
        if !owner.ticket.marked {
            let permission = alone().permission;
            let Marking::Write(step) =
                claim::mark_sent(&self.row, &owner.ticket, permission, self.now)
            else {
                return false;
            };
            owner.ticket.marked = true;
            self.write(*step);
        }
        self.now < owner.lease_until.before(self.rule.margin)
            && owner.send_until.is_none_or(|until| self.now <= until)
    }

    /// The downstream acts on a request.
    fn effect(&mut self) {
        let known = self.known_until.is_some_and(|until| self.now < until);
        match self.rule.resend {
            Resend::Within(window) if !known => {
                self.effects += 1;
                self.known_until = Some(self.now.after(window));
            }
            // It overwrites what is there with the same again.
            Resend::Always => self.effects = 1,
            Resend::Within(_) => {}
            Resend::Never | Resend::InTransaction => self.effects += 1,
        }
    }

    fn work(&mut self, worker: usize, answer: Answer) {
        if self.owners.is_empty() {
            return;
        }
        let mut owner = self.owners.remove(worker % self.owners.len());
        if self.rule.resend == Resend::InTransaction {
            return self.work_in_transaction(&owner.ticket, answer);
        }
        let learned = if self.may_send(&mut owner) {
            match answer {
                Answer::Done => {
                    self.effect();
                    Learned::Applied(effect("T-1"))
                }
                Answer::DoneButLost => {
                    self.effect();
                    Learned::Ambiguous(Ambiguity::TimedOut)
                }
                Answer::LostBefore => Learned::Ambiguous(Ambiguity::Broken),
                // Its first answer stands: a downstream that did it does not refuse it, but one
                // that has forgotten the key may.
                Answer::Refused => Learned::Refused,
                Answer::NotNow => Learned::NotNow { retry_after: Some(MINUTE) },
                Answer::Denied => Learned::Denied,
                Answer::Unreachable => Learned::NotSent(NotSent::Unreachable),
            }
        } else {
            Learned::NotSent(NotSent::LeaseTooShort)
        };
        self.settle(&owner.ticket, &learned);
    }

    fn work_in_transaction(&mut self, ticket: &Ticket, answer: Answer) {
        match answer {
            Answer::Done | Answer::DoneButLost => {
                if let Some(step) = settle::commit(&self.row, ticket, &effect("T-1"), self.now) {
                    self.effects += 1;
                    self.write(step);
                }
                if matches!(answer, Answer::DoneButLost) {
                    // The commit was not answered: the worker settles as it knows.
                    self.settle(ticket, &Learned::Ambiguous(Ambiguity::Broken));
                }
            }
            Answer::Refused => self.settle(ticket, &Learned::Refused),
            Answer::LostBefore => self.settle(ticket, &Learned::Ambiguous(Ambiguity::TimedOut)),
            // A tool that says "done" though its transaction was rolled back.
            Answer::NotNow => self.settle(ticket, &Learned::Applied(effect("T-0"))),
            Answer::Denied | Answer::Unreachable => {
                self.settle(ticket, &Learned::NotNow { retry_after: None });
            }
        }
    }

    fn settle(&mut self, ticket: &Ticket, learned: &Learned) {
        match settle::decide(&self.row, ticket, learned, self.now, &self.rule, 0.5) {
            Settle::Write(step) => self.write(*step),
            Settle::Acknowledged | Settle::LostLease => {}
        }
    }

    fn resolve(&mut self) {
        let finding = if self.effects > 0 {
            Finding::Applied(Receipt::new("T-1").unwrap())
        } else {
            Finding::NotApplied
        };
        if let Ok(step) =
            verbs::resolve(&self.row, &finding, self.rule.stall_margin, self.now, &person())
        {
            self.write(step);
        }
    }

    fn step(&mut self, next: Move) {
        match next {
            Move::Claim => self.claim(),
            Move::Work(worker, answer) => self.work(worker, answer),
            Move::Stop(worker, panics) => {
                if self.owners.is_empty() {
                    return;
                }
                let owner = self.owners.remove(worker % self.owners.len());
                let learned = match panics {
                    true => Learned::Panicked,
                    false => Learned::NotSent(NotSent::Draining),
                };
                self.settle(&owner.ticket, &learned);
            }
            Move::Pass(seconds) => {
                self.now = self.now.after(u32::try_from(seconds).unwrap() * SECOND)
            }
            Move::Retry => {
                if let Ok(step) = verbs::retry(&self.row, false, self.now, &person()) {
                    self.write(step);
                }
            }
            Move::Reopen => {
                if let Ok(step) = verbs::reopen(&self.row, self.now, &person()) {
                    self.write(step);
                }
            }
            Move::Resolve => self.resolve(),
        }
    }

    /// One effect at most, and the label tells the truth.
    fn check(&self) {
        let row = &self.row;
        assert!(self.effects <= 1, "{} effects, {row:?}", self.effects);
        match row.state {
            State::Applied => assert_eq!(self.effects, 1, "applied without an effect: {row:?}"),
            State::Rejected | State::FailedPermanent => {
                assert_eq!(self.effects, 0, "an effect was called none: {row:?}");
            }
            _ => {}
        }
        if self.effects == 1 && row.state.is_pending() && self.rule.resend != Resend::InTransaction
        {
            assert!(row.may_have_been_sent(), "the mark was lost: {row:?}");
        }
        if row.state.is_pending() && row.lease.is_none() {
            let waits = matches!(row.state, State::Queued | State::RetryScheduled | State::Parked);
            assert!(waits, "nobody will ever work on {row:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn one_effect_or_an_honest_unknown(
        resend in proptest::sample::select(RESENDS.to_vec()),
        put_back in proptest::bool::weighted(0.2),
        moves in proptest::collection::vec(any_move(), 1..60),
    ) {
        let mut world = if put_back { World::put_back(resend) } else { World::new(resend) };
        for next in moves {
            world.step(next);
            world.check();
        }
        // Whatever happened, time and workers end it, or a person is asked.
        for _ in 0..40 {
            world.now = world.now.after(HOUR);
            world.claim();
            world.work(0, Answer::Done);
            world.check();
        }
        let row = &world.row;
        prop_assert!(!row.state.is_pending() || row.state == State::Parked, "{row:?}");
    }
}
