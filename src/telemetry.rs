//! Logs: text or JSON lines on stderr.
//!
//! Field names, the same everywhere: `operation` (the operation id), `tool`, `version`, `queue`,
//! `worker`, `epoch` (the fencing token), `attempt`, `status`, `reason`, `count`, `elapsed_ms`,
//! `error` (the chain of causes, once, where it is handled).
//!
//! Never logged: arguments, responses, whole operation keys, message bodies or headers, URLs with
//! passwords, secrets. The client libraries' targets that would print them stay off whatever the
//! filter says.

use std::fmt::Write as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::broker::{QUIET_LOG_DIRECTIVE, SILENCED_LOG_TARGETS};
use crate::config::{Log, LogFormat};

/// Starts logging for this process. A second call changes nothing.
pub fn start(log: &Log) {
    let Ok(filter) = EnvFilter::try_new(silenced(&log.filter)) else { return };
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            registry.with(lines.with_ansi(colours)).try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging had been started before");
    }
}

/// The filter with what is quiet unless asked for in front, and with the targets off that print
/// message contents. The last word on a target wins, and
/// a longer target than ours cannot turn on what ours turns off: these are whole target names.
fn silenced(filter: &str) -> String {
    let mut all = format!("{QUIET_LOG_DIRECTIVE},{filter}");
    for target in SILENCED_LOG_TARGETS {
        // Writing to a String cannot fail.
        if write!(all, ",{target}=off").is_err() {
            break;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_print_messages_stay_off() {
        let check = |filter: &str| {
            let filter = EnvFilter::try_new(silenced(filter)).unwrap().to_string();
            assert!(filter.contains("lapin::returned_messages=off"), "{filter}");
        };
        check("info");
        check("");
        check("trace,lapin::returned_messages=warn");
        check("lapin=trace");
    }

    #[test]
    fn the_client_library_is_quiet_until_somebody_asks_for_it() {
        let check = |filter: &str, shown: &str| {
            let filter = EnvFilter::try_new(silenced(filter)).unwrap().to_string();
            assert!(filter.split(',').any(|directive| directive == shown), "{filter}");
        };
        check("info", "lapin=off");
        check("info,lapin=warn", "lapin=warn");
    }
}
