//! What nobody works on: records whose message was lost, leases that ran out, waiters whose turn has
//! come.
//!
//! Each function locks what it finds (`for no key update skip locked`), looks again under the lock,
//! and writes the outbox row in the same statement, so that nothing acts on a stale read. A record
//! with an outbox row is never published again: the backlog waits there, and a pass can add at most
//! what the broker holds. A result event that waits there is no message for the record.

use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;
use super::row::{database_time, timestamp};
use super::twins::{applied_meanwhile, goes_before, waits_before};
use crate::domain::operation::Timestamp;

/// What every published record gets; `f` is the locked record.
macro_rules! publish {
    ($($found:expr),+) => {
        concat!(
            "with found as materialized (", $($found,)+ "), counted as ( \
                update oncebox.operations o set queued_at = clock_timestamp(), sweeps = o.sweeps + 1 \
                from found f where o.operation_id = f.operation_id) \
             insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at) \
             select oncebox.new_id(), f.tool_name, f.tenant_id, f.operation_id, f.operation_key, f.traceparent, clock_timestamp() \
             from found f"
        )
    };
}

/// A record in the sweep's order. The time alone would not do: records that were scheduled for the
/// same moment can be more than a page, and those behind the page would never be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// When its last message was written.
    pub queued_at: Timestamp,
    /// The record.
    pub operation: Uuid,
}

/// Where a sweep goes on from, and how many it published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Rows published again.
    pub published: u64,
    /// The last record looked at; `None`: the end was reached, begin again.
    pub next: Option<Looked>,
}

/// Publishes again what is queued or scheduled, due, not waiting for order, has no outbox row, and
/// whose last message is older than one minute doubled with each sweep. Looks at `page` records from
/// `from` on.
///
/// # Errors
/// Nothing was published, or after a lost answer perhaps once.
pub async fn sweep(
    connection: &mut PgConnection,
    from: Option<Looked>,
    page: i64,
) -> Result<Swept, StoreError> {
    let looked: Vec<(Uuid, OffsetDateTime)> = sqlx::query_as(
        "select o.operation_id, o.queued_at from oncebox.operations o \
         where o.status = 'pending' and o.queued_at >= coalesce($1, '-infinity') and o.queued_at < now() - interval '1 minute' \
           and (o.queued_at > coalesce($1, '-infinity') or o.operation_id > $2) \
         order by o.queued_at, o.operation_id limit $3",
    )
    .bind(from.map(|last| database_time(last.queued_at)))
    .bind(from.map_or(Uuid::nil(), |last| last.operation))
    .bind(page)
    .fetch_all(&mut *connection)
    .await?;
    let full = i64::try_from(looked.len()).unwrap_or(i64::MAX) >= page;
    let last = |(operation, at): &(Uuid, OffsetDateTime)| Looked {
        queued_at: timestamp(*at),
        operation: *operation,
    };
    let next = looked.last().filter(|_| full).map(last);
    let ids: Vec<Uuid> = looked.iter().map(|(id, _)| *id).collect();
    let published = sqlx::query(publish!(
        "select o.* from oncebox.operations o \
         where o.operation_id = any($1) and o.phase in ('queued', 'retry_scheduled') and o.due_at <= now() \
           and not o.waiting_for_order and o.lease_until is null \
           and o.queued_at < now() - interval '1 minute' * (2 ^ least(o.sweeps, 12)) \
           and not exists (select from oncebox.outbox x where x.operation_id = o.operation_id and x.event_routing is null) \
         order by o.operation_id for no key update skip locked"
    ))
    .bind(&ids)
    .execute(connection)
    .await?;
    Ok(Swept { published: published.rows_affected(), next })
}

/// Publishes at once the records whose lease ran out, each again only after one minute doubled with
/// each sweep. Looks at every registered tool: only a worker claims, and it registers what it serves.
///
/// # Errors
/// Nothing was published, or after a lost answer perhaps once.
pub async fn publish_expired_leases(
    connection: &mut PgConnection,
    most: i64,
) -> Result<u64, StoreError> {
    let published = sqlx::query(publish!(
        "select l.* from (select distinct c.tool_name from oncebox.contracts c) t cross join lateral ( \
            select o.* from oncebox.operations o \
            where o.tool_name = t.tool_name and o.lease_until < now() and o.phase in ('claimed', 'sent') \
              and (o.queued_at < o.lease_until or o.queued_at < now() - interval '1 minute' * (2 ^ least(o.sweeps, 12))) \
              and not exists (select from oncebox.outbox x where x.operation_id = o.operation_id and x.event_routing is null) \
            order by o.lease_until limit $1 for no key update skip locked) l limit $1"
    ))
    .bind(most)
    .execute(connection)
    .await?;
    Ok(published.rows_affected())
}

