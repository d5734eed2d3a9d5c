//! Deliveries → claim → effect → settle → ack.
//!
//! A delivery names a record, nothing more. `claim` takes the record in a batch, `effect` makes
//! one attempt, `settle` writes what it learned; only then the delivery is acked. Claims and
//! settles are micro-batches: while one transaction runs, the next batch gathers.
//!
//! What may go wrong: the connection or a channel is lost (the message comes again and finds the
//! record), the database is away (nothing is acked, everything is tried again), the process dies
//! (its leases end, and recovery decides). None of it makes a second effect.
//!
//! Absent on purpose: retries by requeue, counting of deliveries, and any decision by what the
//! message says besides the record's name.

mod alive;
mod arrived;
mod around;
mod batch;
mod claim;
mod bounds;
mod effect;
mod intake;
mod lease;
mod mark;
mod served;
mod share;
mod settle;
mod start;
mod transact;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use crate::broker::{AckHandle, Broker, BrokerSettings};
use crate::domain::json::JsonLimits;
use crate::domain::lifecycle::State;
use crate::domain::reason::Reason;
use crate::domain::step::Step;
use crate::shutdown;
use crate::store::{DatabaseUrl, StoreError};
use crate::tool::DownstreamSecret;
use claim::Claiming;
use intake::Intake;
use lease::Leases;
pub use served::Served;
use settle::Settler;
use start::Starter;

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The database.
    pub database: DatabaseUrl,
    /// The broker, on a connection for consuming alone.
    pub broker: BrokerSettings,
    /// Its name in traces; the process's start is added, so that no two starts share an identity.
    pub name: String,
    /// Effects at once in this process. Default 64.
    pub concurrency: u32,
    /// Deliveries of one claim. Default 200.
    pub batch: u32,
    /// What is kept free at the end of leases and windows. Default 5 s.
    pub margin: Duration,
    /// How long running effects may go on after a stop. Default 30 s.
    pub drain: Duration,
    /// What new downstream keys are derived with.
    pub secret: DownstreamSecret,
}

/// Runs a worker until `shutdown` says stop, then drains: consumers are cancelled, what was not
/// started goes back to its queue, running effects end, are settled and acked within `drain`.
/// Reconnects by itself, for ever. Ends by itself only when a part of it had a fault: a worker that
/// cannot settle must not go on claiming.
pub async fn run(settings: WorkerSettings, served: Served, shutdown: watch::Receiver<bool>) {
    let owner = format!("{}:{}", settings.name, Uuid::now_v7().simple());
    let served = Arc::new(served);
    let (fuse, blown) = watch::channel(false);
    let fuse = Arc::new(fuse);
    let stop = Stop { shutdown, blown };
    let leases = Leases::default();
    let (over, done) = watch::channel(false);
    let database = || settings.database.clone();
    let keeper = fused(&fuse, lease::keep(leases.clone(), database(), done.clone()));
    let alive = fused(&fuse, alive::run(database(), owner.clone(), served.versions(), done));
    let (marker, to_mark) = mpsc::channel(1024);
    let (finished, to_settle) = mpsc::channel(1024);
    let (committer, to_commit) = mpsc::channel(1024);
    let settler = Settler::new(&settings.database, leases.clone(), &owner);
    let transact = transact::run(database(), leases.clone(), to_commit, finished.clone());
    let loops = [
        ("marks", fused(&fuse, mark::run(database(), to_mark))),
        ("transactions", fused(&fuse, transact)),
        ("settler", fused(&fuse, settler.run(to_settle))),
    ];

    let starter = Starter {
        served: Arc::clone(&served),
        margin: settings.margin,
        leases,
        finished,
        marker,
        committer,
        effects: JoinSet::new(),
    };
    let claiming =
        Claiming { served, owner, secret: settings.secret.clone(), limits: JsonLimits::default() };
    let mut intake = Intake::new(&settings, claiming, starter, stop.clone());
    let broker = consume(&settings, &mut intake, stop).await;
    intake.into_starter().drain(settings.drain).await;
    // The senders are gone with the starter: each loop ends when it has done what it was given.
    for (name, task) in loops {
        match timeout(settings.drain, task).await {
            Ok(Ok(())) => debug!(name, "stopped"),
            Ok(Err(fault)) => {
                error!(name, %fault, "stopped with a fault; leases will end by themselves")
            }
            Err(_) => warn!(name, "not done in time; leases will end by themselves"),
        }
    }
    over.send_replace(true);
    for task in [keeper, alive] {
        drop(timeout(Duration::from_secs(5), task).await);
    }
    if let Some(broker) = broker {
        broker.close().await;
    }
}

