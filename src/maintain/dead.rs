//! Drains `oncebox.dead` into `dead_letters`: stored first, then acked.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::MaintainSettings;
use crate::broker::{Broker, BrokerError, DeadMessage, DeadQueue};
use crate::shutdown;
use crate::store::{self, DeadLetter, Link, letter_id};

/// How long one look waits for a dead letter; a stop is noticed in between.
const LOOK: Duration = Duration::from_secs(1);

/// Between tries, of the broker and of the database.
const AGAIN: Duration = Duration::from_secs(1);

/// Drains until `shutdown` says stop.
pub(super) async fn run(settings: MaintainSettings, mut shutdown: watch::Receiver<bool>) {
    let mut link = Link::new(&settings.database, "maintain dead letters", Duration::from_secs(20));
    while !shutdown::is_asked(&shutdown) {
        if let Err(error) = drain(&settings, &mut link, &shutdown).await {
            warn!(
                error = &error as &dyn std::error::Error,
                "dead letters not drained; trying again"
            );
            drop(timeout(AGAIN, shutdown::asked(&mut shutdown)).await);
        }
    }
}

async fn drain(
    settings: &MaintainSettings,
    link: &mut Link,
    shutdown: &watch::Receiver<bool>,
) -> Result<(), BrokerError> {
    let broker = Broker::connect(&settings.broker).await?;
    let queue = DeadQueue::open(&broker).await?;
    while !shutdown::is_asked(shutdown) {
        let Some(message) = queue.next_dead(LOOK).await? else { continue };
        let letter = letter(&message);
        info!(reason = letter.reason, "a message died in the broker; kept in dead_letters");
        // Not released on a failure: the broker would count it, and take it away in the end.
        while let Err(error) =
            link.transaction(async |c| store::bury(c, std::slice::from_ref(&letter)).await).await
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "a dead letter is not kept yet; trying again"
            );
            sleep(AGAIN).await;
            if shutdown::is_asked(shutdown) {
                break;
            }
        }
        if !shutdown::is_asked(shutdown) {
            message.ack().await?;
        }
    }
    broker.close().await;
    Ok(())
}

fn letter(message: &DeadMessage) -> DeadLetter {
    let queue = message.original_queue.clone().unwrap_or_else(|| "oncebox.dead".to_owned());
    DeadLetter {
        id: letter_id(&queue, message.message_id.as_deref(), &message.body),
        queue,
        reason: message.reason.clone().unwrap_or_else(|| "dead".to_owned()),
        body: message.body.clone(),
        headers: message.headers.to_string(),
        message_id: message.message_id.clone(),
        operation: None,
        tenant: None,
    }
}
