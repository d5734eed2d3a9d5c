//! The sent mark of blind tools: a write of its own, made when the request is built.
//!
//! Those that start in the same instant share one transaction, so that the mark costs little; none
//! waits for another's effect.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::warn;
use uuid::Uuid;

use super::around::{Need, Permits};
use super::batch::{self, Locked};
use crate::domain::attempt::Denial;
use crate::domain::claim::{Marking, Ticket, mark_sent};
use crate::domain::json::Json;
use crate::domain::operation::Token;
use crate::serving::Serving;
use crate::store::{self, DatabaseUrl, Link, Loaded, StoreError};

/// Marks of one transaction, at most.
const BATCH: usize = 200;

/// One operation that is about to send.
#[derive(Debug)]
pub(super) struct ToMark {
    pub(super) operation: Uuid,
    pub(super) ticket: Ticket,
    /// What the record's contract asks of the database before a send.
    pub(super) serving: Arc<Serving>,
    /// The record's arguments.
    pub(super) arguments: Arc<Json>,
    /// Answers what became of the mark. Dropped: it is not written, or nobody knows.
    pub(super) answer: oneshot::Sender<Marked>,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marked {
    /// It is written: the first byte may go.
    Yes,
    /// The claim is not its owner's any more.
    Lost,
    /// The database says now that it may not be sent.
    Forbidden(Denial),
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
    let marked = link.transaction(async |connection| mark(connection, &asks).await).await;
    let Outcomes { marked, busy } = match marked {
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
        let became = marked.get(&(ask.operation, ask.ticket.token)).copied();
        // An asker that has gone meanwhile sends nothing; its settle takes the mark back.
        ask.answer.send(became.unwrap_or(Marked::Lost)).ok();
    }
    again
}

struct Outcomes {
    marked: HashMap<(Uuid, Token), Marked>,
    busy: HashSet<Uuid>,
}

async fn mark(connection: &mut store::Connection, asks: &[ToMark]) -> Result<Outcomes, StoreError> {
    let by_id: HashMap<Uuid, &ToMark> = asks.iter().map(|ask| (ask.operation, ask)).collect();
    let ids: Vec<Uuid> = by_id.keys().copied().collect();
    let Locked { rows, busy } = batch::lock(connection, &ids).await?;
    let pairs: Vec<(&Loaded, &ToMark)> = rows
        .iter()
        .filter_map(|loaded| Some((loaded, *by_id.get(&loaded.operation.id)?)))
        .collect();
    let needs: Vec<Need<'_>> = pairs
        .iter()
        .map(|(loaded, ask)| {
            Need::of(&ask.serving.contract.contract, &loaded.operation, &ask.arguments)
        })
        .collect();
    let permits = Permits::read(connection, &needs).await?;
    let (mut steps, mut marked) = (Vec::new(), HashMap::new());
    for ((loaded, ask), need) in pairs.iter().zip(&needs) {
        let permission = permits.permission(need, loaded.now, ask.serving.rule.margin);
        let became = match mark_sent(&loaded.operation, &ask.ticket, permission, loaded.now) {
            Marking::Write(step) => {
                // One that was marked before says nothing again.
                let says = need.asks() && !step.trace.is_empty();
                steps.push(if says { step.authorized() } else { *step });
                Marked::Yes
            }
            Marking::Lost => Marked::Lost,
            Marking::Forbidden(denial) => Marked::Forbidden(denial),
        };
        marked.insert((ask.operation, ask.ticket.token), became);
    }
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    Ok(Outcomes { marked, busy })
}
