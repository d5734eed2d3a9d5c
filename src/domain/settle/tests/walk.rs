//! Random lives of one operation: workers that claim, send, ask, die, freeze and wake up, answers that
//! get lost, effects that come late and show later, jobs, denials, twins, clocks that pass leases and
//! windows, people at any moment. The downstream ([`books`]) counts effects.

mod books;

use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use self::books::Books;
use crate::domain::attempt::{Ambiguity, Denial, Job, Learned, NotSent, Receipt};
use crate::domain::claim::{
    self, Around, Claim, Claimant, Marking, Purpose, Recomputed, Ticket, Twins,
};
use crate::domain::contract::AbsentRule;
use crate::domain::evidence::Evidence;
use crate::domain::lifecycle::State;
use crate::domain::operation::{Operation, Timestamp, Token};
use crate::domain::permission::Permission;
use crate::domain::reason::Reason;
use crate::domain::records::{
    HOUR, MINUTE, NOW, RESENDS, SECOND, alone, downstream_key, effect, lookup, material, operation,
    person, rule,
};
use crate::domain::recovery::{Asked, reconcile};
use crate::domain::rule::{AttemptRule, LookupRule, PollRule, Resend};
use crate::domain::settle::{self, Settle};
use crate::domain::verbs::{self, Answer as Says, Finding};

/// What the downstream does with a request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Done,
    DoneButLost,
    LostBefore,
    /// Nobody answers, and so many seconds later it is done all the same.
    Late(u32),
    /// As [`Answer::Late`], and nobody is left to settle it.
    LateAndDies(u32),
    Refused,
    NotNow,
    Denied,
    Unreachable,
    /// A job of the provider's.
    Job,
    /// Done before, says the downstream: by whom, it does not know.
    Already,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    /// A worker takes the record, if it can.
    Claim,
    /// Worker number n, as far as it got, sends or asks, and settles. What it asked, it may have been
    /// told as early as its claim.
    Work(usize, Answer, bool),
    /// Worker number n panics or drains before its first byte.
    Stop(usize, bool),
    Pass(u32),
    Retry,
    Reopen,
    /// A person looks into the downstream's books and writes down what is there.
    Resolve,
    /// Role maintain looks an unknown one up. A cache may forget what is there.
    Reconcile(bool),
    /// The provider's job ends, with its effect or without.
    JobEnds(bool),
    May(Permission),
    Twin(Twins),
    Release,
    Says(Says),
}

fn any_move() -> impl Strategy<Value = Move> {
    use Answer as A;
    let answers = vec![
        A::Done,
        A::DoneButLost,
        A::DoneButLost,
        A::LostBefore,
        A::LostBefore,
        A::Late(3),
        A::Late(290),
        A::LateAndDies(9),
        A::LateAndDies(290),
        A::Refused,
        A::NotNow,
        A::Denied,
        A::Unreachable,
        A::Job,
        A::Job,
        A::Already,
    ];
    let seconds = proptest::sample::select(vec![1, 5, 31, 31, 60, 330, 600, 3600, 86_400]);
    let may = proptest::sample::select(vec![
        Permission::Allowed,
        Permission::Allowed,
        Permission::NeedsApproval,
        Permission::Denied(Denial::NotAuthorized),
    ]);
    let other = Uuid::from_u128(3);
    let twins = vec![Twins::Free, Twins::Free, Twins::Behind(other), Twins::Applied(other)];
    let says = vec![Says::Approve, Says::Approve, Says::Deny];
    let worker = (0..4usize, proptest::sample::select(answers), any::<bool>());
    prop_oneof![
        8 => Just(Move::Claim),
        7 => worker.prop_map(|(worker, answer, early)| Move::Work(worker, answer, early)),
        1 => (0..4usize, any::<bool>()).prop_map(|(worker, panics)| Move::Stop(worker, panics)),
        6 => seconds.prop_map(Move::Pass),
        1 => Just(Move::Retry),
        1 => Just(Move::Reopen),
        1 => Just(Move::Resolve),
        2 => any::<bool>().prop_map(Move::Reconcile),
        1 => any::<bool>().prop_map(Move::JobEnds),
        1 => may.prop_map(Move::May),
        1 => proptest::sample::select(twins).prop_map(Move::Twin),
        1 => Just(Move::Release),
        1 => proptest::sample::select(says).prop_map(Move::Says),
    ]
}

