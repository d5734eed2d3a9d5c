//! The outbox: messages that the broker has not confirmed.
//!
//! Taking a row moves its `due_at` ahead by the relay's lease. Nothing is locked while the broker is
//! awaited, and a relay that dies gives its rows back by doing nothing.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use sqlx::types::time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;
use super::row::{database_time, timestamp};
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::outcome::ResultEvent;

/// The queue of result events. No tool can have this name.
pub const RESULTS: &str = "results";

/// Writes an outbox row for each of `due`, to be published from the given time on.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn enqueue(
    connection: &mut PgConnection,
    due: &[(&Operation, Timestamp)],
) -> Result<(), StoreError> {
    if due.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at) \
         select * from unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[])",
    )
    .bind(due.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
    .bind(due.iter().map(|(record, _)| record.tool.clone()).collect::<Vec<_>>())
    .bind(due.iter().map(|(record, _)| record.tenant.clone()).collect::<Vec<_>>())
    .bind(due.iter().map(|(record, _)| record.id).collect::<Vec<_>>())
    .bind(due.iter().map(|(record, _)| record.key.clone()).collect::<Vec<_>>())
    .bind(due.iter().map(|(record, _)| record.traceparent.clone()).collect::<Vec<_>>())
    .bind(due.iter().map(|(_, at)| database_time(*at)).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes the result event of each of `ended`, which have just come to an ending, with the words of
/// this moment. The row is no message for the record: nothing that looks for one may count it.
///
/// # Errors
/// The transaction is to be rolled back.
pub(super) async fn announce(
    connection: &mut PgConnection,
    ended: &[&Operation],
) -> Result<(), StoreError> {
    if ended.is_empty() {
        return Ok(());
    }
    let event = |record: &&Operation| ResultEvent::of(record);
    let events = ended.iter().map(event).collect::<Result<Vec<_>, _>>();
    let events = events.map_err(|_| StoreError::Unreadable("the envelope of a result event"))?;
    sqlx::query(
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at, event_routing, event_body) \
         select e.id, $1, e.tenant, e.operation, e.key, e.traceparent, clock_timestamp(), e.routing, e.body::json \
         from unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[]) \
           as e(id, tenant, operation, key, traceparent, routing, body)",
    )
    .bind(RESULTS)
    .bind(ended.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
    .bind(ended.iter().map(|record| record.tenant.clone()).collect::<Vec<_>>())
    .bind(ended.iter().map(|record| record.id).collect::<Vec<_>>())
    .bind(ended.iter().map(|record| record.key.clone()).collect::<Vec<_>>())
    .bind(ended.iter().map(|record| record.traceparent.clone()).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.routing_key.clone()).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.body.clone()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes an outbox row for each of `ids`, `wait` from now, without touching the records: for
/// deliveries whose row stayed busy, and for workers that lack a version.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn enqueue_later(
    connection: &mut PgConnection,
    ids: &[Uuid],
    wait: Duration,
) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at) \
         select oncebox.new_id(), o.tool_name, o.tenant_id, o.operation_id, o.operation_key, o.traceparent, \
                clock_timestamp() + make_interval(secs => $2) \
         from oncebox.operations o where o.operation_id = any($1)",
    )
    .bind(ids)
    .bind(wait.as_secs_f64())
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes an outbox row for the next operation that waits behind each of `finished` in its ordering
/// key. The caller holds the row locks of `finished`, under which waiting is marked.
pub(super) async fn enqueue_next_in_order(
    connection: &mut PgConnection,
    finished: &[Uuid],
) -> Result<(), StoreError> {
    if finished.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at) \
         select oncebox.new_id(), w.tool_name, w.tenant_id, w.operation_id, w.operation_key, w.traceparent, clock_timestamp() \
         from oncebox.operations o cross join lateral ( \
            select n.* from oncebox.operations n \
            where n.tenant_id = o.tenant_id and n.environment = o.environment and n.tool_name = o.tool_name \
              and n.ordering_key = o.ordering_key and n.order_number > o.order_number \
              and n.status = 'pending' and n.waiting_for_order \
            order by n.order_number limit 1) w \
         where o.operation_id = any($1)",
    )
    .bind(finished)
    .execute(connection)
    .await?;
    Ok(())
}

