//! An operation whose record was lost, put back as *may have been sent*.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;

/// What is put back.
#[derive(Clone)]
pub struct PutBack {
    /// The record that a submission has inserted in this very transaction.
    pub submitted: Uuid,
    /// The id that the record had, and that its messages name.
    pub id: Uuid,
    /// When the key towards the downstream was first used, in Unix seconds, at the earliest.
    /// `None`: nobody knows, so that every window is closed.
    pub first_used: Option<f64>,
    /// The key towards the downstream, if the secret that made it is known.
    pub downstream_key: Option<String>,
    /// The id of that secret.
    pub downstream_key_id: Option<String>,
    /// Why the record is so.
    pub reason: &'static str,
}

/// Gives a record that this transaction has inserted its old id, and marks it as sent at that time.
/// False: the record is not of this transaction, so that somebody else's stands under the key; roll
/// back.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn put_back(connection: &mut PgConnection, lost: &PutBack) -> Result<bool, StoreError> {
    let marked = sqlx::query(
        "update oncebox.operations o set operation_id = $2, reason = $6, twin_released = o.twin_digest is not null, \
           first_sent_at = coalesce(to_timestamp($3), 'epoch'), \
           key_first_used_at = coalesce(to_timestamp($3), 'epoch'), \
           downstream_key = $4, downstream_key_id = $5, updated_at = clock_timestamp() \
         where o.operation_id = $1 and o.status = 'pending' and o.phase = 'queued' and o.first_sent_at is null \
           and o.xmin::text::bigint = pg_current_xact_id()::text::bigint & 4294967295",
    )
    .bind(lost.submitted)
    .bind(lost.id)
    .bind(lost.first_used)
    .bind(&lost.downstream_key)
    .bind(&lost.downstream_key_id)
    .bind(lost.reason)
    .execute(&mut *connection)
    .await?;
    if marked.rows_affected() != 1 {
        return Ok(false);
    }
    for rename in [
        "update oncebox.outbox x set operation_id = $2 where x.operation_id = $1",
        "update oncebox.operation_events e set operation_id = $2 where e.operation_id = $1",
    ] {
        sqlx::query(rename).bind(lost.submitted).bind(lost.id).execute(&mut *connection).await?;
    }
    Ok(true)
}
