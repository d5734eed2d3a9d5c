//! The sent mark of blind tools: a write of its own, made when the request is built.
//!
//! Those that start in the same instant share one transaction, so that the mark costs little; none
//! waits for another's effect.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::warn;
use uuid::Uuid;

use crate::domain::claim::{Ticket, mark_sent};
use crate::domain::operation::Token;
use crate::domain::step::Step;
use crate::store::{self, DatabaseUrl, Link, StoreError};

/// Marks of one transaction, at most.
const BATCH: usize = 200;

/// One operation that is about to send.
#[derive(Debug)]
pub(super) struct ToMark {
    pub(super) operation: Uuid,
    pub(super) ticket: Ticket,
    /// Answers whether the mark is written. Dropped: it is not, or nobody knows.
    pub(super) answer: oneshot::Sender<bool>,
}

/// Writes marks until the last asker is gone.
pub(super) async fn run(database: DatabaseUrl, mut asked: mpsc::Receiver<ToMark>) {
    let mut link = Link::new(&database, "worker marks", Duration::from_secs(10));
    let mut batch = Vec::with_capacity(BATCH);
    while asked.recv_many(&mut batch, BATCH).await > 0 {
        let asks: Vec<(Uuid, Ticket)> =
            batch.iter().map(|ask| (ask.operation, ask.ticket)).collect();
        match link.transaction(async |connection| mark(connection, &asks).await).await {
            Ok(marked) => {
                for ask in batch.drain(..) {
                    let written = marked.contains(&(ask.operation, ask.ticket.token));
                    // An asker that is gone has been dropped with its effect: nothing was sent.
                    ask.answer.send(written).ok();
                }
            }
            Err(error) => {
                // Nothing may be sent without a mark that is known to stand.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "sent marks not written; nothing is sent"
                );
                batch.clear();
            }
        }
    }
}

async fn mark(
    connection: &mut store::Connection,
    asks: &[(Uuid, Ticket)],
) -> Result<Vec<(Uuid, Token)>, StoreError> {
    let tickets: HashMap<Uuid, Ticket> = asks.iter().copied().collect();
    let ids: Vec<Uuid> = tickets.keys().copied().collect();
    let locked = store::lock_all(connection, &ids).await?;
    let steps: Vec<Step> = locked
        .iter()
        .filter_map(|loaded| {
            mark_sent(&loaded.operation, tickets.get(&loaded.operation.id)?, loaded.now)
        })
        .collect();
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    Ok(steps.iter().map(|step| (step.record.id, step.record.token)).collect())
}
