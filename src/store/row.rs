//! Between the table's columns and [`Operation`].

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use time::{OffsetDateTime, PrimitiveDateTime};

use super::StoreError;
use crate::domain::attempt::Job;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::lifecycle::State;
use crate::domain::operation::{
    DownstreamKey, Lease, Operation, Order, ProviderJob, Timestamp, Token, Twin,
};
use crate::domain::reason::Reason;

/// The columns that [`operation`] reads, of a table called `o`.
macro_rules! operation_columns {
    () => {
        "o.operation_id, o.tenant_id, o.environment, o.operation_key, o.tool_name, o.tool_version, \
         o.request_fingerprint, o.material_digests::text as material_digests, o.status, o.phase, o.reason, o.due_at, \
         o.lease_until, o.owner, o.claim_epoch, o.attempts, o.lost_claims, o.deferrals, o.opened_at, o.first_sent_at, \
         o.attempts_over_at, o.provider_job, o.accepted_at, o.job_alone, o.lookups, o.next_lookup_at, o.unresolved_since, \
         o.twin_digest, o.held_behind, o.twin_released, o.actor, \
         o.key_first_used_at, o.downstream_key, o.downstream_key_id, o.queued_at, o.sweeps, o.ordering_key, \
         o.order_number, o.waiting_for_order, o.order_released, o.effect_reference, \
         o.response_json::text as response_json, o.response_dropped, o.results, o.traceparent, o.updated_at"
    };
}
pub(super) use operation_columns;

/// A record with its arguments and the database's time of the read.
#[derive(Debug)]
pub struct Loaded {
    /// The record.
    pub operation: Operation,
    /// Its arguments as they were stored; absent when it has ended or they were dropped.
    pub arguments: Option<String>,
    /// The database's clock when the row was read.
    pub now: Timestamp,
}

/// A time of the database as the domain's.
pub(super) fn timestamp(at: OffsetDateTime) -> Timestamp {
    Timestamp(i64::try_from(at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX))
}

/// A time of the domain as the database's; outside its range, the nearest there is.
pub(super) fn database_time(at: Timestamp) -> OffsetDateTime {
    let nearest = if at.0 < 0 { PrimitiveDateTime::MIN } else { PrimitiveDateTime::MAX };
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1000)
        .unwrap_or(nearest.assume_utc())
}

fn when(row: &PgRow, column: &str) -> Result<Option<Timestamp>, sqlx::Error> {
    Ok(row.try_get::<Option<OffsetDateTime>, _>(column)?.map(timestamp))
}

fn moment(row: &PgRow, column: &str) -> Result<Timestamp, sqlx::Error> {
    Ok(timestamp(row.try_get(column)?))
}

fn count(row: &PgRow, column: &str) -> Result<u32, sqlx::Error> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or_default())
}

/// The record in `row`, which has the columns of [`operation_columns`].
pub(super) fn operation(row: &PgRow) -> Result<Operation, StoreError> {
    let status: String = row.try_get("status")?;
    let phase: Option<String> = row.try_get("phase")?;
    let state = State::from_columns(&status, phase.as_deref())
        .ok_or(StoreError::Unreadable("status and phase"))?;
    let fingerprint = match row.try_get::<Option<String>, _>("request_fingerprint")? {
        Some(text) => Some(
            Fingerprint::parse(&text).map_err(|_| StoreError::Unreadable("request_fingerprint"))?,
        ),
        None => None,
    };
    let lease = match (row.try_get("owner")?, when(row, "lease_until")?) {
        (Some(owner), Some(until)) => Some(Lease { owner, until }),
        (Some(_) | None, _) => None,
    };
    let downstream_key = match (row.try_get("downstream_key")?, row.try_get("downstream_key_id")?) {
        (Some(key), Some(secret_id)) => Some(DownstreamKey { key, secret_id }),
        (Some(_) | None, _) => None,
    };
    let order = match (row.try_get("ordering_key")?, row.try_get("order_number")?) {
        (Some(key), Some(number)) => Some(Order {
            key,
            number,
            waiting: row.try_get("waiting_for_order")?,
            released: row.try_get("order_released")?,
        }),
        (Some(_) | None, _) => None,
    };
    Ok(Operation {
        id: row.try_get("operation_id")?,
        tenant: row.try_get("tenant_id")?,
        environment: row.try_get("environment")?,
        key: row.try_get("operation_key")?,
        tool: row.try_get("tool_name")?,
        tool_version: row.try_get("tool_version")?,
        fingerprint,
        digests: row.try_get("material_digests")?,
        state,
        reason: row
            .try_get::<Option<String>, _>("reason")?
            .and_then(|code| Reason::from_code(&code)),
        due_at: moment(row, "due_at")?,
        lease,
        token: Token(row.try_get("claim_epoch")?),
        attempts: count(row, "attempts")?,
        lost_claims: count(row, "lost_claims")?,
        deferrals: count(row, "deferrals")?,
        opened_at: moment(row, "opened_at")?,
        first_sent_at: when(row, "first_sent_at")?,
        attempts_over_at: when(row, "attempts_over_at")?,
        key_first_used_at: when(row, "key_first_used_at")?,
        downstream_key,
        queued_at: moment(row, "queued_at")?,
        sweeps: count(row, "sweeps")?,
        order,
        job: job(row)?,
        lookups: count(row, "lookups")?,
        next_lookup_at: when(row, "next_lookup_at")?,
        unresolved_since: when(row, "unresolved_since")?,
        twin: twin(row)?,
        actor: row.try_get("actor")?,
        effect_reference: row.try_get("effect_reference")?,
        response: row.try_get("response_json")?,
        response_dropped: row.try_get("response_dropped")?,
        results: row.try_get("results")?,
        traceparent: row.try_get("traceparent")?,
        updated_at: moment(row, "updated_at")?,
    })
}

fn job(row: &PgRow) -> Result<Option<ProviderJob>, StoreError> {
    let accepted = (row.try_get::<Option<String>, _>("provider_job")?, when(row, "accepted_at")?);
    let (Some(id), Some(accepted_at)) = accepted else { return Ok(None) };
    let id = Job::new(id).ok_or(StoreError::Unreadable("provider_job"))?;
    Ok(Some(ProviderJob { id, accepted_at, alone: row.try_get("job_alone")? }))
}

fn twin(row: &PgRow) -> Result<Option<Twin>, StoreError> {
    let Some(digest) = row.try_get("twin_digest")? else { return Ok(None) };
    let (held_behind, released) = (row.try_get("held_behind")?, row.try_get("twin_released")?);
    Ok(Some(Twin { digest, held_behind, released }))
}
