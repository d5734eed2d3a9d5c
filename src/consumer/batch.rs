//! Gathering of batches: what has come while the last one was written goes together.
//!
//! A row that somebody else holds locked stays behind and is asked for again with the next batch,
//! so that it delays nobody.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::store::{self, Connection, Loaded, StoreError};

/// How soon a busy row is asked for again.
pub(super) const BUSY_AGAIN: Duration = Duration::from_millis(50);

/// How long a message is put off whose row stays busy.
pub(super) const BUSY_LATER: Duration = Duration::from_secs(1);

/// How long a message is put off whose tool all processes together have filled.
pub(super) const FULL_LATER: Duration = Duration::from_secs(5);

/// The next batch: `busy` and what has come since, waited for. Empty: the last sender is gone and
/// nothing is left.
pub(super) async fn next<T>(from: &mut mpsc::Receiver<T>, mut busy: Vec<T>, most: usize) -> Vec<T> {
    if busy.is_empty() {
        from.recv_many(&mut busy, most).await;
    } else if let Ok(0) = timeout(BUSY_AGAIN, from.recv_many(&mut busy, most)).await {
        sleep(BUSY_AGAIN).await;
    }
    busy
}

/// What could be locked of a batch, and what could not because somebody holds it. An id in neither
/// has no record.
pub(super) struct Locked {
    pub(super) rows: Vec<Loaded>,
    pub(super) busy: HashSet<Uuid>,
}

/// Locks what can be locked now of `ids`.
pub(super) async fn lock(connection: &mut Connection, ids: &[Uuid]) -> Result<Locked, StoreError> {
    let rows = store::lock_now(connection, ids).await?;
    let locked: HashSet<Uuid> = rows.iter().map(|loaded| loaded.operation.id).collect();
    let missing: Vec<Uuid> = ids.iter().filter(|id| !locked.contains(id)).copied().collect();
    if missing.is_empty() {
        return Ok(Locked { rows, busy: HashSet::new() });
    }
    let busy = store::existing(connection, &missing).await?;
    Ok(Locked { rows, busy })
}
