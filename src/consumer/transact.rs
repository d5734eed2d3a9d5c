//! Transactional tools: the effect is a write to this very database, in the settling transaction.
//!
//! The record is locked under its fencing token first, and only then the effect runs, under a
//! savepoint and a time-out. Another token or state: no effect. A lost answer to the commit needs no
//! proof: the record says whether both are there or neither.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::warn;
use uuid::Uuid;

use super::around::{Need, Permits};
use super::batch::{self, Locked};
use super::lease::Leases;
use super::settle::{Finished, Outcome, Report};
use super::start::Begun;
use crate::domain::attempt::{Denial, Effect, Learned, NotSent};
use crate::domain::operation::Operation;
use crate::domain::permission::Permission;
use crate::domain::settle::commit;
use crate::store::{self, Connection, DatabaseUrl, Link, Loaded, StoreError};
use crate::tool::{ToolKind, TransactionalRefusal};

/// Effects of one transaction, at most.
const BATCH: usize = 64;

/// What one effect may take; the transaction that holds the row locks waits for it.
const EFFECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How one operation of a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Effect and settlement are written, if the transaction commits.
    Written,
    /// The claim is not ours any more: no effect.
    Lost,
    /// Somebody holds the record: no effect yet.
    Busy,
    /// The tool said no, or not now; its writes are undone.
    Undone(TransactionalRefusal),
    /// The tool panicked; its writes are undone.
    Panicked,
    /// The database says now that it may not run.
    Forbidden(Denial),
}

/// Runs transactional effects until the last asker is gone. What did not end in its effect is
/// settled like any attempt.
pub(super) async fn run(
    database: DatabaseUrl,
    leases: Leases,
    mut asked: mpsc::Receiver<Begun>,
    finished: mpsc::Sender<Finished>,
) {
    let mut link = Link::new(&database, "worker transactions", Duration::from_secs(60));
    let mut busy = Vec::new();
    loop {
        let whole = batch::next(&mut asked, busy, BATCH).await;
        if whole.is_empty() {
            return;
        }
        busy = together(&mut link, &leases, whole, &finished).await;
    }
}

/// Runs effects in one transaction. One that does not end in time undoes the others, which run again
/// without it; hands back those whose rows are busy.
async fn together(
    link: &mut Link,
    leases: &Leases,
    mut batch: Vec<Begun>,
    finished: &mpsc::Sender<Finished>,
) -> Vec<Begun> {
    loop {
        let mut late = None;
        let error = match link
            .transaction(async |connection| effects(connection, &batch, &mut late).await)
            .await
        {
            Ok(ended) => return let_go(leases, batch, &ended, finished).await,
            Err(error) => error,
        };
        warn!(
            error = &error as &dyn std::error::Error,
            "transactional effects undone; running again"
        );
        match late {
            Some(operation) if error.nothing_written() => {
                let (late, rest) =
                    batch.into_iter().partition(|one| one.call.operation_id == operation);
                let undone =
                    HashMap::from([(operation, Ended::Undone(TransactionalRefusal::Retry))]);
                let_go(leases, late, &undone, finished).await;
                batch = rest;
            }
            Some(_) | None => {
                let mut busy = Vec::new();
                for one in batch {
                    busy.extend(alone(link, leases, one, finished).await);
                }
                return busy;
            }
        }
    }
}

/// Runs one effect in a transaction of its own. An error that stays is a try that came to nothing;
/// one whose commit is unknown is read from the record.
async fn alone(
    link: &mut Link,
    leases: &Leases,
    one: Begun,
    finished: &mpsc::Sender<Finished>,
) -> Vec<Begun> {
    let one = [one];
    let ended = loop {
        let mut late = None;
        match link.transaction(async |connection| effects(connection, &one, &mut late).await).await
        {
            Ok(ended) => break ended,
            // Nothing was written, and the same would happen again at once: a try that came to
            // nothing, whose next one waits.
            Err(error)
                if matches!(error, StoreError::Deadline)
                    || (error.nothing_written() && error.sqlstate().is_some()) =>
            {
                let undone = Ended::Undone(TransactionalRefusal::Retry);
                break one.iter().map(|one| (one.call.operation_id, undone)).collect();
            }
            // Written already, or not: the same transaction finds out, since it looks at the record
            // first and a settled one is not ours to run again.
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "transactional effect not settled yet; trying again"
                );
                sleep(Duration::from_millis(200)).await;
            }
        }
    };
    let_go(leases, one.into(), &ended, finished).await
}

