//! Writes what attempts learned, in batches, then acks.
//!
//! A settle never skips: it is repeated until it is written or found written; a row that is busy
//! waits for the next batch and delays nobody. A batch that the database refuses is written one by
//! one; what of the answer it refuses is left out; a row that it still refuses becomes unknown, and
//! its neighbours do not notice.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{error, warn};
use uuid::Uuid;

use super::batch::{self, Locked};
use super::lease::Leases;
use super::refused;
use super::served::Running;
use crate::broker::AckHandle;
use crate::chance;
use crate::domain::attempt::Learned;
use crate::domain::claim::{Purpose, Ticket};
use crate::domain::evidence::Evidence;
use crate::domain::rule::AttemptRule;
use crate::domain::settle::{
    Settle, answered, decide, told_by_answer, told_by_attempt, unstorable,
};
use crate::domain::step::{Step, Trace};
use crate::store::{self, Connection, DatabaseUrl, Link, Noted, StoreError};

/// Attempts of one transaction, at most.
const BATCH: usize = 500;

/// Between tries while the database cannot be written.
const AGAIN: Duration = Duration::from_millis(200);

/// What an attempt learned, and what its settle needs to know.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) operation: Uuid,
    pub(super) ticket: Ticket,
    pub(super) report: Report,
    pub(super) rule: AttemptRule,
}

/// What came of a claim.
#[derive(Debug, Clone)]
pub(super) enum Report {
    /// Of a send.
    Attempt(Learned),
    /// Of a question.
    Answer(Purpose, Evidence),
}

/// An attempt that has ended, with everything that is let go of when it is settled.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    pub(super) handle: AckHandle,
    pub(super) running: Running,
}

/// The settler: one database connection.
#[derive(Debug)]
pub(super) struct Settler {
    link: Link,
    leases: Leases,
    owner: String,
    /// Acks that the next batch's trace tells of.
    acknowledged: Vec<Noted>,
}

impl Settler {
    pub(super) fn new(database: &DatabaseUrl, leases: Leases, owner: &str) -> Self {
        let link = Link::new(database, "worker settle", Duration::from_secs(20));
        Self { link, leases, owner: owner.to_owned(), acknowledged: Vec::new() }
    }

    /// Settles until the last attempt is gone.
    pub(super) async fn run(mut self, mut finished: mpsc::Receiver<Finished>) {
        let mut left = Vec::new();
        loop {
            let gathered = batch::next(&mut finished, left, BATCH).await;
            if gathered.is_empty() {
                break;
            }
            let (first, rest) = one_each(gathered);
            left = rest;
            left.extend(self.settle(first).await);
        }
        self.tell_acks().await;
    }

    /// Settles attempts of different operations, until it is written; hands back those whose rows
    /// are busy.
    async fn settle(&mut self, batch: Vec<Finished>) -> Vec<Finished> {
        let busy = loop {
            let notes = self.acknowledged.clone();
            let outcomes: Vec<&Outcome> = batch.iter().map(|finished| &finished.outcome).collect();
            match self.write(&outcomes, notes).await {
                Ok(busy) => break busy,
                Err(error) if refused(&error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "a settle was refused; writing one by one"
                    );
                    break self.one_by_one(&outcomes).await;
                }
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        attempts = batch.len(),
                        "not settled yet; trying again"
                    );
                    sleep(AGAIN).await;
                }
            }
        };
        self.acknowledged.clear();
        let (again, done): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|finished| busy.contains(&finished.outcome.operation));
        self.let_go(done).await;
        again
    }

    async fn write(
        &mut self,
        batch: &[&Outcome],
        notes: Vec<Noted>,
    ) -> Result<HashSet<Uuid>, StoreError> {
        let (jitter, owner) = (chance::sample(), self.owner.as_str());
        self.link
            .transaction(async |connection| {
                let busy = write(connection, batch, jitter, owner).await?;
                store::note(connection, notes).await?;
                Ok(busy)
            })
            .await
    }

    async fn one_by_one(&mut self, batch: &[&Outcome]) -> HashSet<Uuid> {
        let mut busy = HashSet::new();
        for outcome in batch {
            busy.extend(self.alone(outcome).await);
        }
        busy
    }

    /// Settles one attempt: with all it learned, else without its response, else as unknown.
    async fn alone(&mut self, outcome: &Outcome) -> HashSet<Uuid> {
        let (mut whole, mut lean) = (Some(outcome), without_response(outcome));
        let operation_id = outcome.operation;
        let told = outcome.report.evidence();
        loop {
            let written = match whole.or(lean.as_ref()) {
                Some(storable) => self.write(&[storable], Vec::new()).await,
                None => {
                    self.link
                        .transaction(async |connection| {
                            give_up(connection, operation_id, told.clone()).await
                        })
                        .await
                }
            };
            match written {
                Ok(busy) => return busy,
                Err(error) if refused(&error) => {
                    error!(%operation_id, error = &error as &dyn std::error::Error,
                        "an outcome cannot be stored as it is");
                    if whole.take().is_none() && lean.take().is_none() {
                        // Not even as unknown: its lease ends, and its message will be kept.
                        return HashSet::new();
                    }
                }
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "not settled yet; trying again"
                    );
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// After the commit: leases, breaker, acks.
    async fn let_go(&mut self, batch: Vec<Finished>) {
        let mut handles = Vec::with_capacity(batch.len());
        for finished in batch {
            let Outcome { operation, ticket, report, .. } = finished.outcome;
            self.leases.release(operation, ticket.token.0);
            match report.lets_in() {
                Some(false) => {
                    error!(operation_id = %operation, "the downstream answered 401 or 403: its tool pauses; check its credentials");
                    finished.running.lane().close();
                }
                Some(true) => finished.running.lane().open(),
                None => {}
            }
            self.acknowledged.push(Noted {
                operation,
                event: "acknowledged",
                epoch: ticket.token.0,
                owner: Some(self.owner.clone()),
                detail: None,
            });
            handles.push(finished.handle);
        }
        super::ack_all(handles).await;
    }

    async fn tell_acks(&mut self) {
        let notes = std::mem::take(&mut self.acknowledged);
        if let Err(error) =
            self.link.statement(async |connection| store::note(connection, notes).await).await
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "the last acks are missing from the trace"
            );
        }
    }
}

