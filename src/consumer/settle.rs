//! Writes what attempts learned, in batches, then acks.
//!
//! A settle never skips: it is repeated until it is written or found written. A batch that the
//! database refuses is written one by one; a row that it still refuses becomes unknown, and its
//! neighbours do not notice.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{error, warn};
use uuid::Uuid;

use super::lease::Leases;
use super::served::Running;
use crate::broker::AckHandle;
use crate::domain::attempt::Learned;
use crate::domain::claim::Ticket;
use crate::domain::rule::AttemptRule;
use crate::domain::settle::{Settle, decide, unstorable};
use crate::domain::step::Step;
use crate::store::{self, Connection, DatabaseUrl, Link, Noted, StoreError};

/// Attempts of one transaction, at most.
const BATCH: usize = 500;

/// Between tries while the database cannot be written.
const AGAIN: Duration = Duration::from_millis(200);

/// An attempt that has ended, with everything that is let go of when it is settled.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) operation: Uuid,
    pub(super) ticket: Ticket,
    pub(super) learned: Learned,
    pub(super) rule: AttemptRule,
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
        let mut batch = Vec::with_capacity(BATCH);
        while finished.recv_many(&mut batch, BATCH).await > 0 {
            while !batch.is_empty() {
                let (first, rest) = one_each(std::mem::take(&mut batch));
                batch = rest;
                self.settle(first).await;
            }
        }
        self.tell_acks().await;
    }

    /// Settles attempts of different operations, until it is written.
    async fn settle(&mut self, batch: Vec<Finished>) {
        loop {
            let jitter = sample();
            let notes = self.acknowledged.clone();
            let owner = self.owner.clone();
            let written = self
                .link
                .transaction(async |connection| {
                    write(connection, &batch, jitter, &owner).await?;
                    store::note(connection, notes).await
                })
                .await;
            match written {
                Ok(()) => break,
                Err(error) if error.data_refused() => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "a settle was refused; writing one by one"
                    );
                    self.one_by_one(&batch).await;
                    break;
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
        }
        self.acknowledged.clear();
        self.let_go(batch).await;
    }

    async fn one_by_one(&mut self, batch: &[Finished]) {
        for finished in batch {
            let owner = self.owner.clone();
            let mut storable = true;
            loop {
                let jitter = sample();
                let written = self
                    .link
                    .transaction(async |connection| {
                        if storable {
                            write(connection, std::slice::from_ref(finished), jitter, &owner).await
                        } else {
                            give_up(connection, finished.operation).await
                        }
                    })
                    .await;
                match written {
                    Ok(()) => break,
                    Err(error) if storable && error.data_refused() => {
                        error!(operation_id = %finished.operation, error = &error as &dyn std::error::Error,
                            "an outcome cannot be stored; its operation is unknown");
                        storable = false;
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
    }

    /// After the commit: leases, breaker, acks.
    async fn let_go(&mut self, batch: Vec<Finished>) {
        let mut handles = Vec::with_capacity(batch.len());
        for finished in batch {
            self.leases.release(finished.operation, finished.ticket.token.0);
            match finished.learned {
                Learned::Denied => {
                    error!(operation_id = %finished.operation, "the downstream answered 401 or 403: its tool pauses; check its credentials");
                    finished.running.lane().close();
                }
                Learned::Applied(_) | Learned::Already(_) | Learned::Refused => {
                    finished.running.lane().open()
                }
                Learned::NotSent(_)
                | Learned::NotNow { .. }
                | Learned::Ambiguous(_)
                | Learned::Panicked => {}
            }
            self.acknowledged.push(Noted {
                operation: finished.operation,
                event: "acknowledged",
                epoch: finished.ticket.token.0,
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
    batch.into_iter().partition(|finished| seen.insert(finished.operation))
}

async fn write(
    connection: &mut Connection,
    batch: &[Finished],
    jitter: f64,
    owner: &str,
) -> Result<(), StoreError> {
    let by_id: HashMap<Uuid, &Finished> =
        batch.iter().map(|finished| (finished.operation, finished)).collect();
    let ids: Vec<Uuid> = by_id.keys().copied().collect();
    let (mut steps, mut notes): (Vec<Step>, Vec<Noted>) = (Vec::new(), Vec::new());
    for loaded in store::lock_all(connection, &ids).await? {
        let Some(finished) = by_id.get(&loaded.operation.id) else { continue };
        match decide(
            &loaded.operation,
            &finished.ticket,
            &finished.learned,
            loaded.now,
            &finished.rule,
            jitter,
        ) {
            Settle::Write(step) => steps.push(*step),
            Settle::Acknowledged => {}
            Settle::LostLease => notes.push(Noted {
                operation: finished.operation,
                event: "lease_lost",
                epoch: finished.ticket.token.0,
                owner: Some(owner.to_owned()),
                detail: None,
            }),
        }
    }
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    store::note(connection, notes).await
}

async fn give_up(connection: &mut Connection, operation: Uuid) -> Result<(), StoreError> {
    let locked = store::lock_all(connection, &[operation]).await?;
    let steps: Vec<Step> = locked.iter().map(|loaded| unstorable(&loaded.operation)).collect();
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await
}

/// A sample from 0 to 1 for the jitter of the next wait.
pub(super) fn sample() -> f64 {
    let random = Uuid::new_v4().as_u128() & 0xFFFF_FFFF;
    f64::from(u32::try_from(random).unwrap_or_default()) / f64::from(u32::MAX)
}
