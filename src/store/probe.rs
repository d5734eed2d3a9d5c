//! Looks at the database itself, for `doctor`. Reads only, takes no locks.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _, Row as _};
use time::OffsetDateTime;
use tokio::time::timeout;

use super::row::timestamp;
use super::{DatabaseUrl, StoreError};
use crate::domain::operation::Timestamp;

/// Counting stops here: doctor must not scan a backlog of hours to say that it is long.
const COUNT_AT_MOST: i64 = 1_000_000;

/// The server, as one connection sees it.
#[derive(Debug, Clone)]
pub struct Server {
    /// Such as 150008.
    pub version_number: i32,
    /// In words.
    pub version: String,
    /// The role that is logged in.
    pub role: String,
    /// Whether a commit survives a crash at all.
    pub fsync: bool,
    /// Whether pages survive being torn by a crash.
    pub full_page_writes: bool,
    /// What a commit waits for by default.
    pub synchronous_commit: String,
    /// A standby, which takes no writes.
    pub in_recovery: bool,
    /// Writes are refused by default.
    pub read_only: bool,
    /// Such as `read committed`.
    pub isolation: String,
    /// Such as `UTF8`.
    pub encoding: String,
    /// Its clock at that moment.
    pub now: Timestamp,
}

/// Asks the server for its settings.
///
/// # Errors
/// Nothing was read.
pub async fn server(connection: &mut PgConnection) -> Result<Server, StoreError> {
    let row = sqlx::query(
        "select current_setting('server_version_num')::integer as number, current_setting('server_version') as version, \
           current_user::text as role, current_setting('fsync')::boolean as fsync, \
           current_setting('full_page_writes')::boolean as full_page_writes, \
           current_setting('synchronous_commit') as synchronous_commit, pg_is_in_recovery() as in_recovery, \
           current_setting('default_transaction_read_only')::boolean as read_only, \
           current_setting('default_transaction_isolation') as isolation, \
           current_setting('server_encoding') as encoding, clock_timestamp() as now",
    )
    .fetch_one(connection)
    .await?;
    Ok(Server {
        version_number: row.try_get("number")?,
        version: row.try_get("version")?,
        role: row.try_get("role")?,
        fsync: row.try_get("fsync")?,
        full_page_writes: row.try_get("full_page_writes")?,
        synchronous_commit: row.try_get("synchronous_commit")?,
        in_recovery: row.try_get("in_recovery")?,
        read_only: row.try_get("read_only")?,
        isolation: row.try_get("isolation")?,
        encoding: row.try_get("encoding")?,
        now: timestamp(row.try_get::<OffsetDateTime, _>("now")?),
    })
}

/// What the roles need and this role may not do, such as `update on oncebox.outbox`. The schema
/// must be there.
///
/// # Errors
/// Nothing was read.
pub async fn missing_rights(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    let missing = sqlx::query_scalar(
        "select w.privilege || ' on oncebox.' || w.table_name from (values \
           ('operations', array['select', 'insert', 'update']), \
           ('outbox', array['select', 'insert', 'update', 'delete']), \
           ('operation_events', array['select', 'insert', 'update']), \
           ('dead_letters', array['select', 'insert', 'update']), \
           ('contracts', array['select', 'insert', 'update']), \
           ('grants', array['select', 'insert', 'update']), \
           ('approvals', array['select', 'insert', 'update']), \
           ('twins', array['select', 'insert', 'update']), \
           ('workers', array['select', 'insert', 'update', 'delete']), \
           ('settings', array['select']), ('schema_migrations', array['select'])) as t(table_name, privileges) \
         cross join lateral (select t.table_name, p.privilege from unnest(t.privileges) as p(privilege)) w \
         where not has_schema_privilege('oncebox', 'usage') \
            or not has_table_privilege('oncebox.' || w.table_name, w.privilege) \
         union all \
         select 'usage on sequence oncebox.order_numbers' where not has_sequence_privilege('oncebox.order_numbers', 'usage') \
         union all \
         select 'execute on function ' || f.oid::regprocedure::text \
         from pg_catalog.pg_proc f join pg_catalog.pg_namespace n on n.oid = f.pronamespace \
         where n.nspname = 'oncebox' and f.prorettype <> 'trigger'::regtype and f.proname <> 'submit' \
           and not has_function_privilege(f.oid, 'execute')",
    )
    .fetch_all(connection)
    .await?;
    Ok(missing)
}

