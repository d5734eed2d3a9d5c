//! The command line: one file a verb.
//!
//! Results go to stdout, tables for people or one JSON object a line with `--json`; everything else
//! goes to stderr. Exit codes: 0 done, 1 a verdict or a check failed, 2 usage or configuration.
//!
//! Verbs that act on a record lock it, decide in [`crate::domain::verbs`] and write in one
//! transaction, like every other step. Arguments, responses and message bodies are printed only
//! when a flag asks for them.

mod arguments;
mod failure;
mod output;
mod progress;
mod record;
mod settings;

mod migrate;
mod run;
mod submit;
mod ops;
mod grants;
mod dead;
mod republish;
mod contract;
mod config;
mod doctor;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::FromArgMatches as _;

use crate::config::{Config, Log};
use crate::store::Link;
use arguments::{Arguments, Verb};
use failure::Failure;
use output::Output;

/// Longest transaction of a verb; lock waits inside end earlier.
const DEADLINE: Duration = Duration::from_secs(35);

/// What a verb works with.
struct Context {
    config: Config,
    output: Output,
}

impl Context {
    /// A connection to the database for one verb.
    fn link(&self) -> Link {
        Link::new(&self.config.database.url, "operator", DEADLINE)
    }
}

/// Runs the command that `arguments` name, the program's own name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let read = arguments::command().try_get_matches_from(arguments);
    let arguments = match read.and_then(|read| Arguments::from_arg_matches(&read)) {
        Ok(arguments) => arguments,
        Err(error) => return arguments::explain(&error),
    };
    let ended = command(arguments);
    if let Err(failure) = &ended {
        failure.print();
    }
    ExitCode::from(ended.map_or_else(|failure| failure.code(), |()| 0))
}

fn command(arguments: Arguments) -> Result<(), Failure> {
    let needs = arguments.verb.needs();
    let config = settings::load(&arguments.settings, needs)?;
    let output = Output::new(arguments.json);
    crate::telemetry::start(&log_of(&arguments.verb, &config));
    let context = Context { config, output };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    runtime.block_on(perform(&context, arguments.verb))
}

async fn perform(context: &Context, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Migrate => migrate::run(context).await,
        Verb::Run(asked) => run::run(context, &asked).await,
        Verb::Submit(asked) => submit::run(context, &asked).await,
        Verb::Ops(asked) => ops::run(context, asked).await,
        Verb::Grants(asked) => grants::run(context, asked).await,
        Verb::Dead(asked) => dead::run(context, asked).await,
        Verb::Republish => republish::run(context).await,
        Verb::Contract(asked) => contract::run(context, asked).await,
        Verb::Config => failure::seen_enough(config::run(context)),
        Verb::Doctor => doctor::run(context).await,
    }
}

/// Roles log as they are told to; a verb that a person waits for tells of errors only, unless the
/// filter was set.
fn log_of(verb: &Verb, config: &Config) -> Log {
    let untouched =
        config.shown().iter().any(|shown| shown.key == "log.filter" && shown.source == "default");
    if untouched && !matches!(verb, Verb::Run(_)) {
        return Log { format: config.log.format, filter: "oncebox=warn".to_owned() };
    }
    config.log.clone()
}
