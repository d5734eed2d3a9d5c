//! What waits for a person, and for whom: unknown and parked records with their contract's owner.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::row::{self, Loaded, operation_columns};
use super::{Filter, StoreError};

/// Who has to answer for a record that waits for a person, and how soon.
#[derive(Debug, Clone)]
pub struct Responsible {
    /// The team or person that its contract names.
    pub owner: Option<String>,
    /// How soon they answer, by the contract.
    pub respond_within: Option<Duration>,
    /// How long that has passed; absent while it has not, and where the contract sets no time.
    pub overdue: Option<Duration>,
}

/// What [`responsible`] reads, of tables called `o` and `c`.
macro_rules! responsible_columns {
    () => {
        "c.owner as contract_owner, extract(epoch from c.respond_within)::float8 as respond_within, \
         extract(epoch from clock_timestamp() - (o.unresolved_since + c.respond_within))::float8 as overdue"
    };
}

/// Lists the records whose owner should have answered by now, the longest overdue first, without a
/// lock and without arguments. Those whose contract sets no time are never among them.
///
/// # Errors
/// Nothing was read.
pub async fn overdue(
    connection: &mut PgConnection,
    filter: &Filter,
) -> Result<Vec<(Loaded, Responsible)>, StoreError> {
    let rows = sqlx::query(concat!(
        "select ",
        operation_columns!(),
        ", null::text as arguments, clock_timestamp() as now, ",
        responsible_columns!(),
        " from oncebox.operations o \
         join oncebox.contracts c on c.tool_name = o.tool_name and c.tool_version = o.tool_version \
         where o.unresolved_since is not null and o.unresolved_since + c.respond_within < clock_timestamp() \
           and ($1::text is null or o.tenant_id = $1) and ($2::text is null or o.tool_name = $2) \
           and ($3::text is null or o.status = $3) and ($4::text is null or o.phase = $4) \
         order by o.unresolved_since + c.respond_within, o.operation_id limit $5"
    ))
    .bind(&filter.tenant)
    .bind(&filter.tool)
    .bind(&filter.status)
    .bind(&filter.phase)
    .bind(filter.limit)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|found| {
            let loaded = Loaded {
                operation: row::operation(found)?,
                arguments: None,
                now: row::timestamp(found.try_get::<OffsetDateTime, _>("now")?),
            };
            Ok((loaded, read(found)?))
        })
        .collect()
}

/// Who answers for one record; `None`: its contract version is not registered. Takes no lock.
///
/// # Errors
/// Nothing was read.
pub async fn responsible(
    connection: &mut PgConnection,
    operation: Uuid,
) -> Result<Option<Responsible>, StoreError> {
    let found = sqlx::query(concat!(
        "select ",
        responsible_columns!(),
        " from oncebox.operations o \
         join oncebox.contracts c on c.tool_name = o.tool_name and c.tool_version = o.tool_version \
         where o.operation_id = $1"
    ))
    .bind(operation)
    .fetch_optional(connection)
    .await?;
    found.as_ref().map(read).transpose()
}

fn read(row: &PgRow) -> Result<Responsible, StoreError> {
    let seconds = |column: &str| -> Result<Option<Duration>, sqlx::Error> {
        let seconds: Option<f64> = row.try_get(column)?;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    };
    Ok(Responsible {
        owner: row.try_get("contract_owner")?,
        respond_within: seconds("respond_within")?,
        overdue: seconds("overdue")?,
    })
}