/// An attempt that some worker believes in.
struct Owner {
    purpose: Purpose,
    ticket: Ticket,
    lease_until: Timestamp,
    send_until: Option<Timestamp>,
    /// What the downstream would have said at the claim.
    told: Evidence,
}

struct World {
    row: Operation,
    now: Timestamp,
    rule: AttemptRule,
    may: Permission,
    twins: Twins,
    owners: Vec<Owner>,
    books: Books,
}

impl World {
    fn new(resend: Resend, lookup: Option<LookupRule>, asks_before_send: bool) -> Self {
        let row = Operation {
            fingerprint: None,
            downstream_key: None,
            results: true,
            ..operation(State::Queued)
        };
        let poll = Some(PollRule { every: MINUTE, give_up: 2 * HOUR });
        let twins = Some(Duration::ZERO);
        let rule =
            AttemptRule { attempts: 6, lookup, poll, asks_before_send, twins, ..rule(resend) };
        Self {
            row,
            now: NOW,
            rule,
            may: Permission::Allowed,
            twins: Twins::Free,
            owners: Vec::new(),
            books: Books::new(rule),
        }
    }

    /// Put back after its record was lost: what it did before is in the downstream's books only.
    fn put_back(mut self) -> Self {
        self.row.token = Token(0);
        self.row.first_sent_at = Some(NOW);
        self.row.updated_at = NOW;
        self.row.reason = Some(Reason::MayHaveBeenSent);
        // A transactional effect was lost with its record.
        if self.rule.resend != Resend::InTransaction {
            self.books.effects = 1;
            self.books.shows_at = Some(NOW.after(10 * SECOND));
        }
        self
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
        let planned = step.record.next_lookup_at.is_some();
        assert!(!planned || step.record.state == State::Unknown, "asked about {:?}", step.record);
        self.row = Operation { updated_at: self.now, ..step.record };
    }

    fn claim(&mut self) {
        let key = || downstream_key(&format!("key-{}", self.now.0));
        let claimant = Claimant { owner: "w", alone: true, downstream_key: &key };
        let material = material();
        let recomputed = Recomputed::Valid(&material);
        let around = Around { permission: self.may, twins: self.twins, ..alone() };
        let now = self.now;
        match claim::decide(&self.row, recomputed, &around, now, &self.rule, &claimant) {
            Claim::Run(run) => {
                let lease = run.step.record.lease.as_ref();
                let lease_until = lease.map_or(now, |lease| lease.until);
                let send_until = run.send_within.map(|within| now.after(within));
                let (purpose, ticket) = (run.purpose, run.ticket);
                let told = self.books.asked(&self.row, now);
                self.owners.push(Owner { purpose, ticket, lease_until, send_until, told });
                self.write(run.step);
            }
            Claim::Write(step) => self.write(*step),
            Claim::Leave(_) => {}
            Claim::Alone => panic!("nothing else runs"),
        }
    }

    /// The last steps before the first byte: the mark, the worker's own clock, the window.
    fn may_send(&mut self, owner: &mut Owner) -> Result<(), NotSent> {
        if !owner.ticket.marked {
            match claim::mark_sent(&self.row, &owner.ticket, self.may, self.now) {
                Marking::Write(step) => {
                    owner.ticket.marked = true;
                    self.write(*step);
                }
                Marking::Lost => return Err(NotSent::ClaimLost),
                Marking::Forbidden(denial) => return Err(NotSent::Forbidden(denial)),
            }
        }
        let leased = self.now < owner.lease_until.before(self.rule.margin);
        let known = owner.send_until.is_none_or(|until| self.now <= until);
        if leased && known { Ok(()) } else { Err(NotSent::LeaseTooShort) }
    }