/// How it stands with the role `oncebox_publisher`: `None`: it is missing; else whether it may call
/// `oncebox.submit`.
///
/// # Errors
/// Nothing was read.
pub async fn publisher_role(connection: &mut PgConnection) -> Result<Option<bool>, StoreError> {
    let found = sqlx::query_scalar(
        "select has_schema_privilege(r.oid, 'oncebox', 'usage') and (select coalesce(bool_and(has_function_privilege(r.oid, f.oid, 'execute')), false) \
           from pg_catalog.pg_proc f join pg_catalog.pg_namespace n on n.oid = f.pronamespace \
           where n.nspname = 'oncebox' and f.proname = 'submit') \
         from pg_catalog.pg_roles r where r.rolname = 'oncebox_publisher'",
    )
    .fetch_optional(connection)
    .await?;
    Ok(found)
}

/// Who holds back the removal of dead rows.
#[derive(Debug, Clone, Default)]
pub struct Holders {
    /// Age of the oldest open transaction that can be seen, in seconds.
    pub oldest_transaction: f64,
    /// Its process and application.
    pub whose: Option<String>,
    /// Transactions since the oldest snapshot of a session, slot or prepared transaction.
    pub oldest_snapshot: i64,
    /// Prepared transactions that nobody has ended.
    pub prepared: i64,
}

/// Looks for old transactions.
///
/// # Errors
/// Nothing was read.
pub async fn holders(connection: &mut PgConnection) -> Result<Holders, StoreError> {
    let row = sqlx::query(
        "select coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8 as oldest, a.whose, \
           (select coalesce(max(x.age), 0)::bigint from ( \
              select age(s.backend_xmin) as age from pg_catalog.pg_stat_activity s where s.backend_xmin is not null \
              union all select age(s.xmin) from pg_catalog.pg_replication_slots s where s.xmin is not null \
              union all select age(p.transaction) from pg_catalog.pg_prepared_xacts p) x) as snapshot, \
           (select count(*) from pg_catalog.pg_prepared_xacts) as prepared \
         from (select null) n left join lateral ( \
           select s.xact_start, 'process ' || s.pid || ', ' || coalesce(nullif(s.application_name, ''), 'no name') as whose \
           from pg_catalog.pg_stat_activity s \
           where s.xact_start is not null and s.pid <> pg_backend_pid() and s.backend_type = 'client backend' \
           order by s.xact_start limit 1) a on true",
    )
    .fetch_one(connection)
    .await?;
    Ok(Holders {
        oldest_transaction: row.try_get("oldest")?,
        whose: row.try_get("whose")?,
        oldest_snapshot: row.try_get("snapshot")?,
        prepared: row.try_get("prepared")?,
    })
}

/// What waits, and for whom. Counts stop at a million.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backlog {
    /// Outbox rows.
    pub outbox: i64,
    /// Outbox rows that the broker has not confirmed at least once.
    pub unconfirmed: i64,
    /// How long the oldest row that is due has been due, in seconds.
    pub oldest_due: f64,
    /// Dead letters that nobody has dealt with.
    pub dead_letters: i64,
    /// Records whose effect may exist.
    pub unknown: i64,
    /// Records that wait for an operator.
    pub parked: i64,
    /// Claims whose lease ended over a minute ago.
    pub expired_leases: i64,
}