/// A row that this relay may publish until its lease ends.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The row's id, and the message's.
    pub id: Uuid,
    /// The tool's name, which is the routing key; or [`RESULTS`].
    pub queue: String,
    /// What is to be said, and to whom, if the row is a result event.
    pub event: Option<ResultEvent>,
    /// The record's tenant.
    pub tenant: String,
    /// The record.
    pub operation: Uuid,
    /// The record's whole key.
    pub key: String,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
    /// Tries so far that the broker did not confirm.
    pub attempts: u32,
    /// Since when it was due.
    pub due_at: Timestamp,
    /// How long it had been due.
    pub waited: Duration,
    /// Until when it is ours: what was written into its `due_at`, and so the proof that nobody has
    /// taken it since.
    pub leased_until: Timestamp,
}

/// What a relay asks of one queue.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The queue.
    pub queue: String,
    /// The scan begins at this time: nothing older can be there any more.
    pub from: Option<Timestamp>,
    /// At most so many rows.
    pub room: i64,
}

/// Takes due rows of each queue asked for, oldest first, for `lease`. Locks `for update skip locked`
/// inside; the caller commits before anything is published.
///
/// Needs the planner settings of [`super::Link::transaction`]: a plan that was made while the table
/// was small would join it from end to end, with all dead rows, at every pass.
///
/// # Errors
/// After a lost answer the rows come back when the lease ends.
pub async fn take(
    connection: &mut PgConnection,
    asks: &[Ask],
    lease: Duration,
) -> Result<Vec<Taken>, StoreError> {
    let rows = sqlx::query(
        // now() is some microseconds old here, and unlike clock_timestamp() it can bound an index scan.
        "with found as materialized ( \
            select r.* from unnest($1::text[], $2::timestamptz[], $3::bigint[]) as q(queue, from_time, room) \
            cross join lateral ( \
                select x.id, x.due_at from oncebox.outbox x \
                where x.queue = q.queue and x.due_at >= coalesce(q.from_time, '-infinity') and x.due_at <= now() \
                order by x.due_at, x.id limit q.room for update skip locked) r) \
         update oncebox.outbox o set due_at = now() + make_interval(secs => $4) from found f where o.id = f.id \
         returning o.id, o.queue, o.event_routing, o.event_body::text as event_body, o.tenant_id, o.operation_id, o.operation_key, o.traceparent, o.attempts, f.due_at as was_due, \
                   o.due_at as leased_until, extract(epoch from now() - f.due_at)::float8 as waited",
    )
    .bind(asks.iter().map(|ask| ask.queue.clone()).collect::<Vec<_>>())
    .bind(asks.iter().map(|ask| ask.from.map(database_time)).collect::<Vec<_>>())
    .bind(asks.iter().map(|ask| ask.room).collect::<Vec<_>>())
    .bind(lease.as_secs_f64())
    .fetch_all(connection)
    .await?;
    let mut taken = rows.iter().map(taken).collect::<Result<Vec<_>, StoreError>>()?;
    taken.sort_by_key(|row| (row.due_at, row.id));
    Ok(taken)
}

fn taken(row: &sqlx::postgres::PgRow) -> Result<Taken, StoreError> {
    let event = match (row.try_get("event_routing")?, row.try_get("event_body")?) {
        (Some(routing_key), Some(body)) => Some(ResultEvent { routing_key, body }),
        (Some(_) | None, _) => None,
    };
    Ok(Taken {
        id: row.try_get("id")?,
        queue: row.try_get("queue")?,
        event,
        tenant: row.try_get("tenant_id")?,
        operation: row.try_get("operation_id")?,
        key: row.try_get("operation_key")?,
        traceparent: row.try_get("traceparent")?,
        attempts: u32::try_from(row.try_get::<i32, _>("attempts")?).unwrap_or_default(),
        due_at: timestamp(row.try_get::<OffsetDateTime, _>("was_due")?),
        waited: Duration::try_from_secs_f64(row.try_get("waited")?).unwrap_or_default(),
        leased_until: timestamp(row.try_get::<OffsetDateTime, _>("leased_until")?),
    })
}

/// Removes rows that the broker has confirmed. Zero rows: somebody else removed them.
///
/// # Errors
/// After a lost answer rows may be published again, under the same message ids.
pub async fn remove(connection: &mut PgConnection, ids: &[Uuid]) -> Result<u64, StoreError> {
    let done = sqlx::query("delete from oncebox.outbox o where o.id = any($1)")
        .bind(ids)
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}

