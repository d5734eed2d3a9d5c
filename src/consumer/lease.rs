//! Leases of the operations that run here: extended while they run, given up by our own clock.
//!
//! The database's clock judges a lease. Ours may only make us stop sooner: a lease is counted here
//! from before its claim, or its renewal, was sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::store::{self, DatabaseUrl, Link};

/// How often leases are looked at; renewal begins when a third of one has passed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A claim as its effect sees it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    operation: Uuid,
    /// When the lease ends, at the latest by our clock; moves with each renewal.
    ends: watch::Receiver<Instant>,
    /// Turns true when the row was read with another token.
    lost: watch::Receiver<bool>,
}

impl Held {
    pub(super) fn operation(&self) -> Uuid {
        self.operation
    }

    pub(super) fn ends(&self) -> Instant {
        *self.ends.borrow()
    }

    /// Waits until the claim is certainly lost, or its lease has run out by our own clock. For
    /// ever, when it is given back first.
    pub(super) async fn over(&mut self) {
        loop {
            let ends = *self.ends.borrow_and_update();
            let given_back = tokio::select! {
                biased;
                lost = self.lost.wait_for(|lost| *lost) => if lost.is_ok() { return } else { true },
                moved = self.ends.changed() => moved.is_err(),
                () = sleep_until(ends) => false,
            };
            if given_back && !*self.lost.borrow() {
                std::future::pending::<()>().await;
            }
            if Instant::now() >= self.ends() {
                return;
            }
        }
    }
}

#[derive(Debug)]
struct Claim {
    token: i64,
    lease: Duration,
    ends: watch::Sender<Instant>,
    lost: watch::Sender<bool>,
}

/// All claims of this worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases(Arc<Mutex<HashMap<Uuid, Claim>>>);

impl Leases {
    /// Holds a claim that was sent at `asked`.
    pub(super) fn hold(
        &self,
        operation: Uuid,
        token: i64,
        lease: Duration,
        asked: Instant,
    ) -> Held {
        let (ends, seen_ends) = watch::channel(asked + lease);
        let (lost, seen_lost) = watch::channel(false);
        // A claim that stood here had run out, and was taken again by this very worker.
        if let Some(earlier) = self.claims().insert(operation, Claim { token, lease, ends, lost }) {
            earlier.lost.send_replace(true);
        }
        Held { operation, ends: seen_ends, lost: seen_lost }
    }

    /// Lets go of a claim that has been settled, unless a newer one stands in its place.
    pub(super) fn release(&self, operation: Uuid, token: i64) {
        let mut claims = self.claims();
        if claims.get(&operation).is_some_and(|claim| claim.token == token) {
            claims.remove(&operation);
        }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Uuid, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those whose lease has run for a third, by the length of their leases.
    fn to_renew(&self) -> HashMap<Duration, Vec<(Uuid, i64)>> {
        let now = Instant::now();
        let mut due: HashMap<Duration, Vec<(Uuid, i64)>> = HashMap::new();
        for (operation, claim) in self.claims().iter() {
            let left = claim.ends.borrow().saturating_duration_since(now);
            if left < claim.lease * 2 / 3 && !*claim.lost.borrow() {
                due.entry(claim.lease).or_default().push((*operation, claim.token));
            }
        }
        due
    }

    fn renewed(&self, claims: &[(Uuid, i64)], asked: Instant) {
        for (operation, token) in claims {
            if let Some(claim) = self.claims().get(operation).filter(|claim| claim.token == *token)
            {
                claim.ends.send_replace(asked + claim.lease);
            }
        }
    }

    fn lose(&self, operations: &[Uuid]) {
        for operation in operations {
            if let Some(claim) = self.claims().get(operation) {
                claim.lost.send_replace(true);
            }
        }
    }
}

/// Extends leases until `shutdown` closes (the last effect has been settled by then).
pub(super) async fn keep(
    leases: Leases,
    database: DatabaseUrl,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut link = Link::new(&database, "worker leases", Duration::from_secs(5));
    let mut tick = interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        for (lease, claims) in leases.to_renew() {
            let asked = Instant::now();
            let renewed = link
                .statement(async |connection| store::renew(connection, &claims, lease).await)
                .await;
            let renewed = match renewed {
                Ok(renewed) => renewed,
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "leases not renewed; trying again"
                    );
                    continue;
                }
            };
            let (kept, missed): (Vec<_>, Vec<_>) =
                claims.into_iter().partition(|(id, _)| renewed.contains(id));
            leases.renewed(&kept, asked);
            if missed.is_empty() {
                continue;
            }
            // Not renewed is not lost: the row may be locked just now. Lost is a row read with
            // another token.
            match link.statement(async |connection| store::lost(connection, &missed).await).await {
                Ok(lost) => leases.lose(&lost),
                Err(error) => {
                    debug!(error = &error as &dyn std::error::Error, "leases not looked at")
                }
            }
        }
    }
}