/// Counts what waits.
///
/// # Errors
/// Nothing was read.
pub async fn backlog(connection: &mut PgConnection) -> Result<Backlog, StoreError> {
    let row = sqlx::query(
        "select o.total, o.unconfirmed, o.oldest_due, \
           (select count(*) from (select from oncebox.dead_letters d where d.resolved_at is null limit $1) c) as dead_letters, \
           (select count(*) from (select from oncebox.operations u where u.status = 'unknown' limit $1) c) as unknown, \
           (select count(*) from (select from oncebox.operations p where p.phase = 'parked' limit $1) c) as parked, \
           (select count(*) from (select from oncebox.operations l where l.lease_until < now() - interval '1 minute' limit $1) c) as expired_leases \
         from (select count(*) as total, count(*) filter (where x.attempts > 0) as unconfirmed, \
             coalesce(extract(epoch from now() - min(x.due_at) filter (where x.due_at <= now())), 0)::float8 as oldest_due \
           from (select y.attempts, y.due_at from oncebox.outbox y limit $1) x) o",
    )
    .bind(COUNT_AT_MOST)
    .fetch_one(connection)
    .await?;
    Ok(Backlog {
        outbox: row.try_get("total")?,
        unconfirmed: row.try_get("unconfirmed")?,
        oldest_due: row.try_get("oldest_due")?,
        dead_letters: row.try_get("dead_letters")?,
        unknown: row.try_get("unknown")?,
        parked: row.try_get("parked")?,
        expired_leases: row.try_get("expired_leases")?,
    })
}

/// How many workers that were seen in the last minute serve each (tool, version).
///
/// # Errors
/// Nothing was read.
pub async fn live_workers(
    connection: &mut PgConnection,
) -> Result<Vec<(String, String, i64)>, StoreError> {
    let live = sqlx::query_as(
        "select w.tool_name, w.tool_version, count(*) from oncebox.workers w \
         where w.seen_at > now() - interval '1 minute' group by 1, 2 order by 1, 2",
    )
    .fetch_all(connection)
    .await?;
    Ok(live)
}

/// What stands between us and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Nothing that gives our connection's backend to others between transactions.
    None,
    /// A transaction pooler that keeps prepared statements alive.
    Works,
    /// A transaction pooler that loses prepared statements: nothing here can work.
    LosesStatements,
    /// A transaction pooler with one server connection only, so that no more can be found out.
    OneConnection,
}

/// Connections that take up the pooler's other server connections.
const HOLDERS: usize = 4;
/// A pooler that has no server connection free lets us wait.
const POOL_WAIT: Duration = Duration::from_secs(5);

/// Finds out by behaviour: a prepared statement is used again while somebody else holds the backend
/// that it was prepared on. (No pooler tells what it is; `PgBouncer` before 1.21 loses statements.)
///
/// # Errors
/// No connection came about.
pub async fn pooling(url: &DatabaseUrl) -> Result<Pooling, StoreError> {
    let options = url.options("oncebox doctor")?;
    let connect = || async {
        let connected = timeout(POOL_WAIT, PgConnection::connect_with(&options)).await;
        connected.map_err(|_| StoreError::Deadline)?.map_err(StoreError::Connect)
    };
    let mut ours = connect().await?;
    let mut holders: Vec<PgConnection> = Vec::new();
    let backend = match prepared_backend(&mut ours).await {
        Err(error) if loses_statements(&error) => return Ok(Pooling::LosesStatements),
        asked => asked?,
    };
    let mut found = Pooling::None;
    for _ in 0..HOLDERS {
        let mut holder = connect().await?;
        let Ok(held) = timeout(POOL_WAIT, held_backend(&mut holder)).await else { break };
        let held = held?;
        holders.push(holder);
        if held == backend {
            found = match timeout(POOL_WAIT, prepared_backend(&mut ours)).await {
                Err(_) => Pooling::OneConnection,
                Ok(Ok(_)) => Pooling::Works,
                Ok(Err(error)) if loses_statements(&error) => Pooling::LosesStatements,
                Ok(Err(error)) => return Err(error.into()),
            };
            break;
        }
    }
    for mut holder in holders {
        holder.execute(sqlx::raw_sql("rollback")).await?;
    }
    Ok(found)
}

async fn prepared_backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("select pg_backend_pid()").persistent(true).fetch_one(connection).await
}

/// Opens a transaction without a prepared statement, and says where.
async fn held_backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    connection.execute(sqlx::raw_sql("begin")).await?;
    let row = connection.fetch_one(sqlx::raw_sql("select pg_backend_pid() as backend")).await?;
    row.try_get("backend")
}

/// The statement is not there, or another client's is there under the same name.
fn loses_statements(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "26000" || code == "42P05")
}
