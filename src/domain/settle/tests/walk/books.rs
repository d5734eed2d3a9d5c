//! The downstream of the random lives: what it did, what it will do, and what it says when it is asked.

use super::*;
use crate::domain::evidence::Blank;

/// How a provider's job goes.
struct Work {
    name: String,
    /// Ended, with its effect or without.
    ended: Option<bool>,
}

/// What the downstream knows.
pub(super) struct Books {
    rule: AttemptRule,
    /// Effects so far.
    pub(super) effects: u32,
    /// Until when it knows the key of the last one.
    known_until: Option<Timestamp>,
    /// When the last effect can be seen by whoever asks.
    pub(super) shows_at: Option<Timestamp>,
    /// Requests that it will act on, though nobody waits any more.
    late: Vec<Timestamp>,
    jobs: Vec<Work>,
    /// Somebody else did the same before, and each request is told so: since then, the first send that
    /// was told it.
    foreign: Option<Timestamp>,
}

impl Books {
    pub(super) fn new(rule: AttemptRule) -> Self {
        Self {
            rule,
            effects: 0,
            known_until: None,
            shows_at: None,
            late: Vec::new(),
            jobs: Vec::new(),
            foreign: None,
        }
    }

    /// Whether an effect may come of what was sent.
    pub(super) fn comes(&self) -> bool {
        !self.late.is_empty() || self.job_runs()
    }

    pub(super) fn job_runs(&self) -> bool {
        self.jobs.iter().any(|job| job.ended.is_none())
    }

    /// Acts on a request at `now`.
    fn act(&mut self, now: Timestamp) {
        let before = self.effects;
        let known = self.known_until.is_some_and(|until| now < until);
        match self.rule.resend {
            Resend::Within(window) if !known => {
                self.effects += 1;
                self.known_until = Some(now.after(window));
            }
            // It overwrites what is there with the same again.
            Resend::Always => self.effects = 1,
            Resend::Within(_) => {}
            Resend::Never | Resend::InTransaction => self.effects += 1,
        }
        if self.effects > before {
            let visible = self.rule.lookup.map(|lookup| lookup.visible_after).unwrap_or_default();
            self.shows_at = Some(now.after(visible));
        }
    }

    /// Does what it had put off until `now`.
    pub(super) fn until(&mut self, now: Timestamp) {
        let mut due: Vec<Timestamp> = self.late.iter().copied().filter(|at| *at <= now).collect();
        due.sort_unstable();
        self.late.retain(|at| *at > now);
        for at in due {
            self.act(at);
        }
    }

    /// What comes back for a request; `None`: nobody is left to hear it.
    pub(super) fn take(
        &mut self,
        answer: Answer,
        ticket: &Ticket,
        first_sent_at: Timestamp,
        now: Timestamp,
    ) -> Option<Learned> {
        if let Some(told) = self.foreign {
            // What another did cannot be told from what an unproved attempt of ours did; an attempt
            // that was told so did nothing.
            let unproved = ticket.prior_first_sent_at.is_some_and(|prior| prior != told);
            if unproved {
                return Some(Learned::Ambiguous(Ambiguity::Broken));
            }
            self.foreign = Some(first_sent_at);
            return Some(Learned::Already(effect("T-0")));
        }
        let deduplicates = matches!(self.rule.resend, Resend::Within(_));
        let known = self.known_until.is_some_and(|until| now < until);
        // A job for the same key is the same job, whatever else it would have answered.
        let same = self.jobs.last().filter(|_| deduplicates && known);
        if let Some(job) = same {
            let name = Job::new(job.name.clone()).unwrap();
            return Some(match answer {
                Answer::Done | Answer::Job | Answer::Already => Learned::Accepted(name),
                Answer::DoneButLost | Answer::LostBefore | Answer::Late(_) => {
                    Learned::Ambiguous(Ambiguity::TimedOut)
                }
                Answer::LateAndDies(_) => return None,
                Answer::Refused => Learned::Refused,
                Answer::NotNow => Learned::NotNow { retry_after: Some(MINUTE) },
                Answer::Denied => Learned::Denied,
                Answer::Unreachable => Learned::NotSent(NotSent::Unreachable),
            });
        }
        let late =
            |seconds: u32| now.after(if deduplicates { seconds.min(9) } else { seconds } * SECOND);
        Some(match answer {
            Answer::Done => {
                self.act(now);
                Learned::Applied(effect("T-1"))
            }
            Answer::DoneButLost => {
                self.act(now);
                Learned::Ambiguous(Ambiguity::TimedOut)
            }
            Answer::LostBefore => Learned::Ambiguous(Ambiguity::Broken),
            Answer::Late(seconds) => {
                self.late.push(late(seconds));
                Learned::Ambiguous(Ambiguity::TimedOut)
            }
            Answer::LateAndDies(seconds) => {
                self.late.push(late(seconds));
                return None;
            }
            // Its first answer stands: a downstream that did it does not refuse it, but one
            // that has forgotten the key may.
            Answer::Refused => Learned::Refused,
            Answer::NotNow => Learned::NotNow { retry_after: Some(MINUTE) },
            Answer::Denied => Learned::Denied,
            Answer::Unreachable => Learned::NotSent(NotSent::Unreachable),
            Answer::Job => self.open_job(now),
            Answer::Already if self.effects > 0 => Learned::Already(effect("T-1")),
            Answer::Already if ticket.is_resend() => Learned::Ambiguous(Ambiguity::Broken),
            Answer::Already => {
                self.foreign = Some(first_sent_at);
                Learned::Already(effect("T-0"))
            }
        })
    }

    fn open_job(&mut self, now: Timestamp) -> Learned {
        if self.effects > 0 {
            // It did it long ago, and has its receipt.
            self.act(now);
            return Learned::Applied(effect("T-1"));
        }
        if let Resend::Within(window) = self.rule.resend {
            self.known_until = Some(now.after(window));
        }
        let name = format!("J-{}", self.jobs.len());
        self.jobs.push(Work { name: name.clone(), ended: None });
        Learned::Accepted(Job::new(name).unwrap())
    }

    pub(super) fn job_ends(&mut self, done: bool, now: Timestamp) {
        let Some(job) = self.jobs.iter_mut().find(|job| job.ended.is_none()) else { return };
        job.ended = Some(done);
        if done {
            match self.rule.resend {
                Resend::Always => self.effects = 1,
                Resend::Within(_) | Resend::Never | Resend::InTransaction => self.effects += 1,
            }
            self.shows_at = Some(now.after(10 * SECOND));
        }
    }

    /// What it says of `row` at `now`: of its job, if it has one, else of its effect.
    pub(super) fn asked(&self, row: &Operation, now: Timestamp) -> Evidence {
        if let Some(known) = &row.job {
            let job = self.jobs.iter().find(|job| job.name == known.id.as_str());
            return match job.and_then(|job| job.ended) {
                Some(true) => Evidence::Found(effect("T-1")),
                Some(false) => Evidence::JobFailed,
                None => Evidence::JobRuns,
            };
        }
        if self.rule.lookup.is_none() {
            return Evidence::CannotTell(Blank::NoQuestion);
        }
        let shows = self.effects > 0 && self.shows_at.is_some_and(|at| now >= at);
        if shows { Evidence::Found(effect("T-1")) } else { Evidence::Absent }
    }
}
