//! Settings: strings in, a checked [`Config`] out, every problem at once.
//!
//! Sources, each overriding those before it: the defaults, `oncebox.toml`, the environment
//! (`ONCEBOX_*`, `DATABASE_URL`, `AMQP_URL`), flags. A name that nobody knows is refused with the
//! nearest known one: a misspelt setting that silently keeps its default is found in production.
//!
//! This is the only place that reads the environment, so that what a process runs with can be shown
//! ([`Config::shown`]) and secrets are masked in one place.
//!
//! Absent on purpose: numbers of a single tool (its contract has them), and settings that change
//! while a process runs.

mod gather;
mod read;
mod relations;
mod secret;
mod settings;
mod sources;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use crate::broker::{AmqpUrl, BrokerSettings};
use crate::domain::key::KeyPolicy;
use crate::store::DatabaseUrl;

pub use secret::{DownstreamSecrets, contract_secret};
pub use settings::{SETTINGS, Setting};
pub use sources::{Sources, Value};

/// What one process runs with. Every number has been checked against its bounds and the others.
#[derive(Clone, Debug)]
pub struct Config {
    /// PostgreSQL.
    pub database: Database,
    /// RabbitMQ.
    pub broker: Broker,
    /// Contract files, or directories of them.
    pub contracts: Vec<PathBuf>,
    /// Secrets that keys towards downstreams are derived with. Role worker needs them.
    pub downstream_secret: Option<DownstreamSecrets>,
    /// Role worker.
    pub worker: Worker,
    /// Role relay.
    pub relay: Relay,
    /// Role maintain.
    pub maintain: Maintain,
    /// Operation keys.
    pub key: Key,
    /// Logs.
    pub log: Log,
    shown: Vec<Shown>,
}

/// How to reach PostgreSQL.
#[derive(Clone, Debug)]
pub struct Database {
    /// The main connections; may lead through a transaction pooler. Empty where the verb needs no
    /// database and none is set.
    pub url: DatabaseUrl,
    /// Straight to the server, for `LISTEN`. `None`: relays poll.
    pub listen_url: Option<DatabaseUrl>,
}

/// How to reach RabbitMQ, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Where, and as whom. Empty where the verb needs no broker and none is set.
    pub url: AmqpUrl,
    /// In front of every exchange and queue name.
    pub prefix: String,
    /// A silent peer is given up after twice this long.
    pub heartbeat: Duration,
    /// Deadline for connecting and for the answer to every request.
    pub connect_timeout: Duration,
    /// Deadline for all confirms of one published batch.
    pub confirm_timeout: Duration,
}

/// Role worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// What this worker calls itself in records and traces; otherwise host and process.
    pub name: Option<String>,
    /// Effects at once in this process.
    pub concurrency: u32,
    /// Deliveries claimed or settled in one transaction, at most.
    pub batch: u32,
    /// Kept free at the end of leases and windows for a clock that jumps in a fail-over.
    pub margin: Duration,
    /// How long a frozen worker, or a request that nobody answered, may still make an effect.
    pub stall_margin: Duration,
    /// How long running effects may go on after SIGTERM.
    pub drain: Duration,
}

/// Role relay.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Messages of one queue ahead of its consumers; the backlog beyond waits in PostgreSQL.
    pub window: u32,
    /// Rows taken and published at once.
    pub batch: u32,
    /// Longest sleep of an idle relay that nothing wakes.
    pub poll: Duration,
    /// How long taken rows are this relay's; outlasts a batch's confirms.
    pub lease: Duration,
    /// Batches that wait for confirms at once.
    pub publishers: u32,
}

/// Role maintain.
#[derive(Clone, Debug)]
pub struct Maintain {
    /// Time between two passes.
    pub every: Duration,
    /// Records looked at in one pass.
    pub page: u32,
}

/// Operation keys.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Let key parts hold e-mail addresses.
    pub allow_email: bool,
}

/// Logs.
#[derive(Clone, Debug)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// What is logged, in the words of `tracing_subscriber::EnvFilter`.
    pub filter: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Which roles a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Outbox rows go to the broker.
    pub relay: bool,
    /// Deliveries become effects.
    pub worker: bool,
    /// What nobody works on is found and published again.
    pub maintain: bool,
}

/// What a verb cannot do without.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// `DATABASE_URL`.
    pub database: bool,
    /// `AMQP_URL`.
    pub broker: bool,
    /// `ONCEBOX_DOWNSTREAM_SECRET`.
    pub downstream_secret: bool,
}

/// One effective setting, fit to be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name in `oncebox.toml`.
    pub key: &'static str,
    /// Its name in the environment.
    pub environment: &'static str,
    /// Its value, secrets masked; empty when it is not set.
    pub value: String,
    /// Where the value comes from.
    pub source: String,
}

/// Everything that is wrong with the settings; never empty. No value of a secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigErrors(pub Vec<String>);

impl Config {
    /// Reads and checks the settings.
    ///
    /// # Errors
    /// Everything that is wrong, one line a problem, each with what to write instead.
    pub fn load(sources: &Sources, needs: Needs) -> Result<Self, ConfigErrors> {
        read::config(sources, needs)
    }

    /// The effective settings in the order of the documentation, secrets masked.
    #[must_use]
    pub fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// How to reach the broker as `name`.
    #[must_use]
    pub fn broker_settings(&self, name: &str) -> BrokerSettings {
        BrokerSettings {
            url: self.broker.url.clone(),
            prefix: self.broker.prefix.clone(),
            connect_timeout: self.broker.connect_timeout,
            heartbeat: self.broker.heartbeat,
            confirm_timeout: self.broker.confirm_timeout,
            name: name.to_owned(),
        }
    }

    /// What this deployment asks of the parts of an operation key.
    #[must_use]
    pub fn key_policy(&self) -> KeyPolicy {
        KeyPolicy { refuse_email: !self.key.allow_email }
    }
}
