//! Migrations: forward only, each once, from any number of processes at once, while workers run.
//!
//! All of it is one transaction under one transaction-level advisory lock: nothing is left behind
//! when the process dies, also behind a transaction pooler. (A session-level lock, which a library
//! would take, can stay with a pooled server connection after its holder is gone.)

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::{DatabaseUrl, Link, StoreError};

/// One migration file.
struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "tables", sql: include_str!("../../migrations/0001_tables.sql") },
    Migration { version: 2, name: "submit", sql: include_str!("../../migrations/0002_submit.sql") },
    Migration {
        version: 3,
        name: "permissions",
        sql: include_str!("../../migrations/0003_permissions.sql"),
    },
    Migration { version: 4, name: "twins", sql: include_str!("../../migrations/0004_twins.sql") },
];

/// What a migration run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// Every version with its name, and whether this run applied it.
    pub versions: Vec<(i32, &'static str, bool)>,
    /// How it stands with the role that may submit.
    pub publisher: Publisher,
}

/// How it stands with the role `oncebox_publisher`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publisher {
    /// It exists and may call `oncebox.submit`.
    Ready,
    /// It does not exist and this role may not create it: run the statement as one that may.
    Missing,
}

impl Publisher {
    /// The statement to run as a role with CREATEROLE; then migrate again.
    pub const STATEMENT: &str = "create role oncebox_publisher nologin;";
}

/// How the database's schema stands to this release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchemaState {
    /// The newest version that is applied; `None`: nothing is.
    pub applied: Option<i32>,
    /// The newest version of this release.
    pub release: i32,
    /// Versions of this release that are not applied.
    pub missing: Vec<i32>,
    /// Versions that are applied with another text than this release's.
    pub differing: Vec<i32>,
}

/// Compares what is applied with what this release has.
///
/// # Errors
/// Nothing was read.
pub async fn schema_state(connection: &mut PgConnection) -> Result<SchemaState, StoreError> {
    let there: bool =
        sqlx::query_scalar("select to_regclass('oncebox.schema_migrations') is not null")
            .fetch_one(&mut *connection)
            .await?;
    let applied: Vec<(i32, String)> = if there {
        sqlx::query_as("select m.version, m.checksum from oncebox.schema_migrations m")
            .fetch_all(connection)
            .await?
    } else {
        Vec::new()
    };
    let stands = |wanted: &Migration| applied.iter().find(|(v, _)| *v == wanted.version);
    let versions = |of: &dyn Fn(&Migration) -> bool| {
        MIGRATIONS.iter().filter(|m| of(m)).map(|m| m.version).collect::<Vec<_>>()
    };
    Ok(SchemaState {
        applied: applied.iter().map(|(version, _)| *version).max(),
        release: MIGRATIONS.iter().map(|m| m.version).max().unwrap_or_default(),
        missing: versions(&|m| stands(m).is_none()),
        differing: versions(&|m| stands(m).is_some_and(|(_, sum)| *sum != checksum(m.sql))),
    })
}

/// Applies what is missing.
///
/// # Errors
/// [`StoreError::Unreadable`] when an applied migration is not the one this release has; otherwise
/// the transaction was rolled back and the same call may be made again.
pub async fn migrate(url: &DatabaseUrl) -> Result<Migrated, StoreError> {
    let mut link = Link::new(url, "migrate", Duration::from_secs(120));
    let mut tries = 0;
    let versions = loop {
        match link.transaction(apply_missing).await {
            // A table lock that running workers would queue behind is not waited for long: try again.
            Err(error) if error.sqlstate().as_deref() == Some("55P03") && tries < 20 => tries += 1,
            done => break done?,
        }
    };
    create_role(&mut link).await?;
    let publisher = link.transaction(grant).await?;
    Ok(Migrated { versions, publisher })
}

async fn apply_missing(
    connection: &mut PgConnection,
) -> Result<Vec<(i32, &'static str, bool)>, StoreError> {
    // Waiting for another migrator is no reason to give up; waiting for workers' table locks is.
    connection
        .execute(sqlx::raw_sql("set local lock_timeout = '60s'; set local statement_timeout = 0"))
        .await?;
    connection
        .execute(sqlx::raw_sql(
            "select pg_advisory_xact_lock(hashtextextended('oncebox migrate', 0))",
        ))
        .await?;
    connection
        .execute(sqlx::raw_sql(
            "set local lock_timeout = '2s'; set local client_min_messages = warning; \
             create schema if not exists oncebox; \
             create table if not exists oncebox.schema_migrations ( \
                version integer primary key, name text not null, checksum text not null, \
                applied_at timestamptz not null default clock_timestamp())",
        ))
        .await?;
    let applied: Vec<(i32, String)> =
        sqlx::query_as("select m.version, m.checksum from oncebox.schema_migrations m")
            .fetch_all(&mut *connection)
            .await?;
    let mut versions = Vec::with_capacity(MIGRATIONS.len());
    for migration in MIGRATIONS {
        let checksum = checksum(migration.sql);
        let stands = applied.iter().find(|(version, _)| *version == migration.version);
        match stands {
            Some((_, stored)) if *stored == checksum => {}
            Some(_) => {
                return Err(StoreError::Unreadable(
                    "an applied migration differs from this release's",
                ));
            }
            None => {
                connection.execute(sqlx::raw_sql(migration.sql)).await?;
                sqlx::query("insert into oncebox.schema_migrations (version, name, checksum) values ($1, $2, $3)")
                    .bind(migration.version)
                    .bind(migration.name)
                    .bind(&checksum)
                    .execute(&mut *connection)
                    .await?;
            }
        }
        versions.push((migration.version, migration.name, stands.is_none()));
    }
    Ok(versions)
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates the cluster-wide role if it is missing and we may. Racing migrators of other databases
/// may create it in between: the loser's error is as good as success.
async fn create_role(link: &mut Link) -> Result<(), StoreError> {
    let created = link
        .transaction(async |connection| {
            connection
                .execute(sqlx::raw_sql(
                    "do $$ begin if not exists (select from pg_catalog.pg_roles where rolname = 'oncebox_publisher') then \
                     create role oncebox_publisher nologin; end if; end $$",
                ))
                .await?;
            Ok(())
        })
        .await;
    match created {
        // 42710 and 23505: somebody else was faster; 42501: we may not, `grant` will say so.
        Err(error) if matches!(error.sqlstate().as_deref(), Some("42710" | "23505" | "42501")) => {
            Ok(())
        }
        done => done,
    }
}

async fn grant(connection: &mut PgConnection) -> Result<Publisher, StoreError> {
    let exists: bool = sqlx::query_scalar(
        "select exists (select from pg_catalog.pg_roles where rolname = 'oncebox_publisher')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !exists {
        return Ok(Publisher::Missing);
    }
    let granted: bool = sqlx::query_scalar(
        "select has_schema_privilege('oncebox_publisher', 'oncebox', 'usage') and has_function_privilege('oncebox_publisher', \
           'oncebox.submit(text,text,text,text,text,text,json,text,json,text,timestamptz,text,text)', 'execute')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !granted {
        // Two migrators that grant at once would trip over each other's catalogue rows.
        connection
            .execute(sqlx::raw_sql(
                "select pg_advisory_xact_lock(hashtextextended('oncebox migrate', 0)); \
                 grant usage on schema oncebox to oncebox_publisher; \
                 grant execute on function oncebox.submit(text, text, text, text, text, text, json, text, json, text, \
                   timestamptz, text, text) to oncebox_publisher",
            ))
            .await?;
    }
    Ok(Publisher::Ready)
}
