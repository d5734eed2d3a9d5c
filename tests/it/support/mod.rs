//! What the tests stand on: a database and a broker prefix each, the fake downstream as a process of
//! its own with its own counter, and oncebox in the test's process or as the real binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

pub(crate) mod contracts;
pub(crate) mod cutter;
pub(crate) mod doors;
pub(crate) mod downstream;
pub(crate) mod history;
pub(crate) mod history_check;
pub(crate) mod login;
pub(crate) mod management;
pub(crate) mod mute;
pub(crate) mod process;
pub(crate) mod servers;
pub(crate) mod wire;
pub(crate) mod world;

use std::time::{Duration, Instant};

/// Waits until `check` answers something, looking again every few milliseconds. Fails the test after
/// `seconds`.
pub(crate) async fn eventually<T>(
    what: &str,
    seconds: u64,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The value of an environment variable that `make test` sets.
pub(crate) fn environment(name: &str) -> String {
    #[allow(clippy::disallowed_methods, reason = "tests are told where their services are")]
    let value = std::env::var(name);
    value.unwrap_or_else(|_| panic!("{name} is not set: run the tests with `make test`"))
}

/// Shows what the product logs when a test is run with `RUST_LOG` and `--no-capture`.
pub(crate) fn logs() {
    let filter =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init().ok();
}
