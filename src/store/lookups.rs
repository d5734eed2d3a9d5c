//! Unknown records whose next look-up is due.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;

use super::StoreError;
use super::row::{self, Loaded, operation_columns};

/// Takes up to `most` unknown records whose look-up is due, of the tools in `served` (tool, version),
/// with arguments: their next look-up moves ahead by `ahead`, so that no other process asks meanwhile
/// and one that dies gives them back by doing nothing.
///
/// Takes `for no key update skip locked`.
///
/// # Errors
/// Nothing was taken, or after a lost answer it comes again after `ahead`.
pub async fn take_unknown(
    connection: &mut PgConnection,
    served: &[(String, String)],
    ahead: Duration,
    most: i64,
) -> Result<Vec<Loaded>, StoreError> {
    let (tools, versions): (Vec<&str>, Vec<&str>) =
        served.iter().map(|(tool, version)| (tool.as_str(), version.as_str())).unzip();
    let rows = sqlx::query(concat!(
        "update oncebox.operations o set next_lookup_at = clock_timestamp() + make_interval(secs => $3) \
         from (select l.operation_id from oncebox.operations l \
               where l.next_lookup_at <= clock_timestamp() \
                 and (l.tool_name, l.tool_version) in (select * from unnest($1::text[], $2::text[])) \
               order by l.next_lookup_at limit $4 for no key update skip locked) due \
         where o.operation_id = due.operation_id \
         returning ",
        operation_columns!(),
        ", o.arguments::text as arguments, clock_timestamp() as now"
    ))
    .bind(&tools)
    .bind(&versions)
    .bind(ahead.as_secs_f64())
    .bind(most)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|found| {
            Ok(Loaded {
                operation: row::operation(found)?,
                arguments: found.try_get("arguments")?,
                now: row::timestamp(found.try_get::<OffsetDateTime, _>("now")?),
            })
        })
        .collect()
}