/// Splits off what would meet an earlier attempt of the same operation in one batch.
fn one_each(batch: Vec<Finished>) -> (Vec<Finished>, Vec<Finished>) {
    let mut seen = HashSet::new();
    batch.into_iter().partition(|finished| seen.insert(finished.outcome.operation))
}

/// Writes what can be written now; answers whose rows are busy.
async fn write(
    connection: &mut Connection,
    outcomes: &[&Outcome],
    jitter: f64,
    owner: &str,
) -> Result<HashSet<Uuid>, StoreError> {
    let by_id: HashMap<Uuid, &Outcome> =
        outcomes.iter().map(|outcome| (outcome.operation, *outcome)).collect();
    let ids: Vec<Uuid> = by_id.keys().copied().collect();
    let (mut steps, mut notes): (Vec<Step>, Vec<Noted>) = (Vec::new(), Vec::new());
    let Locked { rows, busy } = batch::lock(connection, &ids).await?;
    for loaded in rows {
        let Some(Outcome { operation, ticket, report, rule }) = by_id.get(&loaded.operation.id)
        else {
            continue;
        };
        let (row, now) = (&loaded.operation, loaded.now);
        let settled = match report {
            Report::Attempt(learned) => decide(row, ticket, learned, now, rule, jitter),
            Report::Answer(purpose, evidence) => {
                answered(row, ticket, *purpose, evidence, now, rule, jitter)
            }
        };
        match settled {
            Settle::Write(step) => {
                super::tell_of_person_needed(&step, report.cause());
                steps.push(*step);
            }
            Settle::Acknowledged => {}
            Settle::LostLease => notes.push(Noted {
                operation: *operation,
                event: "lease_lost",
                epoch: ticket.token.0,
                owner: Some(owner.to_owned()),
                detail: None,
            }),
        }
    }
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    store::note(connection, notes).await?;
    Ok(busy)
}

impl Report {
    /// Whether the downstream takes our credentials; `None`: it said nothing of it.
    fn lets_in(&self) -> Option<bool> {
        match self {
            Self::Attempt(learned) => match learned {
                Learned::Denied => Some(false),
                Learned::Applied(_)
                | Learned::Already(_)
                | Learned::Refused
                | Learned::Unconfirmed(..)
                | Learned::Accepted(_) => Some(true),
                Learned::NotSent(_)
                | Learned::NotNow { .. }
                | Learned::Ambiguous(_)
                | Learned::Panicked => None,
            },
            // A question may have credentials of its own.
            Self::Answer(..) => None,
        }
    }

    /// What it proves, for the trace alone.
    fn evidence(&self) -> Option<Trace> {
        match self {
            Self::Attempt(learned) => told_by_attempt(learned),
            Self::Answer(_, evidence) => told_by_answer(evidence),
        }
    }

    /// What it came to, in a word for the log.
    fn cause(&self) -> &'static str {
        match self {
            Self::Attempt(learned) => match learned {
                Learned::NotSent(why) => why.code(),
                Learned::NotNow { .. } => "not_now",
                Learned::Denied => "downstream_denied",
                Learned::Refused => "refused",
                Learned::Applied(_) | Learned::Already(_) => "receipt",
                Learned::Unconfirmed(_, why) => why.reason().code(),
                Learned::Accepted(_) => "accepted",
                Learned::Ambiguous(why) => why.code(),
                Learned::Panicked => "tool_panicked",
            },
            Self::Answer(_, evidence) => match evidence {
                Evidence::Found(_) => "found",
                Evidence::Unconfirmed(_, why) => why.reason().code(),
                Evidence::Absent => "absent",
                Evidence::JobFailed => "job_failed",
                Evidence::JobRuns => "job_runs",
                Evidence::CannotTell(why) => why.code(),
            },
        }
    }

    /// The same without what it would keep of the answer; `None` when it keeps nothing.
    fn without_response(&self) -> Option<Self> {
        match self {
            Self::Attempt(learned) => match learned {
                Learned::Applied(effect) => Some(Learned::Applied(effect.without_response())),
                Learned::Already(effect) => Some(Learned::Already(effect.without_response())),
                Learned::Unconfirmed(effect, why) => {
                    Some(Learned::Unconfirmed(effect.without_response(), *why))
                }
                Learned::NotSent(_)
                | Learned::NotNow { .. }
                | Learned::Denied
                | Learned::Refused
                | Learned::Accepted(_)
                | Learned::Ambiguous(_)
                | Learned::Panicked => None,
            }
            .map(Self::Attempt),
            Self::Answer(purpose, evidence) => {
                evidence.without_response().map(|evidence| Self::Answer(*purpose, evidence))
            }
        }
    }
}

fn without_response(outcome: &Outcome) -> Option<Outcome> {
    let report = outcome.report.without_response()?;
    Some(Outcome { report, ..outcome.clone() })
}

async fn give_up(
    connection: &mut Connection,
    operation: Uuid,
    told: Option<Trace>,
) -> Result<HashSet<Uuid>, StoreError> {
    let Locked { rows, busy } = batch::lock(connection, &[operation]).await?;
    let steps: Vec<Step> =
        rows.iter().map(|row| unstorable(&row.operation, told.clone())).collect();
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    Ok(busy)
}