/// Publishes waiters of an ordering key whose predecessors are all finished or released: the wake-up
/// by the settle was lost. `least_age_seconds` is how old their last message must be.
///
/// # Errors
/// Nothing was published, or after a lost answer perhaps once.
pub async fn publish_waiters(
    connection: &mut PgConnection,
    least_age_seconds: f64,
    most: i64,
) -> Result<u64, StoreError> {
    let published = sqlx::query(publish!(
        "select o.* from oncebox.operations o \
         where o.ordering_key is not null and o.waiting_for_order and o.status = 'pending' and o.phase in ('queued', 'retry_scheduled') \
           and o.queued_at < now() - make_interval(secs => $1 * (2 ^ least(o.sweeps, 12))) \
           and not exists (select from oncebox.operations p \
                where p.tenant_id = o.tenant_id and p.environment = o.environment and p.tool_name = o.tool_name \
                  and p.ordering_key = o.ordering_key and p.order_number < o.order_number \
                  and p.status in ('pending', 'unknown') and not p.order_released) \
           and not exists (select from oncebox.outbox x where x.operation_id = o.operation_id and x.event_routing is null) \
         order by o.operation_id limit $2 for no key update skip locked"
    ))
    .bind(least_age_seconds)
    .bind(most)
    .execute(connection)
    .await?;
    Ok(published.rows_affected())
}

/// Publishes what waits for a date and not for a worker, when the date has come: a job's poll, an
/// unanswered request for approval, a twin held long enough. Also twins whose wake-up was lost, or
/// was one too many at once: nobody stands before them, or one was applied. `least_age_seconds` is how
/// long its own message may take.
///
/// # Errors
/// Nothing was published, or after a lost answer perhaps once.
pub async fn publish_dated(
    connection: &mut PgConnection,
    least_age_seconds: f64,
    most: i64,
) -> Result<u64, StoreError> {
    let published = sqlx::query(publish!(
        "select o.* from oncebox.operations o \
         where o.phase in ('held', 'awaiting_approval', 'accepted') \
           and (o.due_at < now() - make_interval(secs => $1) \
                or (o.phase = 'held' and ( \
                      (not exists (select from oncebox.operations p where ", goes_before!(), ") \
                       and not exists (select from oncebox.operations p where ", waits_before!(), ")) \
                      or exists (select from oncebox.operations p where ", applied_meanwhile!(), ")))) \
           and (o.queued_at < now() - make_interval(secs => $1) or o.queued_at > now()) \
           and (o.sweeps = 0 or o.queued_at < now() - interval '1 minute' * (2 ^ least(o.sweeps, 12))) \
           and not exists (select from oncebox.outbox x where x.operation_id = o.operation_id and x.event_routing is null) \
         order by o.due_at limit $2 for no key update of o skip locked"
    ))
    .bind(least_age_seconds)
    .bind(most)
    .execute(connection)
    .await?;
    Ok(published.rows_affected())
}

/// `republish`: publishes up to `most` of what is due and has no outbox row, whatever its age. Rows
/// published since `since` are left alone, so that repeating until zero ends.
///
/// # Errors
/// Nothing was published, or after a lost answer perhaps once.
pub async fn republish(
    connection: &mut PgConnection,
    since: Timestamp,
    most: i64,
) -> Result<u64, StoreError> {
    let published = sqlx::query(publish!(
        "select o.* from oncebox.operations o \
         where o.status = 'pending' and o.queued_at < $1 and o.due_at <= now() \
           and ((o.phase in ('queued', 'retry_scheduled') and not o.waiting_for_order) \
                or o.phase in ('held', 'awaiting_approval', 'accepted') \
                or (o.phase in ('claimed', 'sent') and o.lease_until < now())) \
           and not exists (select from oncebox.outbox x where x.operation_id = o.operation_id and x.event_routing is null) \
         order by o.queued_at limit $2 for no key update skip locked"
    ))
    .bind(database_time(since))
    .bind(most)
    .execute(connection)
    .await?;
    Ok(published.rows_affected())
}