/// Between the loss of a connection and the next.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Consumes until the worker stops; hands back the connection that the last acks go over.
async fn consume(settings: &WorkerSettings, intake: &mut Intake, mut stop: Stop) -> Option<Broker> {
    let mut failures = 0_u32;
    while !stop.is_asked() {
        match Broker::connect(&settings.broker).await {
            Ok(broker) => {
                failures = 0;
                info!("worker consumes");
                intake.consume(&broker).await;
                // However consuming ended, the broker is not asked again without a breath.
                drop(timeout(RECONNECT_PAUSE, stop.asked()).await);
                if stop.is_asked() {
                    return Some(broker);
                }
                broker.close().await;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                warn!(
                    error = &error as &dyn std::error::Error,
                    failures, "broker not reached; trying again"
                );
                let wait = Duration::from_millis(200).saturating_mul(failures.min(25));
                drop(timeout(wait, stop.asked()).await);
            }
        }
    }
    None
}

/// An operation that becomes unknown or parked waits for a person: the log says so where somebody
/// looks first. A write that has to be repeated says it again.
fn tell_of_person_needed(step: &Step, cause: &'static str) {
    let record = &step.record;
    let asks = match record.state {
        State::Unknown => "an effect may or may not exist; `oncebox ops show` says what to do",
        State::Parked => "an operation is set aside; `oncebox ops show` says what to do",
        State::Queued
        | State::Held
        | State::AwaitingApproval
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled
        | State::Applied
        | State::Rejected
        | State::FailedPermanent
        | State::Expired => return,
    };
    let reason = record.reason.map(Reason::code);
    warn!(operation_id = %record.id, tool = record.tool, reason, cause, "{asks}");
}

/// Whether the worker has to stop: because it was told to, or because a part of it has ended.
#[derive(Debug, Clone)]
struct Stop {
    shutdown: watch::Receiver<bool>,
    blown: watch::Receiver<bool>,
}

impl Stop {
    fn is_asked(&self) -> bool {
        shutdown::is_asked(&self.shutdown) || *self.blown.borrow()
    }

    /// Waits until it has to. Safe to drop and call again. A sender that is gone asks, too.
    async fn asked(&mut self) {
        tokio::select! {
            () = shutdown::asked(&mut self.shutdown) => {}
            _ = self.blown.wait_for(|stop| *stop) => {}
        }
    }
}

/// Runs a part of the worker whose end, by a fault above all, stops the whole.
fn fused(
    fuse: &Arc<watch::Sender<bool>>,
    part: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    struct Fuse(Arc<watch::Sender<bool>>);
    impl Drop for Fuse {
        fn drop(&mut self) {
            self.0.send_replace(true);
        }
    }
    let fuse = Fuse(Arc::clone(fuse));
    tokio::spawn(async move {
        let _fuse = fuse;
        part.await;
    })
}

/// Whether the database will refuse the same again, so that only leaving something out helps.
fn refused(error: &StoreError) -> bool {
    error.data_refused() || matches!(error, StoreError::Unreadable(_))
}

/// Acks what has been committed. A channel that is gone is no fault: the message comes again and
/// finds the record.
async fn ack_all(handles: Vec<AckHandle>) {
    for acked in AckHandle::ack_all(handles).await {
        if let Err(error) = acked {
            debug!(error = &error as &dyn std::error::Error, "not acked; the message comes again");
        }
    }
}

/// Between tries while the database cannot be claimed from.
async fn pause(failures: u32) {
    sleep(Duration::from_millis(100).saturating_mul(failures.min(20))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_has_a_fault_stops_the_worker() {
        let (fuse, blown) = watch::channel(false);
        let (fuse, (_told, shutdown)) = (Arc::new(fuse), watch::channel(false));
        let mut stop = Stop { shutdown, blown };
        let (goes_on, waits) = tokio::sync::oneshot::channel::<()>();
        let sound = fused(&fuse, async move { drop(waits.await) });
        assert!(!stop.is_asked());
        let broken = fused(&fuse, async { assert!(sample_of_a_fault(), "as ordered") });
        stop.asked().await;
        assert!(stop.is_asked() && broken.await.is_err() && !sound.is_finished());
        drop(goes_on);
    }

    fn sample_of_a_fault() -> bool {
        false
    }
}
