//! What settings must be to each other.

use super::Config;
use crate::domain::contract::duration_text;

/// A relation that does not hold: the settings it is between, and what to do.
pub(super) struct Broken {
    pub(super) between: &'static [&'static str],
    pub(super) message: String,
}

/// Every relation that does not hold.
pub(super) fn broken(config: &Config) -> Vec<Broken> {
    let (broker, relay, worker) = (&config.broker, &config.relay, &config.worker);
    let busy = broker.confirm_timeout.saturating_add(worker.margin);
    let relations = [
        (
            relay.lease <= busy,
            &["relay.lease", "broker.confirm_timeout", "worker.margin"][..],
            format!(
                "relay.lease ({}) must be longer than broker.confirm_timeout + worker.margin ({}), or a second relay publishes rows whose confirms are still awaited; set it to {} or more",
                duration_text(relay.lease),
                duration_text(busy),
                duration_text(busy.saturating_add(std::time::Duration::from_secs(1))),
            ),
        ),
        (
            relay.batch > relay.window,
            &["relay.batch", "relay.window"],
            format!(
                "relay.batch ({}) must not be above relay.window ({}): more is never published at once",
                relay.batch, relay.window
            ),
        ),
        (
            relay.poll >= relay.lease,
            &["relay.poll", "relay.lease"],
            format!(
                "relay.poll ({}) must be shorter than relay.lease ({}), or rows of a relay that died wait a poll longer",
                duration_text(relay.poll),
                duration_text(relay.lease)
            ),
        ),
        (
            worker.drain < worker.margin,
            &["worker.drain", "worker.margin"],
            format!(
                "worker.drain ({}) must not be shorter than worker.margin ({}), or every stop leaves claims to run out",
                duration_text(worker.drain),
                duration_text(worker.margin)
            ),
        ),
    ];
    let broken = relations.into_iter().filter(|(broken, _, _)| *broken);
    broken.map(|(_, between, message)| Broken { between, message }).collect()
}
