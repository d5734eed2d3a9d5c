//! One connection for one loop.
//!
//! A pool would hand a connection on after its user was cancelled; with sqlx 0.9 a cancelled
//! `begin` can do that with a transaction still open, so that later writes report success and are
//! never committed. Here the connection leaves the [`Link`] for the time of a transaction and comes
//! back only after its end was seen: a dropped future, an error or a missed deadline closes it.

use std::fmt;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError, PgSeverity};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::timeout;

/// Where the database is. Never printed with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// Takes a `postgres://` URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// Whether the text can be used as a URL at all. Nothing is connected.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub fn check(&self) -> Result<(), StoreError> {
        if !self.0.starts_with("postgres://") && !self.0.starts_with("postgresql://") {
            return Err(StoreError::Url);
        }
        self.options("check").map(drop)
    }

    /// The URL with its password masked; of its parameters only those that hold no secret.
    #[must_use]
    pub fn masked(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else { return "***".to_owned() };
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        // A password with an unescaped '/' or '?': nothing can be told apart.
        if database.contains('@') || parameters.contains('@') {
            return format!("{scheme}://***");
        }
        let login = match authority.rsplit_once('@') {
            None => authority.to_owned(),
            Some((login, host)) => match login.split_once(':') {
                None => format!("{login}@{host}"),
                Some((user, _)) => format!("{user}:***@{host}"),
            },
        };
        let open = ["host", "port", "dbname", "user", "sslmode", "application_name"];
        let shown = parameters
            .split('&')
            .filter(|parameter| open.contains(&parameter.split('=').next().unwrap_or_default()));
        let shown = shown.collect::<Vec<_>>().join("&");
        let separator = if shown.is_empty() { "" } else { "?" };
        format!("{scheme}://{login}/{database}{separator}{shown}")
    }

    /// The options for one connection that calls itself `name`.
    pub(super) fn options(&self, name: &str) -> Result<PgConnectOptions, StoreError> {
        let options = PgConnectOptions::from_str(&self.0).map_err(|_| StoreError::Url)?;
        Ok(options.application_name(name).log_statements(tracing::log::LevelFilter::Trace))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(***)")
    }
}

/// What went wrong with the database, and what may be concluded.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The URL cannot be read. Nothing was written.
    #[error(
        "DATABASE_URL cannot be read; it must look like postgres://user:password@host:port/database"
    )]
    Url,
    /// No connection. Nothing was written; try again.
    #[error("the database cannot be reached; nothing was written")]
    Connect(#[source] sqlx::Error),
    /// Rolled back. Nothing was written; try again if the cause passes.
    #[error("the transaction was rolled back; nothing was written")]
    RolledBack(#[source] sqlx::Error),
    /// The answer to the commit was lost. It is not known whether it was written: look at the record.
    #[error("the answer to the commit was lost; it may or may not be written")]
    CommitUnknown(#[source] sqlx::Error),
    /// No answer within the deadline before the commit was sent. Nothing was written.
    #[error("no answer from the database in time; nothing was written")]
    Deadline,
    /// No answer to the commit within the deadline. It is not known whether it was written.
    #[error("no answer to the commit in time; it may or may not be written")]
    CommitDeadline,
    /// A fenced write found another row than was locked: a fault of this program. Rolled back.
    #[error("a locked row was not as it was read; nothing was written")]
    Fenced,
    /// What stands in the database cannot be read by this release. Nothing was written.
    #[error("the database holds something this release cannot read: {0}")]
    Unreadable(&'static str),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::RolledBack(error)
    }
}

impl StoreError {
    /// Whether it is certain that nothing was written.
    #[must_use]
    pub fn nothing_written(&self) -> bool {
        !matches!(self, Self::CommitUnknown(_) | Self::CommitDeadline)
    }

    /// The SQLSTATE that the server gave.
    #[must_use]
    pub fn sqlstate(&self) -> Option<String> {
        let (Self::Connect(error) | Self::RolledBack(error) | Self::CommitUnknown(error)) = self
        else {
            return None;
        };
        error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
    }

    /// Whether the server refused the data itself: the same write will be refused again.
    #[must_use]
    pub fn data_refused(&self) -> bool {
        // Class 22 (data), 23 (constraint), 54 (limit).
        self.sqlstate()
            .is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.starts_with(class)))
    }
}

/// Opens a transaction in one round trip. Durable whatever the role's default says; an application
/// that stops in the middle is cut off by the server; plans are never made on the guess that a
/// table that was empty a moment ago is best scanned from end to end.
const BEGIN: &str = "begin; \
    select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') not in ('on', 'remote_apply'); \
    set local idle_in_transaction_session_timeout = '30s'; set local statement_timeout = '30s'; \
    set local lock_timeout = '10s'; set local enable_seqscan = off; set local jit = off";

/// Commits in one round trip. The server answers `commit` in a transaction that has failed by rolling
/// back, and that is no error to it; a statement before the commit makes it one.
const COMMIT: &str = "select 1; commit";

/// One connection, made when it is needed and thrown away when its state is in doubt.
#[derive(Debug)]
pub struct Link {
    url: DatabaseUrl,
    name: String,
    connection: Option<PgConnection>,
    deadline: Duration,
}

