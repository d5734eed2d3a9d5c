//! The arguments: every verb with its flags.

use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory as _, Parser, Subcommand};
use uuid::Uuid;

use super::contract::ContractVerb;
use super::dead::DeadVerb;
use super::failure::say;
use super::grants::GrantsVerb;
use super::ops::OpsVerb;
use super::run::RunFlags;
use super::settings::SettingFlags;
use super::submit::SubmitFlags;
use crate::config::Needs;

/// One business effect per operation, or an honest "unknown".
///
/// Settings come from oncebox.toml, overridden by ONCEBOX_* variables, `DATABASE_URL` and
/// `AMQP_URL`, overridden by flags; `oncebox config` prints what holds. Results go to stdout,
/// everything else to stderr. Exit codes: 0 done, 1 a verdict or a check failed, 2 usage or
/// configuration. Durations are a whole number and ms, s, m, h or d.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, propagate_version = true, disable_help_subcommand = true)]
pub(super) struct Arguments {
    /// One JSON object a line instead of tables
    #[arg(long, global = true)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) settings: SettingFlags,

    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Apply the database migrations that are missing
    ///
    /// Idempotent, and safe to run from several processes at once and while workers run. Prints
    /// every version. Needs the right to create schema oncebox; creates the role
    /// `oncebox_publisher` where it may, else prints the statement to run.
    Migrate,
    Run(RunFlags),
    Submit(SubmitFlags),
    /// Look at operations, and act on them
    #[command(subcommand)]
    Ops(OpsVerb),
    /// Give, list and revoke grants: who may send a tool's operations
    #[command(subcommand)]
    Grants(GrantsVerb),
    /// Look at parked messages, and deal with them
    #[command(subcommand)]
    Dead(DeadVerb),
    /// Publish again whatever is due, after a broker lost its messages
    ///
    /// Writes an outbox row for every operation that is due, in no worker's hands and without one.
    /// Safe at any time: a message that comes twice makes no second effect. Prints the number.
    Republish,
    /// Check, describe and activate contract files
    #[command(subcommand)]
    Contract(ContractVerb),
    /// Print the effective settings, secrets masked
    Config,
    /// Check everything oncebox relies on, and say what to fix
    ///
    /// Connections, server versions, permissions, schema, poolers, contract registry, broker
    /// topology, clocks, and what waits for an operator. Changes nothing. Exit code 1 when a check
    /// fails; warnings alone leave it 0.
    Doctor,
}

impl Verb {
    /// What this verb cannot do without.
    pub(super) fn needs(&self) -> Needs {
        let database = Needs { database: true, ..Needs::default() };
        match self {
            Self::Migrate
            | Self::Submit(_)
            | Self::Ops(_)
            | Self::Grants(_)
            | Self::Dead(_)
            | Self::Republish => database,
            Self::Run(flags) => flags.needs(),
            Self::Contract(verb) => verb.needs(),
            Self::Config => Needs::default(),
            Self::Doctor => Needs { broker: true, ..database },
        }
    }
}

/// Reads the id of a parked message.
pub(super) fn letter_id(text: &str) -> Result<Uuid, &'static str> {
    Uuid::try_parse(text).map_err(|_| "not a letter's id; `oncebox dead list` prints them")
}

/// Reads the id of an operation.
pub(super) fn operation_id(text: &str) -> Result<Uuid, &'static str> {
    Uuid::try_parse(text).map_err(|_| "not an operation's id; `oncebox ops list` prints them")
}

/// Reads how many rows a list may have.
pub(super) fn limit(text: &str) -> Result<u32, &'static str> {
    let told = "a whole number from 1 to 10000 is needed";
    text.parse().ok().filter(|limit| (1..=10_000).contains(limit)).ok_or(told)
}

/// The command as people see it: its help is written as documentation, whose marks a terminal would
/// show.
pub(super) fn command() -> Command {
    unmarked(Arguments::command())
}

fn unmarked(mut command: Command) -> Command {
    let about = command.get_about().map(plain);
    let long_about = command.get_long_about().map(plain);
    if let Some(about) = about {
        command = command.about(about);
    }
    if let Some(about) = long_about {
        command = command.long_about(about);
    }
    let argument = |argument: Arg| {
        let (help, long) = (argument.get_help().map(plain), argument.get_long_help().map(plain));
        let argument = match help {
            Some(help) => argument.help(help),
            None => argument,
        };
        match long {
            Some(long) => argument.long_help(long),
            None => argument,
        }
    };
    command.mut_args(argument).mut_subcommands(unmarked)
}

/// Names lose their marks; what has several words keeps quotes, as it would be unclear where it ends.
fn plain(marked: &StyledStr) -> String {
    let marked = marked.to_string();
    let mut text = String::new();
    for (number, part) in marked.split('`').enumerate() {
        let quote = if number % 2 == 1 && part.contains(' ') { "'" } else { "" };
        text.push_str(quote);
        text.push_str(part);
        text.push_str(quote);
    }
    text
}

