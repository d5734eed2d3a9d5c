//! Which live worker serves which contract version.

use std::collections::HashSet;

use sqlx::postgres::PgConnection;

use super::StoreError;

/// Keeps a worker's rows fresh, one a served (tool, version); rows of long gone workers go.
///
/// # Errors
/// Nothing was written, or after a lost answer perhaps it was.
pub async fn heartbeat(
    connection: &mut PgConnection,
    worker: &str,
    served: &[(String, String)],
) -> Result<(), StoreError> {
    let (tools, versions): (Vec<String>, Vec<String>) = served.iter().cloned().unzip();
    sqlx::query(
        "insert into oncebox.workers as w (worker, tool_name, tool_version) \
         select $1, s.tool, s.version from unnest($2::text[], $3::text[]) as s(tool, version) \
         on conflict (worker, tool_name, tool_version) do update set seen_at = clock_timestamp()",
    )
    .bind(worker)
    .bind(&tools)
    .bind(&versions)
    .execute(&mut *connection)
    .await?;
    sqlx::query("delete from oncebox.workers w where w.seen_at < now() - interval '1 day'")
        .execute(connection)
        .await?;
    Ok(())
}

/// Takes a worker's rows away when it stops.
///
/// # Errors
/// The rows age instead.
pub async fn sign_off(connection: &mut PgConnection, worker: &str) -> Result<(), StoreError> {
    sqlx::query("delete from oncebox.workers w where w.worker = $1")
        .bind(worker)
        .execute(connection)
        .await?;
    Ok(())
}

/// Which (tool, version) a worker that was seen in the last minute serves.
///
/// # Errors
/// Nothing was read.
pub async fn served_anywhere(
    connection: &mut PgConnection,
) -> Result<HashSet<(String, String)>, StoreError> {
    let served: Vec<(String, String)> = sqlx::query_as(
        "select distinct w.tool_name, w.tool_version from oncebox.workers w where w.seen_at > now() - interval '1 minute'",
    )
    .fetch_all(connection)
    .await?;
    Ok(served.into_iter().collect())
}

/// Operations that are parked because no worker had their version, of the versions `served`. Takes
/// no lock.
///
/// # Errors
/// Nothing was read.
pub async fn parked_for_version(
    connection: &mut PgConnection,
    served: &[(String, String)],
    most: i64,
) -> Result<Vec<uuid::Uuid>, StoreError> {
    let (tools, versions): (Vec<String>, Vec<String>) = served.iter().cloned().unzip();
    let ids = sqlx::query_scalar(
        "select o.operation_id from oncebox.operations o \
         join unnest($1::text[], $2::text[]) as s(tool, version) on o.tool_name = s.tool and o.tool_version = s.version \
         where (o.status = 'unknown' or o.phase = 'parked') and o.phase = 'parked' and o.reason = 'contract_version_unknown' \
         limit $3",
    )
    .bind(&tools)
    .bind(&versions)
    .bind(most)
    .fetch_all(connection)
    .await?;
    Ok(ids)
}
