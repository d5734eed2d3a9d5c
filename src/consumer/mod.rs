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
mod claim;
mod effect;
mod intake;
mod lease;
mod mark;
mod served;
mod settle;
mod transact;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use crate::broker::{AckHandle, Broker, BrokerSettings};
use crate::domain::json::JsonLimits;
use crate::store::DatabaseUrl;
use crate::tool::DownstreamSecret;
use claim::Claiming;
use intake::Intake;
use lease::Leases;
pub use served::{Served, Serving};
use settle::Settler;

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
/// started goes back to its queue, running effects end and are settled within `drain`. Reconnects by
/// itself, for ever.
pub async fn run(settings: WorkerSettings, served: Served, mut shutdown: watch::Receiver<bool>) {
    let owner = format!("{}:{}", settings.name, Uuid::now_v7().simple());
    let served = Arc::new(served);
    let (stop, stopped) = watch::channel(false);
    let leases = Leases::default();
    let keeper =
        tokio::spawn(lease::keep(leases.clone(), settings.database.clone(), stopped.clone()));
    let alive = tokio::spawn(alive::run(
        settings.database.clone(),
        owner.clone(),
        served.versions(),
        stopped,
    ));
    let (marker, to_mark) = mpsc::channel(1024);
    let marks = tokio::spawn(mark::run(settings.database.clone(), to_mark));
    let (finished, to_settle) = mpsc::channel(1024);
    let settler =
        tokio::spawn(Settler::new(&settings.database, leases.clone(), &owner).run(to_settle));
    let (committer, to_commit) = mpsc::channel(1024);
    let transactions = tokio::spawn(transact::run(
        settings.database.clone(),
        leases.clone(),
        to_commit,
        finished.clone(),
    ));

    let claiming =
        Claiming { served, owner, secret: settings.secret.clone(), limits: JsonLimits::default() };
    let mut intake = Intake::new(&settings, claiming, leases, finished, marker, committer);
    let mut failures = 0_u32;
    while !*shutdown.borrow() {
        match Broker::connect(&settings.broker).await {
            Ok(broker) => {
                failures = 0;
                info!("worker consumes");
                intake.consume(&broker, &mut shutdown).await;
                broker.close().await;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                warn!(
                    error = &error as &dyn std::error::Error,
                    failures, "broker not reached; trying again"
                );
                let wait = Duration::from_millis(200).saturating_mul(failures.min(25));
                drop(timeout(wait, shutdown.changed()).await);
            }
        }
    }
    intake.drain(settings.drain).await;
    // The senders are gone with the intake: each loop ends when it has done what it was given.
    for (name, task) in [("marks", marks), ("transactions", transactions), ("settler", settler)] {
        match timeout(settings.drain, task).await {
            Ok(Ok(())) => debug!(name, "stopped"),
            Ok(Err(fault)) => {
                error!(name, %fault, "stopped with a fault; leases will end by themselves")
            }
            Err(_) => warn!(name, "not done in time; leases will end by themselves"),
        }
    }
    stop.send_replace(true);
    for task in [keeper, alive] {
        drop(timeout(Duration::from_secs(5), task).await);
    }
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
