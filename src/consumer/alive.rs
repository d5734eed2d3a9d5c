//! Tells the others which versions this worker serves.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};
use uuid::Uuid;

use crate::domain::parking::version_arrived;
use crate::domain::step::Step;
use crate::store::{self, Connection, DatabaseUrl, Link, StoreError};

/// A row that is a minute old counts as gone: several beats may be missed before that.
const BEAT: Duration = Duration::from_secs(10);

/// Operations of one transaction that had waited for a version.
const PAGE: i64 = 500;

/// Keeps this worker's rows fresh until it stops, and sets going what was parked for want of it.
pub(super) async fn run(
    database: DatabaseUrl,
    worker: String,
    served: Vec<(String, String)>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut link = Link::new(&database, "worker alive", Duration::from_secs(10));
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beat.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => break,
        }
        let beaten = link
            .statement(async |connection| store::heartbeat(connection, &worker, &served).await)
            .await;
        if let Err(error) = beaten {
            warn!(
                error = &error as &dyn std::error::Error,
                "this worker's sign of life was not written"
            );
            continue;
        }
        // Not only once: another worker may park while this one's first sign of life is on its way.
        welcome(&mut link, &served).await;
    }
    drop(link.statement(async |connection| store::sign_off(connection, &worker).await).await);
}

/// Sets going what was parked because no worker had its version.
async fn welcome(link: &mut Link, served: &[(String, String)]) {
    loop {
        match link.transaction(async |connection| unpark(connection, served).await).await {
            Ok(0) => return,
            Ok(count) => info!(count, "operations go on that had waited for a contract version"),
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "operations that wait for a version stay parked for now"
                );
                return;
            }
        }
    }
}

async fn unpark(
    connection: &mut Connection,
    served: &[(String, String)],
) -> Result<usize, StoreError> {
    let ids: Vec<Uuid> = store::parked_for_version(connection, served, PAGE).await?;
    let locked = store::lock_free(connection, &ids).await?;
    let steps: Vec<Step> =
        locked.iter().filter_map(|loaded| version_arrived(&loaded.operation, loaded.now)).collect();
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    Ok(steps.len())
}