/// Runs what can be run now of `batch`. `late` names the effect that did not end in time, if one did
/// not: then everything is to be rolled back.
async fn effects(
    connection: &mut Connection,
    batch: &[Begun],
    late: &mut Option<Uuid>,
) -> Result<HashMap<Uuid, Ended>, StoreError> {
    let by_id: HashMap<Uuid, &Begun> =
        batch.iter().map(|one| (one.call.operation_id, one)).collect();
    let ids: Vec<Uuid> = by_id.keys().copied().collect();
    let Locked { rows, busy } = batch::lock(connection, &ids).await?;
    let mut ended: HashMap<Uuid, Ended> = ids.iter().map(|id| (*id, Ended::Lost)).collect();
    ended.extend(busy.into_iter().map(|id| (id, Ended::Busy)));
    let needs: Vec<Need<'_>> = rows
        .iter()
        .filter_map(|loaded| Some(by_id.get(&loaded.operation.id)?.need(&loaded.operation)))
        .collect();
    let permits = Permits::read(connection, &needs).await?;
    let mut steps = Vec::with_capacity(batch.len());
    for loaded in &rows {
        let Some(one) = by_id.get(&loaded.operation.id) else { continue };
        if !still_owner(loaded, one) {
            continue;
        }
        if let Some(denial) = one.forbidden(&permits, loaded) {
            ended.insert(loaded.operation.id, Ended::Forbidden(denial));
            continue;
        }
        store::savepoint(connection).await?;
        *late = Some(loaded.operation.id);
        let made = effect(connection, one).await?;
        *late = None;
        let how = match made {
            Ok(effect) => match commit(&loaded.operation, &one.ticket, &effect, loaded.now) {
                Some(step) => {
                    let asks = one.need(&loaded.operation).asks();
                    steps.push(if asks { step.authorized() } else { step });
                    Ended::Written
                }
                None => Ended::Lost,
            },
            Err(how) => how,
        };
        store::leave_savepoint(connection, how == Ended::Written).await?;
        ended.insert(loaded.operation.id, how);
    }
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    Ok(ended)
}

impl Begun {
    fn need<'a>(&'a self, record: &'a Operation) -> Need<'a> {
        Need::of(&self.serving.contract.contract, record, &self.call.arguments)
    }

    /// Why the effect may not be made now, by what this very transaction reads.
    fn forbidden(&self, permits: &Permits, loaded: &Loaded) -> Option<Denial> {
        let need = self.need(&loaded.operation);
        match permits.permission(&need, loaded.now, self.rule.margin) {
            Permission::Allowed => None,
            // It was allowed at the claim: the approval is not there any more.
            Permission::NeedsApproval => Some(Denial::ApprovalWithdrawn),
            Permission::Denied(denial) => Some(denial),
        }
    }
}

fn still_owner(loaded: &Loaded, one: &Begun) -> bool {
    let record = &loaded.operation;
    record.token == one.ticket.token && record.leased_at(loaded.now)
}

/// Runs the tool. A time-out leaves the connection in the middle of something: the whole
/// transaction is given up.
async fn effect(
    connection: &mut Connection,
    one: &Begun,
) -> Result<Result<Effect, Ended>, StoreError> {
    let ToolKind::Transactional(tool) = one.serving.tool.kind() else {
        return Ok(Err(Ended::Undone(TransactionalRefusal::Retry)));
    };
    let applied = AssertUnwindSafe(tool.apply(&one.call, connection)).catch_unwind();
    match timeout(EFFECT_TIMEOUT, applied).await {
        Ok(Ok(Ok(effect))) => Ok(Ok(effect)),
        Ok(Ok(Err(refusal))) => Ok(Err(Ended::Undone(refusal))),
        Ok(Err(_)) => Ok(Err(Ended::Panicked)),
        Err(_) => Err(StoreError::Deadline),
    }
}

/// After the commit; hands back those whose rows are busy.
async fn let_go(
    leases: &Leases,
    batch: Vec<Begun>,
    ended: &HashMap<Uuid, Ended>,
    finished: &mpsc::Sender<Finished>,
) -> Vec<Begun> {
    let (mut handles, mut busy) = (Vec::with_capacity(batch.len()), Vec::new());
    for one in batch {
        let operation = one.call.operation_id;
        let learned = match ended.get(&operation).copied().unwrap_or(Ended::Lost) {
            Ended::Written | Ended::Lost => {
                leases.release(operation, one.ticket.token.0);
                handles.push(one.handle);
                continue;
            }
            Ended::Busy => {
                busy.push(one);
                continue;
            }
            Ended::Undone(TransactionalRefusal::Refused) => Learned::Refused,
            Ended::Undone(TransactionalRefusal::Retry) => Learned::NotSent(NotSent::Tool),
            Ended::Panicked => Learned::Panicked,
            Ended::Forbidden(denial) => Learned::NotSent(NotSent::Forbidden(denial)),
        };
        let report = Report::Attempt(learned);
        let outcome = Outcome { operation, ticket: one.ticket, report, rule: one.rule };
        let settle = Finished { outcome, handle: one.handle, running: one.running };
        if finished.send(settle).await.is_err() {
            warn!(operation_id = %operation, "the settler is gone; the lease will end");
        }
    }
    super::ack_all(handles).await;
    busy
}
