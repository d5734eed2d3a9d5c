//! Messages that could not be understood, or have no record, byte for byte.

use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;

/// A message to keep.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The same for every copy of the same message, so that a message that comes again after a crash
    /// is kept once.
    pub id: Uuid,
    /// The queue it came from.
    pub queue: String,
    /// A short code for what is wrong with it.
    pub reason: String,
    /// Its body as it came.
    pub body: Vec<u8>,
    /// Its headers as printable text, cut at 64 KiB.
    pub headers: String,
    /// The message id it claimed to have.
    pub message_id: Option<String>,
    /// The record it names, if it can be read that far.
    pub operation: Option<Uuid>,
    /// The tenant it names, if it can be read that far.
    pub tenant: Option<String>,
}

/// The same for every copy of the same message: one that comes again after a crash is kept once.
#[must_use]
pub fn letter_id(queue: &str, message_id: Option<&str>, body: &[u8]) -> Uuid {
    let mut digest = Sha256::new();
    for part in [queue.as_bytes(), message_id.unwrap_or_default().as_bytes(), body] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    let bytes: Vec<u8> = digest.finalize().iter().copied().take(16).collect();
    Uuid::from_slice(&bytes).unwrap_or(Uuid::nil())
}

/// Keeps messages. A message that is kept already counts its copies.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn bury(connection: &mut PgConnection, letters: &[DeadLetter]) -> Result<(), StoreError> {
    for letter in letters {
        sqlx::query(
            "insert into oncebox.dead_letters as d \
               (dead_letter_id, queue, reason, body, headers, message_id, operation_id, tenant_id) \
             values ($1, $2, $3, $4, $5, $6, $7, $8) \
             on conflict (dead_letter_id) do update set copies = d.copies + 1",
        )
        .bind(letter.id)
        .bind(storable(&letter.queue, 300))
        .bind(storable(&letter.reason, 100))
        .bind(&letter.body)
        .bind(storable(&letter.headers, 65_536))
        .bind(letter.message_id.as_ref().map(|id| storable(id, 300)))
        .bind(letter.operation)
        .bind(letter.tenant.as_ref().map(|tenant| storable(tenant, 300)))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// `text` as a column of `most` bytes can hold it: keeping a message must not fail on what is wrong
/// with it. The body, which says it all, is kept whole.
fn storable(text: &str, most: usize) -> String {
    let mut text = text.replace('\0', "\u{FFFD}");
    text.truncate(text.floor_char_boundary(most));
    text
}

/// A kept message as an operator sees it.
#[derive(Debug, Clone)]
pub struct KeptLetter {
    /// Its id.
    pub id: Uuid,
    /// When it was kept.
    pub at: OffsetDateTime,
    /// The queue it came from.
    pub queue: String,
    /// What is wrong with it.
    pub reason: String,
    /// Its body.
    pub body: Vec<u8>,
    /// Its headers as text.
    pub headers: String,
    /// The message id it claimed to have.
    pub message_id: Option<String>,
    /// The record it names.
    pub operation: Option<Uuid>,
    /// The tenant it names.
    pub tenant: Option<String>,
    /// How often it came.
    pub copies: i32,
    /// When an operator dealt with it, and how.
    pub resolution: Option<String>,
}

macro_rules! kept_letters {
    ($which:literal) => {
        concat!(
            "select d.dead_letter_id, d.at, d.queue, d.reason, d.body, d.headers, d.message_id, d.operation_id, \
                d.tenant_id, d.copies, d.resolution from oncebox.dead_letters d where ",
            $which
        )
    };
}

/// Lists kept messages, oldest first: the open ones, or all.
///
/// # Errors
/// Nothing was read.
pub async fn kept_letters(
    connection: &mut PgConnection,
    all: bool,
    limit: i64,
) -> Result<Vec<KeptLetter>, StoreError> {
    let rows = sqlx::query(kept_letters!("$1 or d.resolved_at is null order by d.at limit $2"))
        .bind(all)
        .bind(limit)
        .fetch_all(connection)
        .await?;
    rows.iter().map(kept).collect()
}

/// One kept message, locked (`for update`) so that two operators do not both act on it.
///
/// # Errors
/// Nothing was read.
pub async fn kept_letter(
    connection: &mut PgConnection,
    id: Uuid,
) -> Result<Option<KeptLetter>, StoreError> {
    let row = sqlx::query(kept_letters!("d.dead_letter_id = $1 for update"))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(kept).transpose()
}

fn kept(row: &sqlx::postgres::PgRow) -> Result<KeptLetter, StoreError> {
    Ok(KeptLetter {
        id: row.try_get("dead_letter_id")?,
        at: row.try_get("at")?,
        queue: row.try_get("queue")?,
        reason: row.try_get("reason")?,
        body: row.try_get("body")?,
        headers: row.try_get("headers")?,
        message_id: row.try_get("message_id")?,
        operation: row.try_get("operation_id")?,
        tenant: row.try_get("tenant_id")?,
        copies: row.try_get("copies")?,
        resolution: row.try_get("resolution")?,
    })
}

/// Writes down what an operator did with a kept message.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn close_letter(
    connection: &mut PgConnection,
    id: Uuid,
    resolution: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "update oncebox.dead_letters d set resolved_at = clock_timestamp(), resolution = left($2, 400) where d.dead_letter_id = $1",
    )
    .bind(id)
    .bind(resolution)
    .execute(connection)
    .await?;
    Ok(())
}
