//! Work that was accepted and is not done yet.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::ledger::{Effect, Wanted};

/// How a job ends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// With its effect, which exists from then on and no sooner.
    #[default]
    Done,
    /// Without an effect.
    Failed,
}

/// Where a job stands.
#[derive(Clone)]
pub(crate) enum State {
    Running,
    Done(Effect),
    Failed,
}

struct Job {
    wanted: Wanted,
    state: State,
}

/// What a submission came to.
pub(crate) enum Submitted {
    New(String),
    Repeated(String),
    /// The key is taken by a request with another body; nothing happened.
    Mismatch,
}

/// One line of the jobs' own journal; that a job is done stands with its effect.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Submitted(Wanted),
    Failed(String),
}

/// All jobs in the order of their arrival, the first of each key.
#[derive(Default)]
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    keys: HashMap<String, String>,
}

impl Jobs {
    /// Continues from the lines of a journal; `done` are the effects that jobs had made.
    ///
    /// # Errors
    /// When a line is none of a job.
    pub(crate) fn replay<'a>(
        lines: &str,
        done: impl Iterator<Item = &'a Effect>,
    ) -> serde_json::Result<Self> {
        let mut jobs = Self::default();
        for line in lines.lines() {
            match serde_json::from_str(line)? {
                Line::Submitted(wanted) => drop(jobs.add(wanted)),
                Line::Failed(id) => drop(jobs.end(&id, State::Failed)),
            }
        }
        for effect in done {
            if let Some(id) = &effect.job {
                jobs.end(id, State::Done(effect.clone()));
            }
        }
        Ok(jobs)
    }

    /// Takes a job, unless `deduplicate` and its key has one.
    pub(crate) fn submit(&mut self, wanted: &Wanted, deduplicate: bool) -> Submitted {
        let earlier = self.keys.get(&wanted.key).filter(|_| deduplicate);
        match earlier.and_then(|id| Some((id, self.find(id)?))) {
            Some((_, job)) if job.wanted.request != wanted.request => Submitted::Mismatch,
            Some((id, _)) => Submitted::Repeated(id.clone()),
            None => Submitted::New(self.add(wanted.clone())),
        }
    }

    pub(crate) fn state(&self, id: &str) -> Option<State> {
        self.find(id).map(|job| job.state.clone())
    }

    /// What a running job is to make; `None` when it has ended or never was.
    pub(crate) fn running(&self, id: &str) -> Option<&Wanted> {
        let job = self.find(id)?;
        matches!(job.state, State::Running).then_some(&job.wanted)
    }

    /// Ends a job and says what its journal gets.
    pub(crate) fn end(&mut self, id: &str, state: State) -> String {
        let line = match &state {
            State::Failed => format!("{}\n", json!(Line::Failed(id.to_owned()))),
            State::Running | State::Done(_) => String::new(),
        };
        if let Some(job) = position(id).and_then(|index| self.jobs.get_mut(index)) {
            job.state = state;
        }
        line
    }

    /// What the journal gets for a new job.
    pub(crate) fn line(wanted: &Wanted) -> String {
        format!("{}\n", json!(Line::Submitted(wanted.clone())))
    }

    /// Those that have not ended.
    pub(crate) fn all_running(&self) -> Vec<String> {
        let named = self.jobs.iter().enumerate().map(|(index, job)| (name(index), job));
        named.filter(|(_, job)| matches!(job.state, State::Running)).map(|(id, _)| id).collect()
    }

    /// `{job: {key, state}}`
    pub(crate) fn summary(&self) -> Value {
        let named = self.jobs.iter().enumerate().map(|(index, job)| (name(index), job));
        let rows: Map<String, Value> = named
            .map(|(id, job)| (id, json!({"key": job.wanted.key, "state": job.state.name()})))
            .collect();
        rows.into()
    }

    fn add(&mut self, wanted: Wanted) -> String {
        let id = name(self.jobs.len());
        self.keys.entry(wanted.key.clone()).or_insert_with(|| id.clone());
        self.jobs.push(Job { wanted, state: State::Running });
        id
    }

    fn find(&self, id: &str) -> Option<&Job> {
        self.jobs.get(position(id)?)
    }
}

impl State {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done(_) => "done",
            Self::Failed => "failed",
        }
    }
}

fn name(index: usize) -> String {
    format!("J-{}", index + 1)
}

fn position(id: &str) -> Option<usize> {
    id.strip_prefix("J-")?.parse::<usize>().ok()?.checked_sub(1)
}
