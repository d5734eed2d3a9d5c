//! The submission's statements, on the application's own transaction.
//!
//! None of them locks a record that exists: the application may hold its transaction open for
//! minutes. Reopening is the one exception, a conditional update.

use std::collections::HashSet;

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;
use super::row::{self, Loaded, database_time, operation_columns};
use crate::domain::operation::{Operation, Timestamp};

/// What one submission writes.
#[derive(Clone)]
pub struct NewOperation {
    /// The record's id, if this submission is the first.
    pub id: Uuid,
    /// The tenant.
    pub tenant: String,
    /// The environment.
    pub environment: String,
    /// The whole key.
    pub key: String,
    /// The tool.
    pub tool: String,
    /// The contract version.
    pub tool_version: String,
    /// The fingerprint of the material request.
    pub fingerprint: String,
    /// The digests of the material pointers, as JSON text.
    pub digests: String,
    /// The arguments as they were sent.
    pub arguments: String,
    /// What is not part of the request, as JSON text.
    pub metadata: Option<String>,
    /// Who submits.
    pub actor: Option<String>,
    /// Effects with this key happen in commit order.
    pub ordering_key: Option<String>,
    /// Not before this time.
    pub not_before: Option<Timestamp>,
    /// The older key that this one is knowingly not the twin of.
    pub distinct_from: Option<String>,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
    /// What its twins share with it, for tools that hold twins.
    pub twin_digest: Option<String>,
}

/// Inserts what is not there yet, with outbox rows and trace, in key order. Answers the ids inserted.
///
/// Waits at most five seconds for an uncommitted insert of the same key.
///
/// # Errors
/// SQLSTATE 55P03: another transaction holds the key and may still roll back. Roll back and repeat.
pub async fn insert_operations(
    connection: &mut PgConnection,
    new: &[NewOperation],
) -> Result<HashSet<Uuid>, StoreError> {
    macro_rules! column {
        (|$n:ident| $value:expr) => {
            new.iter().map(|$n| $value).collect::<Vec<_>>()
        };
    }
    let inserted: Vec<Uuid> = sqlx::query_scalar(
        "select oncebox.insert_operations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
    )
    .bind(column!(|n| n.id))
    .bind(column!(|n| n.tenant.clone()))
    .bind(column!(|n| n.environment.clone()))
    .bind(column!(|n| n.key.clone()))
    .bind(column!(|n| n.tool.clone()))
    .bind(column!(|n| n.tool_version.clone()))
    .bind(column!(|n| n.fingerprint.clone()))
    .bind(column!(|n| n.digests.clone()))
    .bind(column!(|n| n.arguments.clone()))
    .bind(column!(|n| n.metadata.clone()))
    .bind(column!(|n| n.actor.clone()))
    .bind(column!(|n| n.ordering_key.clone()))
    .bind(column!(|n| n.not_before.map(database_time)))
    .bind(column!(|n| n.distinct_from.clone()))
    .bind(column!(|n| n.traceparent.clone()))
    .bind(column!(|n| n.twin_digest.clone()))
    .fetch_one(connection)
    .await?;
    Ok(inserted.into_iter().collect())
}

/// Reads the records that stand under (tenant, key), with arguments, without a lock. A statement of
/// its own, after the insert: it sees what the insert waited for.
///
/// # Errors
/// Nothing was read.
pub async fn standing(
    connection: &mut PgConnection,
    keys: &[(String, String)],
) -> Result<Vec<Loaded>, StoreError> {
    let (tenants, keys): (Vec<String>, Vec<String>) = keys.iter().cloned().unzip();
    let rows = sqlx::query(concat!(
        "select ",
        operation_columns!(),
        ", o.arguments::text as arguments, clock_timestamp() as now \
         from unnest($1::text[], $2::text[]) as k(tenant, key) \
         join oncebox.operations o on o.tenant_id = k.tenant and o.operation_key = k.key"
    ))
    .bind(&tenants)
    .bind(&keys)
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

/// Opens `seen` again with `new`, if the record is still rejected, never sent and as it was read.
/// False: read again and answer what is there.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn reopen_operation(
    connection: &mut PgConnection,
    seen: &Operation,
    new: &NewOperation,
) -> Result<bool, StoreError> {
    let opened = sqlx::query_scalar(
        "select oncebox.reopen_operation($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(seen.id)
    .bind(database_time(seen.updated_at))
    .bind(&new.tool)
    .bind(&new.tool_version)
    .bind(&new.fingerprint)
    .bind(&new.digests)
    .bind(&new.arguments)
    .bind(&new.metadata)
    .bind(&new.actor)
    .bind(&new.ordering_key)
    .bind(new.not_before.map(database_time))
    .bind(&new.distinct_from)
    .bind(&new.traceparent)
    .bind(&new.twin_digest)
    .fetch_one(connection)
    .await?;
    Ok(opened)
}