impl Link {
    /// A link that connects at its first use. `name` shows in `pg_stat_activity`; no transaction
    /// takes longer than `deadline`.
    #[must_use]
    pub fn new(url: &DatabaseUrl, name: &str, deadline: Duration) -> Self {
        Self { url: url.clone(), name: format!("oncebox {name}"), connection: None, deadline }
    }

    /// Runs `work` in a transaction and commits it.
    ///
    /// # Errors
    /// [`StoreError::nothing_written`] tells whether the write may have happened after all.
    pub async fn transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = self.deadline;
        let mut connection =
            timeout(deadline, self.open()).await.map_err(|_| StoreError::Deadline)??;
        let done = timeout(deadline, async {
            connection.execute(sqlx::raw_sql(BEGIN)).await?;
            work(&mut connection).await
        })
        .await;
        let value = match done {
            Ok(Ok(value)) => value,
            Ok(Err(error)) => {
                let rolled_back =
                    timeout(deadline, connection.execute(sqlx::raw_sql("rollback"))).await;
                if matches!(rolled_back, Ok(Ok(_))) {
                    self.connection = Some(connection);
                }
                return Err(error);
            }
            Err(_) => return Err(StoreError::Deadline),
        };
        match timeout(deadline, connection.execute(sqlx::raw_sql(COMMIT))).await {
            Ok(Ok(_)) => {
                self.connection = Some(connection);
                Ok(value)
            }
            // The session lives on, so it is a refusal (a deferred trigger, say). A session that
            // ends with its answer may have ended after the commit.
            Ok(Err(error)) if session_lives(&error) => Err(StoreError::RolledBack(error)),
            Ok(Err(error)) => Err(StoreError::CommitUnknown(error)),
            Err(_) => Err(StoreError::CommitDeadline),
        }
    }

    /// Runs one statement that is its own transaction.
    ///
    /// # Errors
    /// A lost answer is [`StoreError::CommitUnknown`]: use this for statements that may be repeated.
    pub async fn statement<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection =
            timeout(self.deadline, self.open()).await.map_err(|_| StoreError::Deadline)??;
        match timeout(self.deadline, work(&mut connection)).await {
            Ok(Ok(value)) => {
                self.connection = Some(connection);
                Ok(value)
            }
            Ok(Err(StoreError::RolledBack(error))) if session_lives(&error) => {
                self.connection = Some(connection);
                Err(StoreError::RolledBack(error))
            }
            Ok(Err(StoreError::RolledBack(error))) => Err(StoreError::CommitUnknown(error)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::CommitDeadline),
        }
    }

    async fn open(&mut self) -> Result<PgConnection, StoreError> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => {
                let options = self.url.options(&self.name)?;
                PgConnection::connect_with(&options).await.map_err(StoreError::Connect)
            }
        }
    }
}

/// What the server said, if `error` is its answer: without the line of its own source, which the
/// client library appends.
#[must_use]
pub fn server_message(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<sqlx::Error>()?;
    error.as_database_error().map(|error| error.message().to_owned())
}

/// Whether the server refused a statement and goes on with the session: an error, not a fatal one.
fn session_lives(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        error
            .try_downcast_ref::<PgDatabaseError>()
            .is_some_and(|error| matches!(error.severity(), PgSeverity::Error))
    })
}

/// Sets a savepoint before a transactional tool's effect, and bounds each statement from here on: one
/// that is given up only by its caller goes on in the server, and the rollback waits for it.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn savepoint(connection: &mut PgConnection) -> Result<(), StoreError> {
    let statement = "set local statement_timeout = '5s'; savepoint effect";
    connection.execute(sqlx::raw_sql(statement)).await?;
    Ok(())
}

/// Keeps (`true`) or undoes what was written since the savepoint.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn leave_savepoint(connection: &mut PgConnection, keep: bool) -> Result<(), StoreError> {
    let statement = if keep {
        "release savepoint effect"
    } else {
        "rollback to savepoint effect; release savepoint effect"
    };
    connection.execute(sqlx::raw_sql(statement)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        let check = |url: &str, shown: &str| assert_eq!(DatabaseUrl::new(url).masked(), shown);
        check("postgres://app:pw@db:5432/oncebox", "postgres://app:***@db:5432/oncebox");
        check(
            "postgres://app@db/oncebox?sslmode=require&password=pw",
            "postgres://app@db/oncebox?sslmode=require",
        );
        check(
            "postgres:///oncebox?host=/run/postgresql",
            "postgres:///oncebox?host=/run/postgresql",
        );
        check("postgres://app:p/w@db/oncebox", "postgres://***");
        check("postgres://app:p?w@db/oncebox", "postgres://***");
        check("postgres://app:p@w@db/oncebox", "postgres://app:***@db/oncebox");
        check("host=db password=pw", "***");
    }

    #[test]
    fn only_urls_are_accepted() {
        assert!(DatabaseUrl::new("postgres://app@db/oncebox").check().is_ok());
        assert!(DatabaseUrl::new("postgresql://db").check().is_ok());
        assert!(DatabaseUrl::new("mysql://db").check().is_err());
        assert!(DatabaseUrl::new("").check().is_err());
    }
}
