//! The sent mark of blind tools: a write of its own, made when the request is built.
//!
//! Those that start in the same instant share one transaction, so that the mark costs little; none
//! waits for another's effect.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::warn;
use uuid::Uuid;

use super::batch::{self, Locked};
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
    let mut busy = Vec::new();
    loop {
        let mut asks = batch::next(&mut asked, busy, BATCH).await;
        if asks.is_empty() {
            return;
        }
        // An asker that is gone has been dropped with its effect: nothing will be sent.
        asks.retain(|ask| !ask.answer.is_closed());
        busy = answer(&mut link, asks).await;
    }
}

/// Marks and answers; hands back those whose rows are busy.
async fn answer(link: &mut Link, asks: Vec<ToMark>) -> Vec<ToMark> {
    let wanted: Vec<(Uuid, Ticket)> = asks.iter().map(|ask| (ask.operation, ask.ticket)).collect();
    let marked = link.transaction(async |connection| mark(connection, &wanted).await).await;
    let Marked { written, busy } = match marked {
        Ok(marked) => marked,
        Err(error) => {
            // Nothing may be sent without a mark that is known to stand.
            warn!(
                error = &error as &dyn std::error::Error,
                "sent marks not written; nothing is sent"
            );
            return Vec::new();
        }
    };
    let (again, done): (Vec<_>, Vec<_>) =
        asks.into_iter().partition(|ask| busy.contains(&ask.operation));
    for ask in done {
        let written = written.contains(&(ask.operation, ask.ticket.token));
        // An asker that has gone meanwhile sends nothing; its settle takes the mark back.
        ask.answer.send(written).ok();
    }
    again
}

struct Marked {
    written: Vec<(Uuid, Token)>,
    busy: HashSet<Uuid>,
}

async fn mark(
    connection: &mut store::Connection,
    asks: &[(Uuid, Ticket)],
) -> Result<Marked, StoreError> {
    let tickets: HashMap<Uuid, Ticket> = asks.iter().copied().collect();
    let ids: Vec<Uuid> = tickets.keys().copied().collect();
    let Locked { rows, busy } = batch::lock(connection, &ids).await?;
    let steps: Vec<Step> = rows
        .iter()
        .filter_map(|loaded| {
            mark_sent(&loaded.operation, tickets.get(&loaded.operation.id)?, loaded.now)
        })
        .collect();
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    let written = steps.iter().map(|step| (step.record.id, step.record.token)).collect();
    Ok(Marked { written, busy })
}
