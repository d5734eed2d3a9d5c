//! Leases of claims that run: made longer, or found lost.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;

/// Extends the leases of claims that still stand, to `lease` from now.
///
/// Takes `for no key update skip locked`. An id that is missing from the answer was *not renewed*,
/// which is not *lost*: its row may be locked just now. [`lost`] tells.
///
/// # Errors
/// Nothing was renewed.
pub async fn renew(
    connection: &mut PgConnection,
    claims: &[(Uuid, i64)],
    lease: Duration,
) -> Result<HashSet<Uuid>, StoreError> {
    let (ids, epochs): (Vec<Uuid>, Vec<i64>) = claims.iter().copied().unzip();
    let renewed = sqlx::query_scalar(
        "update oncebox.operations o set lease_until = clock_timestamp() + make_interval(secs => $3) \
         from (select l.operation_id from oncebox.operations l join unnest($1::uuid[], $2::bigint[]) as c(id, epoch) \
                 on l.operation_id = c.id and l.claim_epoch = c.epoch \
               where l.phase in ('claimed', 'sent') order by l.operation_id for no key update of l skip locked) f \
         where o.operation_id = f.operation_id returning o.operation_id",
    )
    .bind(&ids)
    .bind(&epochs)
    .bind(lease.as_secs_f64())
    .fetch_all(connection)
    .await?;
    Ok(renewed.into_iter().collect())
}

/// Which of `claims` are certainly not their owner's any more: the row has another epoch, or none
/// of the phases of a claim. Takes no lock.
///
/// # Errors
/// Nothing is known.
pub async fn lost(
    connection: &mut PgConnection,
    claims: &[(Uuid, i64)],
) -> Result<Vec<Uuid>, StoreError> {
    let (ids, epochs): (Vec<Uuid>, Vec<i64>) = claims.iter().copied().unzip();
    let lost = sqlx::query_scalar(
        "select c.id from unnest($1::uuid[], $2::bigint[]) as c(id, epoch) \
         left join oncebox.operations o on o.operation_id = c.id and o.claim_epoch = c.epoch and o.phase in ('claimed', 'sent') \
         where o.operation_id is null",
    )
    .bind(&ids)
    .bind(&epochs)
    .fetch_all(connection)
    .await?;
    Ok(lost)
}
