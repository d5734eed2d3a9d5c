//! Requests for a person's approval, and their answers.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;
use super::row::timestamp;
use crate::domain::permission::ApprovalState;

/// Writes a request for approval for locked records, of their stored fingerprints. An answer to an
/// earlier request for the same one is forgotten: it has been used up.
pub(super) async fn request(
    connection: &mut PgConnection,
    operations: &[Uuid],
) -> Result<(), StoreError> {
    if operations.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into oncebox.approvals (operation_id, request_fingerprint) \
         select o.operation_id, o.request_fingerprint from oncebox.operations o \
         where o.operation_id = any($1) and o.request_fingerprint is not null \
         on conflict (operation_id, request_fingerprint) do update \
         set state = 'requested', requested_at = clock_timestamp(), answered_at = null, answered_by = null, \
             answer_reason = null, expires_at = null",
    )
    .bind(operations)
    .execute(connection)
    .await?;
    Ok(())
}

/// Where the requests for approval of `operations` stand, of their stored fingerprints. What was asked
/// before a record was opened again is no request of its present submission, whose actor may be the
/// very one who approved that. Takes no lock: an answer that commits later is seen by the next look.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn approvals(
    connection: &mut PgConnection,
    operations: &[Uuid],
) -> Result<HashMap<Uuid, ApprovalState>, StoreError> {
    if operations.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query(
        "select a.operation_id, a.state, a.expires_at from oncebox.approvals a \
         join oncebox.operations o on o.operation_id = a.operation_id and o.request_fingerprint = a.request_fingerprint \
         where a.operation_id = any($1) and a.requested_at >= o.opened_at",
    )
    .bind(operations)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let expires_at: Option<OffsetDateTime> = row.try_get("expires_at")?;
            let state = match (row.try_get::<&str, _>("state")?, expires_at) {
                ("requested", _) => ApprovalState::Requested,
                ("approved", Some(expires)) => {
                    ApprovalState::Approved { expires_at: timestamp(expires) }
                }
                ("denied", _) => ApprovalState::Denied,
                ("withdrawn", _) => ApprovalState::Withdrawn,
                (_, _) => return Err(StoreError::Unreadable("approvals.state")),
            };
            Ok((row.try_get("operation_id")?, state))
        })
        .collect()
}

/// Writes a person's answer to an open request. False: there is none of this fingerprint.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn answer_approval(
    connection: &mut PgConnection,
    operation: Uuid,
    fingerprint: &str,
    answer: (&str, &str),
    expires_in: Option<Duration>,
) -> Result<bool, StoreError> {
    let (by, why) = answer;
    let done = sqlx::query(
        "update oncebox.approvals a set state = case when $5::float8 is null then 'denied' else 'approved' end, \
           answered_at = clock_timestamp(), answered_by = $3, answer_reason = $4, \
           expires_at = clock_timestamp() + make_interval(secs => $5) \
         where a.operation_id = $1 and a.request_fingerprint = $2 and a.state = 'requested'",
    )
    .bind(operation)
    .bind(fingerprint)
    .bind(by)
    .bind(why)
    .bind(expires_in.map(|expires| expires.as_secs_f64()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes an approval back. False: none was given since the record was opened.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn withdraw_approval(
    connection: &mut PgConnection,
    operation: Uuid,
    by: &str,
    why: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update oncebox.approvals a set state = 'withdrawn', answered_at = clock_timestamp(), answered_by = $2, \
           answer_reason = $3, expires_at = null from oncebox.operations o \
         where a.operation_id = $1 and a.state = 'approved' \
           and o.operation_id = a.operation_id and a.requested_at >= o.opened_at",
    )
    .bind(operation)
    .bind(by)
    .bind(why)
    .execute(connection)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// A request for approval as an operator sees it.
#[derive(Debug, Clone)]
pub struct ShownApproval {
    /// What was asked for.
    pub fingerprint: String,
    /// `requested`, `approved`, `denied` or `withdrawn`.
    pub state: String,
    /// When it was asked for.
    pub requested_at: OffsetDateTime,
    /// When a person answered last.
    pub answered_at: Option<OffsetDateTime>,
    /// Who answered last.
    pub answered_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Until when an approval holds.
    pub expires_at: Option<OffsetDateTime>,
}

/// The last request for approval of one operation. Takes no lock.
///
/// # Errors
/// Nothing was read.
pub async fn shown_approval(
    connection: &mut PgConnection,
    operation: Uuid,
) -> Result<Option<ShownApproval>, StoreError> {
    let row = sqlx::query(
        "select a.request_fingerprint, a.state, a.requested_at, a.answered_at, a.answered_by, a.answer_reason, a.expires_at \
         from oncebox.approvals a where a.operation_id = $1 order by a.requested_at desc limit 1",
    )
    .bind(operation)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(ShownApproval {
        fingerprint: row.try_get("request_fingerprint")?,
        state: row.try_get("state")?,
        requested_at: row.try_get("requested_at")?,
        answered_at: row.try_get("answered_at")?,
        answered_by: row.try_get("answered_by")?,
        reason: row.try_get("answer_reason")?,
        expires_at: row.try_get("expires_at")?,
    }))
}
