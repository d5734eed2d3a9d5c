//! The trace: `operation_events`, one row a transition, never changed.

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;
use crate::domain::step::Step;

/// Appends the trace of `steps`, in order.
pub(super) async fn append(
    connection: &mut PgConnection,
    steps: &[&Step],
) -> Result<(), StoreError> {
    let rows = steps.iter().flat_map(|step| {
        let owner = step.record.lease.as_ref().map(|lease| lease.owner.clone());
        step.trace.iter().map(move |row| Noted {
            operation: step.record.id,
            event: row.event,
            epoch: step.record.token.0,
            owner: owner.clone(),
            detail: row.detail.as_ref().map(ToString::to_string),
        })
    });
    note(connection, rows.collect()).await
}

/// A row of the trace that changes no record: a delivery that found nothing to do, an ack.
#[derive(Debug, Clone)]
pub struct Noted {
    /// The record it is about.
    pub operation: Uuid,
    /// The transition's name.
    pub event: &'static str,
    /// The fencing token it happened under, 0 for none.
    pub epoch: i64,
    /// Who did it.
    pub owner: Option<String>,
    /// What else there is to tell, as JSON text.
    pub detail: Option<String>,
}

/// Appends `rows`, in order.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn note(connection: &mut PgConnection, rows: Vec<Noted>) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into oncebox.operation_events (operation_id, event, claim_epoch, owner, detail) \
         select r.operation, r.event, r.epoch, r.owner, r.detail::json \
         from unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[]) with ordinality \
           as r(operation, event, epoch, owner, detail, position) order by r.position",
    )
    .bind(rows.iter().map(|row| row.operation).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.event).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.epoch).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.owner.clone()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.detail.clone()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// One row of the trace as an operator sees it.
#[derive(Debug, Clone)]
pub struct TraceRow {
    /// When it happened, by the database's clock.
    pub at: OffsetDateTime,
    /// The transition's name.
    pub event: String,
    /// The fencing token it happened under.
    pub epoch: i64,
    /// Who did it.
    pub owner: Option<String>,
    /// What else there is to tell, as JSON text.
    pub detail: Option<String>,
}

/// The whole trace of one operation, oldest first.
///
/// # Errors
/// Nothing was read.
pub async fn trace(
    connection: &mut PgConnection,
    operation: Uuid,
) -> Result<Vec<TraceRow>, StoreError> {
    let rows = sqlx::query(
        "select e.at, e.event, e.claim_epoch, e.owner, e.detail::text as detail from oncebox.operation_events e \
         where e.operation_id = $1 order by e.event_id",
    )
    .bind(operation)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(TraceRow {
                at: row.try_get("at")?,
                event: row.try_get("event")?,
                epoch: row.try_get("claim_epoch")?,
                owner: row.try_get("owner")?,
                detail: row.try_get("detail")?,
            })
        })
        .collect()
}