/// Prints help to stdout, or what is wrong on one line to stderr.
pub(super) fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Whoever does not read on has seen enough.
            drop(error.print());
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say("a verb is missing; `oncebox --help` lists them");
            ExitCode::from(2)
        }
        _ => {
            let text = error.to_string();
            let told = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
            let told: Vec<&str> = told.filter(|line| !line.is_empty()).collect();
            let told = told.join(" ");
            let told = told.strip_prefix("error: ").unwrap_or(&told);
            let told = told.replace(" For more information, try '--help'.", "");
            say(&format!("{told}; --help after the verb explains it"));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, ErrorKind> {
        let words = std::iter::once("oncebox").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_verb_of_the_surface_is_understood() {
        let id = "0190a6f0-0000-7000-8000-000000000000";
        for line in [
            "migrate",
            "run",
            "run --role relay,worker,maintain",
            "submit --file ops.ndjson",
            "submit --file -",
            "ops list --status unknown --limit 3",
            "ops show acme:prod:run:step",
            "ops wait acme:prod:run:step --timeout 5s",
            "ops retry acme:prod:run:step",
            "ops retry acme:prod:run:step --reopen --by ann --reason fixed",
            "ops release acme:prod:run:step --by ann",
            "ops resolve acme:prod:run:step --applied T-1 --by ann --reason seen",
            "ops resolve acme:prod:run:step --not-applied --by ann --reason seen",
            "ops resolve acme:prod:run:step --compensated --by ann --reason seen",
            "ops list --overdue --tenant acme",
            "ops approve acme:prod:run:step --fingerprint f --by ann",
            "ops deny acme:prod:run:step --fingerprint f --by ann --reason no",
            "ops withdraw acme:prod:run:step --by ann --reason no",
            "grants add --tenant acme --actor a --tool t --where {} --by ann",
            "grants add --tenant acme --actor a --tool t --from 2027-01-01T00:00:00Z --until 2028-01-01T00:00:00Z --by ann",
            "grants list --tenant acme --actor a --tool t --all",
            "grants revoke 0190a6f0-0000-7000-8000-000000000000 --by ann",
            "dead list --all",
            "republish --json",
            "contract check a.yaml b.yaml",
            "contract check --trace acme:prod:run:step --json",
            "contract describe a.yaml --format mcp",
            "contract describe --format schema",
            "contract activate a.yaml",
            "config --set relay.window=3",
            "doctor --database-url postgres://h/db",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
        for verb in ["show", "requeue", "discard"] {
            let by = if verb == "show" { "" } else { "--by ann --reason seen" };
            assert!(parse(&format!("dead {verb} {id} {by}")).is_ok(), "{verb}");
        }
    }

    #[test]
    fn help_shows_no_marks_of_its_source() {
        fn check(command: &Command) {
            let help = command.clone().render_long_help().to_string();
            assert!(!help.contains('`'), "{help}");
            command.get_subcommands().for_each(check);
        }
        check(&command());
        let marked = StyledStr::from("see `A_B` and `oncebox config`");
        assert_eq!(plain(&marked), "see A_B and 'oncebox config'");
    }

    #[test]
    fn half_a_decision_is_refused() {
        for line in [
            "",
            "ops",
            "ops resolve k --by ann --reason why",
            "ops resolve k --applied T-1 --not-applied --by ann --reason why",
            "ops resolve k --applied T-1 --reason why",
            "ops resolve k --applied T-1 --by ann",
            "ops retry k --reopen --by ann",
            "ops list --status done",
            "ops list --overdue --before 0190a6f0-0000-7000-8000-000000000000",
            "ops approve k --by ann",
            "ops deny k --fingerprint f --by ann",
            "ops withdraw k --reason no",
            "grants add --tenant acme --tool t --by ann",
            "grants add --tenant acme --actor a --tool t --until tomorrow --by ann",
            "grants revoke 7 --by ann",
            "ops wait k --timeout soon",
            "dead show not-a-uuid",
            "contract check",
            "contract describe a.yaml --format xml",
            "run --role king",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_says_what_is_needed() {
        for (line, told) in [
            ("dead show 7", "not a letter's id; `oncebox dead list` prints them"),
            ("dead requeue 7 --by ann", "not a letter's id"),
            ("dead discard 7 --by ann", "not a letter's id"),
            ("ops list --before 7", "not an operation's id"),
            ("ops list --limit abc", "a whole number from 1 to 10000"),
            ("dead list --limit 0", "a whole number from 1 to 10000"),
            ("submit --chunk abc", "a whole number from 1 to 5000"),
        ] {
            let words = std::iter::once("oncebox").chain(line.split_whitespace());
            let error = Arguments::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
    }

    #[test]
    fn every_verb_and_flag_is_explained() {
        fn check(command: &clap::Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} has no help");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path} {} has no help", argument.get_id());
            }
            let takes_own = command.get_arguments().any(|argument| {
                !argument.is_global_set()
                    && !["help", "version"].contains(&argument.get_id().as_str())
            });
            let leaf = command.get_subcommands().next().is_none();
            assert!(
                !leaf || !takes_own || command.get_after_help().is_some(),
                "{path} has no example"
            );
            for verb in command.get_subcommands() {
                check(verb, &format!("{path} {}", verb.get_name()));
            }
        }
        check(&Arguments::command(), "oncebox");
    }
}