/// Dates the last message of each of `operations` to now: its row waited so long that the sweep would
/// otherwise take the message for lost the moment the row is gone, and publish a drained backlog
/// twice. Records that somebody works on are left alone.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn published_late(
    connection: &mut PgConnection,
    operations: &[Uuid],
) -> Result<(), StoreError> {
    sqlx::query(
        "with late as materialized ( \
            select o.operation_id from oncebox.operations o \
            where o.operation_id = any($1) and o.phase in ('queued', 'retry_scheduled') \
            order by o.operation_id for no key update skip locked) \
         update oncebox.operations o set queued_at = clock_timestamp() \
         from late l where o.operation_id = l.operation_id",
    )
    .bind(operations)
    .execute(connection)
    .await?;
    Ok(())
}

/// A row that was not confirmed.
#[derive(Debug, Clone)]
pub struct Unconfirmed {
    /// The row.
    pub id: Uuid,
    /// As it was taken.
    pub leased_until: Timestamp,
    /// When it may be tried again, from now.
    pub wait: Duration,
    /// A short code for what happened.
    pub error: &'static str,
}

/// Gives rows back for a later try, visibly. A row that another relay has taken since is left to it.
///
/// # Errors
/// After a lost answer the rows come back when the lease ends.
pub async fn give_back(
    connection: &mut PgConnection,
    rows: &[Unconfirmed],
) -> Result<(), StoreError> {
    sqlx::query(
        "update oncebox.outbox o set attempts = o.attempts + 1, last_error = r.error, \
                due_at = clock_timestamp() + make_interval(secs => r.wait) \
         from unnest($1::uuid[], $2::float8[], $3::text[], $4::timestamptz[]) as r(id, wait, error, leased_until) \
         where o.id = r.id and o.due_at = r.leased_until",
    )
    .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.wait.as_secs_f64()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.error).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| database_time(row.leased_until)).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// What may still commit, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Horizon {
    /// The database's clock at that moment.
    pub at: Timestamp,
    /// Transactions below this id have ended.
    pub ended_below: i64,
    /// Transactions from this id on had not begun.
    pub begun_below: i64,
}

/// Reads the [`Horizon`].
///
/// # Errors
/// Nothing is known.
pub async fn horizon(connection: &mut PgConnection) -> Result<Horizon, StoreError> {
    // now() is older than the statement's snapshot, so that what begins after the snapshot is dated
    // after `at`; clock_timestamp() would be younger. A snapshot's xmax is one past the last id that
    // *ended*: open transactions can lie beyond it. age() counts back from the next id to be given,
    // in 32 bits, which xmax completes.
    let row = sqlx::query(
        "select now() as at, s.xmin as ended, \
                s.xmax + ((((age('3'::xid)::bigint + 3) & 4294967295) - (s.xmax & 4294967295)) & 4294967295) as begun \
         from (select pg_snapshot_xmin(c.snap)::text::bigint as xmin, pg_snapshot_xmax(c.snap)::text::bigint as xmax \
               from (select pg_current_snapshot() as snap) c) s",
    )
    .fetch_one(connection)
    .await?;
    Ok(Horizon {
        at: timestamp(row.try_get::<OffsetDateTime, _>("at")?),
        ended_below: row.try_get("ended")?,
        begun_below: row.try_get("begun")?,
    })
}

/// When the next row of `queues` falls due, if one does `within` so long. Rows that were published
/// leave dead index entries where their lease would have ended: a longer look would walk over them.
///
/// # Errors
/// Nothing is known.
pub async fn next_due(
    connection: &mut PgConnection,
    queues: &[String],
    within: Duration,
) -> Result<Option<Duration>, StoreError> {
    let wait: Option<f64> = sqlx::query_scalar(
        "select extract(epoch from min(r.due_at) - now())::float8 from unnest($1::text[]) as q(queue) cross join lateral ( \
            select x.due_at from oncebox.outbox x \
            where x.queue = q.queue and x.due_at > now() and x.due_at <= now() + make_interval(secs => $2) \
            order by x.due_at limit 1) r",
    )
    .bind(queues)
    .bind(within.as_secs_f64())
    .fetch_one(connection)
    .await?;
    Ok(wait.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))))
}

/// The tools' queues that rows wait for: one look at the index each.
///
/// # Errors
/// Nothing is known.
pub async fn waiting_queues(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar(
        "with recursive queues(queue) as ( \
            select min(x.queue) from oncebox.outbox x \
            union all \
            select (select min(x.queue) from oncebox.outbox x where x.queue > q.queue) \
            from queues q where q.queue is not null) \
         select q.queue from queues q where q.queue is not null and q.queue <> $1",
    )
    .bind(RESULTS)
    .fetch_all(connection)
    .await?)
}
