//! The other side: what a service does with requests and questions, and what is true of it.

use oncebox::domain::attempt::{Ambiguity, Effect, Job, Learned, Receipt, Response, Unconfirmed};
use oncebox::domain::evidence::{Blank, Evidence};
use oncebox::domain::operation::Timestamp;

use super::setup::Service;
use super::shell::Shell;
use super::world::{Act, JobFate, Made, Reply, Report, Row, Sight, Stage, World};

/// Proof of the effect that `receipt` names.
pub(super) fn effect(receipt: &str) -> Effect {
    Effect { receipt: Receipt::new(receipt).unwrap(), response: Response::None }
}

impl Shell {
    /// The service acts on a request that somebody waits for.
    pub(super) fn serve(&self, world: &mut World, at: usize, act: Act, reply: Reply) -> Option<()> {
        let Stage::Waiting(request) = world.attempts[at].stage.clone() else { return None };
        if world.now >= request.until {
            return None;
        }
        let answer = match act {
            Act::Make => self.make(world, request.row, &request.key),
            Act::Refuse => {
                world.left.refusals = world.left.refusals.checked_sub(1)?;
                Learned::Refused
            }
            Act::NotNow => {
                world.left.deferrals = world.left.deferrals.checked_sub(1)?;
                Learned::NotNow { retry_after: None }
            }
        };
        let learned = match (reply, answer) {
            (Reply::Heard, answer) => {
                if act != Act::Make {
                    world.rows[request.row].proved_nothing(request.until);
                }
                answer
            }
            (Reply::Unconfirmed, Learned::Applied(effect)) => {
                world.left.unconfirmed = world.left.unconfirmed.checked_sub(1)?;
                Learned::Unconfirmed(effect, Unconfirmed::Unreachable)
            }
            (Reply::Unconfirmed, _) => return None,
            (Reply::Unreadable, _) => {
                world.rows[request.row].over_at(request.until, world.now);
                Learned::Ambiguous(Ambiguity::Unreadable)
            }
            (Reply::Lost, _) => {
                let over = world.now.after(self.setup.rule.stall_margin).min(request.until);
                world.rows[request.row].over_at(request.until, over);
                Learned::Ambiguous(Ambiguity::Broken)
            }
        };
        world.attempts[at].stage = Stage::Learned(Report::Attempt(learned));
        Some(())
    }

    /// The service acts on a request that nobody waits for any more.
    pub(super) fn serve_late(&self, world: &mut World, at: usize) {
        let request = world.wire.remove(at);
        self.make(world, request.row, &request.key);
    }

    fn make(&self, world: &mut World, number: usize, key: &str) -> Learned {
        if self.setup.done_by_another {
            return Learned::Already(effect("another's"));
        }
        let now = world.now;
        let row = &mut world.rows[number];
        let known = row.seen_at.is_some_and(|seen| self.setup.recognises(seen, now));
        row.seen_at.get_or_insert(now);
        if self.setup.jobs {
            if !known {
                let until = now.after(self.setup.jobs_take());
                row.jobs.push(JobFate::Runs { until });
            }
            return Learned::Accepted(Job::new(format!("j{}", row.jobs.len() - 1)).unwrap());
        }
        let same = |made: &&Made| self.setup.service == Service::Natural || made.key == key;
        if let Some(made) = row.effects.iter().find(same).filter(|_| known) {
            let first = effect(&made.receipt);
            return if self.setup.says_already {
                Learned::Already(first)
            } else {
                Learned::Applied(first)
            };
        }
        let receipt = format!("r{number}-{}", row.effects.len());
        let answer = Learned::Applied(effect(&receipt));
        row.effects.push(Made { receipt, key: key.to_owned(), at: now, undone: false });
        answer
    }

    /// A provider's job ends.
    pub(super) fn end_job(&self, world: &mut World, number: usize, done: bool) -> Option<()> {
        let now = world.now;
        let row = &mut world.rows[number];
        let job = row.jobs.iter().position(|fate| fate.runs_at(now))?;
        if done {
            row.jobs[job] = JobFate::Done;
            let receipt = format!("r{number}-j{job}");
            row.effects.push(Made { receipt, key: format!("j{job}"), at: now, undone: false });
        } else {
            world.left.job_failures = world.left.job_failures.checked_sub(1)?;
            row.jobs[job] = JobFate::Failed;
        }
        Some(())
    }

    /// The answer to a look-up. `None`: not one that could be given.
    pub(super) fn look_up(
        &self,
        world: &mut World,
        number: usize,
        sight: Sight,
    ) -> Option<Evidence> {
        let lookup = self.setup.rule.lookup;
        let visible_after = self.setup.visible_after();
        let works_for = self.setup.jobs_take();
        let (now, acts) = (world.now, world.may_still_act(number));
        let row = &mut world.rows[number];
        let made = row.effects.iter().find(|made| !made.undone).cloned();
        match (sight, made) {
            (Sight::Blank, _) => Some(Evidence::CannotTell(Blank::Unreachable)),
            (_, _) if lookup.is_none() => {
                (sight == Sight::Truth).then_some(Evidence::CannotTell(Blank::NoQuestion))
            }
            (Sight::Truth, Some(made)) => Some(Evidence::Found(effect(&made.receipt))),
            (Sight::Truth, None) => {
                if !acts {
                    row.unproved.retain(|until| now < until.after(works_for).after(visible_after));
                }
                Some(Evidence::Absent)
            }
            (Sight::NotSeen, Some(made)) => {
                let cached = lookup.is_some_and(|lookup| !lookup.authoritative);
                let unseen = now < made.at.after(visible_after);
                (cached || unseen).then_some(Evidence::Absent)
            }
            (Sight::NotSeen, None) => None,
        }
    }

    /// The answer to the question how a job goes.
    pub(super) fn poll(&self, world: &mut World, number: usize, sight: Sight) -> Option<Evidence> {
        let row = &mut world.rows[number];
        match sight {
            Sight::Blank => return Some(Evidence::CannotTell(Blank::Unreachable)),
            Sight::NotSeen => return None,
            Sight::Truth => {}
        }
        let Some(job) = &row.record.job else {
            return Some(Evidence::CannotTell(Blank::Unbuildable));
        };
        let place = job.id.as_str().trim_start_matches('j').parse::<usize>().ok()?;
        Some(match row.jobs.get(place)? {
            JobFate::Runs { .. } => Evidence::JobRuns,
            JobFate::Done => Evidence::Found(effect(&format!("r{number}-j{place}"))),
            JobFate::Failed => Evidence::JobFailed,
        })
    }
}

impl Row {
    /// The request that may act until `until` came to nothing, and somebody knows it.
    fn proved_nothing(&mut self, until: Timestamp) {
        let place = self.unproved.iter().position(|open| *open == until);
        place.map(|place| self.unproved.remove(place));
    }

    /// The request that may have acted until `until` does so until `over` at the latest.
    pub(super) fn over_at(&mut self, until: Timestamp, over: Timestamp) {
        self.unproved.iter_mut().filter(|open| **open == until).for_each(|open| *open = over);
    }
}
