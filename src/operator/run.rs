//! `oncebox run`

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::Context;
use super::failure::{Failure, chain, what_to_do};
use crate::config::{Needs, Roles};
use crate::runtime::{self, RuntimeError, RustTools};

/// Run roles until SIGTERM or SIGINT, then stop taking work, finish or release claims within
/// worker.drain, acknowledge, and close.
///
/// Any number of processes may run any roles; none is a leader.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox run\n  oncebox run --role relay,maintain\n  oncebox run --role worker --set worker.concurrency=16"
)]
pub(super) struct RunFlags {
    /// Roles, separated by commas: relay (outbox to broker), worker (deliveries to effects; needs
    /// contracts and `ONCEBOX_DOWNSTREAM_SECRET`), maintain (finds what nobody works on)
    #[arg(long, value_enum, value_delimiter = ',', default_value = "relay,worker,maintain")]
    role: Vec<Role>,
}

/// A role by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// HTTP; comes with a later release
    Api,
    /// Outbox rows go to the broker
    Relay,
    /// Deliveries become effects
    Worker,
    /// What nobody works on is published again
    Maintain,
}

impl RunFlags {
    fn roles(&self) -> Roles {
        let named = |role| self.role.contains(&role);
        Roles {
            relay: named(Role::Relay),
            worker: named(Role::Worker),
            maintain: named(Role::Maintain),
        }
    }

    pub(super) fn needs(&self) -> Needs {
        Needs { database: true, broker: true, downstream_secret: self.roles().worker }
    }
}

pub(super) async fn run(context: &Context, flags: &RunFlags) -> Result<(), Failure> {
    if flags.role.contains(&Role::Api) {
        return Err(Failure::usage(
            "role api comes with a later release; name relay, worker and maintain only",
        ));
    }
    let shutdown = stop_signal().map_err(|error| {
        Failure::failed(format!("signals cannot be received: {error}; check the process limits"))
    })?;
    runtime::run(context.config.clone(), flags.roles(), RustTools::default(), shutdown)
        .await
        .map_err(refused)
}

fn refused(error: RuntimeError) -> Failure {
    match error {
        RuntimeError::Store(error) => Failure::failed(format!(
            "the contracts cannot be registered: {}; {}",
            chain(&error),
            what_to_do(&error)
        )),
        RuntimeError::NoSecret | RuntimeError::NothingToServe => Failure::usage(chain(&error)),
        RuntimeError::Broker(_) | RuntimeError::Tls | RuntimeError::Fault => {
            Failure::failed(chain(&error))
        }
    }
}

/// Turns true at the first SIGTERM or SIGINT. A second one ends the process at once: claims then
/// run out by themselves.
fn stop_signal() -> std::io::Result<watch::Receiver<bool>> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, shutdown) = watch::channel(false);
    tokio::spawn(async move {
        for exit in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if exit {
                tracing::warn!("a second signal: stopping at once, claims will run out");
                std::process::exit(1);
            }
            tracing::info!("stopping: no new work is taken");
            stop.send_replace(true);
        }
    });
    Ok(shutdown)
}