    fn work(&mut self, worker: usize, answer: Answer, early: bool) {
        if self.owners.is_empty() {
            return;
        }
        let mut owner = self.owners.remove(worker % self.owners.len());
        if owner.purpose != Purpose::Send {
            return self.answer(&owner, early);
        }
        if self.rule.resend == Resend::InTransaction {
            return self.work_in_transaction(&owner.ticket, answer);
        }
        let learned = match self.may_send(&mut owner) {
            Err(why) => Learned::NotSent(why),
            Ok(()) => {
                let sent_at = self.row.first_sent_at.unwrap();
                match self.books.take(answer, &owner.ticket, sent_at, self.now) {
                    Some(learned) => learned,
                    None => return,
                }
            }
        };
        self.settle(&owner.ticket, &learned);
    }

    fn answer(&mut self, owner: &Owner, early: bool) {
        let now = self.now;
        let told = if early { owner.told.clone() } else { self.books.asked(&self.row, now) };
        let Owner { ticket, purpose, .. } = owner;
        match settle::answered(&self.row, ticket, *purpose, &told, now, &self.rule, 0.5) {
            Settle::Write(step) => self.write(*step),
            Settle::Acknowledged | Settle::LostLease => {}
        }
    }

    fn work_in_transaction(&mut self, ticket: &Ticket, answer: Answer) {
        match answer {
            Answer::Done | Answer::DoneButLost => {
                if let Some(step) = settle::commit(&self.row, ticket, &effect("T-1"), self.now) {
                    self.books.effects += 1;
                    self.write(step);
                }
                if matches!(answer, Answer::DoneButLost) {
                    // The commit was not answered: the worker settles as it knows.
                    self.settle(ticket, &Learned::Ambiguous(Ambiguity::Broken));
                }
            }
            Answer::Refused => self.settle(ticket, &Learned::Refused),
            Answer::LostBefore | Answer::Late(_) => {
                self.settle(ticket, &Learned::Ambiguous(Ambiguity::TimedOut));
            }
            Answer::LateAndDies(_) => {}
            // A tool that says "done", or more, though its transaction was rolled back.
            Answer::NotNow | Answer::Already => {
                self.settle(ticket, &Learned::Applied(effect("T-0")))
            }
            Answer::Job => self.settle(ticket, &Learned::Accepted(Job::new("J-1").unwrap())),
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

    fn reconcile(&mut self, forgets: bool) {
        let now = self.now;
        if self.row.next_lookup_at.is_none_or(|at| now < at) {
            return;
        }
        let authoritative = self.rule.lookup.is_some_and(|lookup| lookup.authoritative);
        let told = match self.books.asked(&self.row, now) {
            Evidence::Found(_) if forgets && !authoritative && self.row.job.is_none() => {
                Evidence::Absent
            }
            told => told,
        };
        let asked = Asked { at: now, jitter: 0.5 };
        match reconcile(&self.row, &told, asked, now, &self.rule) {
            Settle::Write(step) => {
                self.write(*step);
                assert!(self.row.next_lookup_at.is_none_or(|at| at > now), "asked without end");
            }
            Settle::Acknowledged | Settle::LostLease => panic!("asked without end: {told:?}"),
        }
    }

    fn resolve(&mut self) {
        if self.books.job_runs() {
            return;
        }
        let finding = if self.books.effects > 0 {
            Finding::Applied(Receipt::new("T-1").unwrap())
        } else {
            Finding::NotApplied
        };
        let stall = self.rule.stall_margin;
        self.verb(|row, now| verbs::resolve(row, &finding, stall, now, &person()));
    }

    fn verb(&mut self, verb: impl Fn(&Operation, Timestamp) -> Result<super::Step, &'static str>) {
        if let Ok(step) = verb(&self.row, self.now) {
            self.write(step);
        }
    }

    fn pass(&mut self, seconds: u32) {
        self.now = self.now.after(seconds * SECOND);
        self.books.until(self.now);
    }

    fn step(&mut self, next: Move) {
        match next {
            Move::Claim => self.claim(),
            Move::Work(worker, answer, early) => self.work(worker, answer, early),
            Move::Stop(worker, panics) => {
                if self.owners.is_empty() {
                    return;
                }
                let owner = self.owners.remove(worker % self.owners.len());
                let learned = match panics {
                    true => Learned::Panicked,
                    false => Learned::NotSent(NotSent::Draining),
                };
                // A question that is given up is answered by nobody.
                if owner.purpose == Purpose::Send {
                    self.settle(&owner.ticket, &learned);
                }
            }
            Move::Pass(seconds) => self.pass(seconds),
            Move::Retry => {
                let can = self.rule.can_look_up(&self.row);
                self.verb(|row, now| verbs::retry(row, can, now, &person()));
            }
            Move::Reopen => self.verb(|row, now| verbs::reopen(row, now, &person())),
            Move::Resolve => self.resolve(),
            Move::Reconcile(forgets) => self.reconcile(forgets),
            Move::JobEnds(done) => self.books.job_ends(done, self.now),
            Move::May(may) => self.may = may,
            Move::Twin(twins) => self.twins = twins,
            Move::Release => self.verb(|row, now| verbs::release(row, now, &person())),
            Move::Says(says) => {
                self.verb(|row, now| verbs::answer(row, says, now, &person()));
                if self.may == Permission::NeedsApproval && says == Says::Approve {
                    self.may = Permission::Allowed;
                }
            }
        }
    }

    /// One effect at most, and the label tells the truth.
    fn check(&self) {
        let (row, books) = (&self.row, &self.books);
        assert!(books.effects <= 1, "{} effects, {row:?}", books.effects);
        let coming = books.comes() && self.rule.resend != Resend::Always;
        match row.state {
            State::Applied => assert_eq!(books.effects, 1, "applied without an effect: {row:?}"),
            State::Rejected | State::FailedPermanent => {
                assert_eq!(books.effects, 0, "an effect was called none: {row:?}");
                assert!(!coming, "an effect that comes was called none: {row:?}");
            }
            _ => {}
        }
        let may_be = books.effects == 1 || coming;
        if may_be && row.state.is_pending() && self.rule.resend != Resend::InTransaction {
            assert!(row.may_have_been_sent(), "the mark was lost: {row:?}");
        }
        if row.state.is_pending() && row.lease.is_none() {
            let waits = [State::Claimed, State::Sent].contains(&row.state);
            assert!(!waits, "nobody will ever work on {row:?}");
        }
        if row.state == State::Accepted {
            assert!(row.job.is_some(), "nobody can follow {row:?}");
        }
    }
}

fn any_lookup() -> impl Strategy<Value = Option<LookupRule>> {
    let by = |authoritative, when_absent| {
        Some(LookupRule { authoritative, when_absent, by_key: false, ..lookup() })
    };
    proptest::sample::select(vec![
        None,
        by(true, AbsentRule::Resend),
        by(true, AbsentRule::Resend),
        by(true, AbsentRule::Operator),
        by(false, AbsentRule::Resend),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn one_effect_or_an_honest_unknown(
        resend in proptest::sample::select(RESENDS.to_vec()),
        lookup in any_lookup(),
        asks_before_send in any::<bool>(),
        put_back in proptest::bool::weighted(0.2),
        moves in proptest::collection::vec(any_move(), 1..80),
    ) {
        let lookup = lookup.filter(|_| resend != Resend::InTransaction);
        let world = World::new(resend, lookup, asks_before_send);
        let mut world = if put_back { world.put_back() } else { world };
        for next in moves {
            world.step(next);
            world.check();
        }
        // Whatever happened, time, workers and those who were asked end it, or a person is asked.
        world.may = Permission::Allowed;
        world.twins = Twins::Free;
        for _ in 0..40 {
            world.pass(3600);
            world.step(Move::Says(Says::Approve));
            world.step(Move::JobEnds(true));
            world.claim();
            while !world.owners.is_empty() {
                world.work(0, Answer::Done, false);
            }
            world.reconcile(false);
            world.check();
        }
        let row = &world.row;
        prop_assert!(!row.state.is_pending() || row.state == State::Parked, "{row:?}");
        // With somebody to ask who knows, an effect that is there is found.
        let knows = lookup.is_some_and(|lookup| lookup.authoritative) && row.job.is_none();
        let found = row.state != State::Unknown || world.books.effects == 0;
        let weighed = row.reason == Some(Reason::Conflict);
        prop_assert!(!knows || found || weighed || row.next_lookup_at.is_none(), "{row:?}");
    }
}
