//! Why a verb did not end well: one line, with what to do, and an exit code.

use std::error::Error;
use std::io::Write as _;

use crate::config::ConfigErrors;
use crate::store::{StoreError, server_message};

/// Why a verb did not end well.
#[derive(Debug)]
pub(super) enum Failure {
    /// The command or the settings are wrong: exit code 2. One line each.
    Usage(Vec<String>),
    /// A verdict or a check failed: exit code 1.
    Failed(String),
    /// The same, and stdout has said why.
    Told,
    /// Nobody reads our output any more.
    Unread,
}

impl Failure {
    pub(super) fn usage(line: impl Into<String>) -> Self {
        Self::Usage(vec![line.into()])
    }

    pub(super) fn failed(line: impl Into<String>) -> Self {
        Self::Failed(line.into())
    }

    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) | Self::Told | Self::Unread => 1,
        }
    }

    pub(super) fn print(&self) {
        match self {
            Self::Usage(lines) => lines.iter().for_each(|line| say(line)),
            Self::Failed(line) => say(line),
            Self::Told | Self::Unread => {}
        }
    }
}

/// For verbs that only show what stands: whoever does not read on has seen enough.
pub(super) fn seen_enough(shown: Result<(), Failure>) -> Result<(), Failure> {
    match shown {
        Err(Failure::Unread) => Ok(()),
        other => other,
    }
}

/// Writes one line to stderr. There is nowhere to complain when that fails.
pub(super) fn say(line: &str) {
    let line = line.replace(['\n', '\r'], " ");
    drop(writeln!(std::io::stderr().lock(), "oncebox: {line}"));
}

/// An error with its causes, on one line, each told once.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(told) = server_message(next) {
            return format!("{line}: {told}");
        }
        // Some libraries repeat the cause in their own message.
        let told = next.to_string();
        if !line.ends_with(&told) {
            line.push_str(": ");
            line.push_str(&told);
        }
        cause = next.source();
    }
    line
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::Usage(errors.0)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::Url) {
            return Self::usage(error.to_string());
        }
        Self::Failed(format!("{}; {}", chain(&error), what_to_do(&error)))
    }
}

/// What a person can do about an error of the store.
pub(super) fn what_to_do(error: &StoreError) -> &'static str {
    match error {
        StoreError::Url => "correct DATABASE_URL",
        StoreError::Connect(_) => what_to_connect_to(error.sqlstate().as_deref()),
        StoreError::CommitUnknown(_) | StoreError::CommitDeadline => {
            "look with `oncebox ops show` or `dead show` before you repeat it"
        }
        StoreError::Deadline => "repeat it; `oncebox doctor` shows what blocks",
        StoreError::Fenced => "repeat it",
        StoreError::Unreadable(_) => "use the release that wrote it, or a newer one",
        StoreError::RolledBack(_) => what_to_run(error.sqlstate().as_deref()),
    }
}

fn what_to_connect_to(sqlstate: Option<&str>) -> &'static str {
    match sqlstate {
        Some("3D000") => {
            "create that database, then run `oncebox migrate`, or name another one in DATABASE_URL"
        }
        Some("28P01" | "28000") => "correct the user and the password in DATABASE_URL",
        Some("42501") => "grant this role connect on the database",
        Some(_) | None => "check DATABASE_URL and that the server runs",
    }
}

fn what_to_run(sqlstate: Option<&str>) -> &'static str {
    match sqlstate {
        Some("42P01" | "3F000" | "42883" | "42703") => "run `oncebox migrate` first",
        Some("42501") => "give this role the rights; `oncebox doctor` lists them",
        Some("55P03") => "somebody else holds the row; repeat it",
        Some("26000" | "42P05") => {
            "a connection pooler in between loses prepared statements; run `oncebox doctor`"
        }
        Some(_) | None => "repeat it; `oncebox doctor` checks the database",
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::Unread
        } else {
            Self::Failed(format!("the output cannot be written: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_has_to_do_follows_the_servers_code() {
        assert!(what_to_run(Some("3F000")).contains("oncebox migrate"));
        assert!(what_to_run(Some("42P01")).contains("oncebox migrate"));
        assert!(what_to_run(Some("42501")).contains("rights"));
        assert!(what_to_connect_to(Some("3D000")).contains("create that database"));
        assert!(what_to_connect_to(None).contains("DATABASE_URL"));
    }

    #[test]
    fn a_closed_pipe_is_no_failure_of_what_was_only_shown() {
        let closed = || Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(seen_enough(Err(closed())).is_ok());
        assert_eq!(closed().code(), 1);
        assert!(seen_enough(Err(Failure::failed("no"))).is_err());
    }
}
