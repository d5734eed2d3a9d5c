//! The flags that set settings, and the settings they lead to.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
use crate::config::{Config, Needs, Sources, Value};

/// Flags that override `oncebox.toml` and the environment.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
pub(super) struct SettingFlags {
    /// Settings file [default: oncebox.toml, if it is there]
    #[arg(long, global = true, value_name = "PATH")]
    config: Option<PathBuf>,

    /// PostgreSQL; other users of this machine can read flags, so prefer `DATABASE_URL` for a
    /// password
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,

    /// `RabbitMQ`; other users of this machine can read flags, so prefer `AMQP_URL` for a password
    #[arg(long, global = true, value_name = "URL")]
    amqp_url: Option<String>,

    /// In front of every exchange and queue name
    #[arg(long, global = true, value_name = "TEXT")]
    prefix: Option<String>,

    /// Contract file or directory; may be repeated [default: contracts, if it is there]
    #[arg(long, global = true, value_name = "PATH")]
    contracts: Vec<PathBuf>,

    /// How log lines look: text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,

    /// Any setting by its name, such as relay.window=500; may be repeated. `oncebox config` lists
    /// them
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Reads the settings of this process.
pub(super) fn load(flags: &SettingFlags, needs: Needs) -> Result<Config, Failure> {
    let sources = Sources::of_process(flags.config.as_deref(), values(flags)?)?;
    Ok(Config::load(&sources, needs)?)
}

fn values(flags: &SettingFlags) -> Result<Vec<(String, Value)>, Failure> {
    let mut values = Vec::new();
    for pair in &flags.set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::usage("--set takes KEY=VALUE, such as --set relay.window=500"));
        };
        values.push((key.to_owned(), Value::Text(value.to_owned())));
    }
    let single = [
        ("database.url", &flags.database_url),
        ("broker.url", &flags.amqp_url),
        ("broker.prefix", &flags.prefix),
        ("log.format", &flags.log_format),
    ];
    for (key, value) in single {
        values.extend(value.clone().map(|value| (key.to_owned(), Value::Text(value))));
    }
    if !flags.contracts.is_empty() {
        let mut paths = Vec::new();
        for path in &flags.contracts {
            let path = path.to_str().ok_or_else(|| {
                Failure::usage("--contracts: the path is not UTF-8; name the directory otherwise")
            })?;
            paths.push(path.to_owned());
        }
        values.push(("contracts".to_owned(), Value::List(paths)));
    }
    Ok(values)
}
