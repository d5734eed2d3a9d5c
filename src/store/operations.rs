//! The operation record: lock, write, look.

use std::collections::{HashMap, HashSet};

use sqlx::postgres::PgConnection;
use sqlx::{Row as _, types::time::OffsetDateTime};
use uuid::Uuid;

use super::row::{self, Loaded, operation_columns};
use super::{StoreError, trace};
use crate::domain::claim::Predecessor;
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::reason::Reason;
use crate::domain::step::Step;

/// Reads the records of `$1` in their order, under the given lock.
macro_rules! locking {
    ($arguments:literal, $lock:literal) => {
        concat!(
            "select ",
            operation_columns!(),
            ", ",
            $arguments,
            " as arguments, clock_timestamp() as now from oncebox.operations o \
             where o.operation_id = any($1) order by o.operation_id ",
            $lock
        )
    };
}

/// Locks what can be locked now of `ids`, in their order, and reads it with arguments.
///
/// Takes `for no key update skip locked`: a missing id is busy, or has no record; [`existing`] tells
/// which.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn lock_free(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<Loaded>, StoreError> {
    let with_arguments = locking!(
        "case when o.status = 'pending' then o.arguments::text end",
        "for no key update skip locked"
    );
    lock(connection, with_arguments, ids).await
}

/// Locks what can be locked now of `ids`, as [`lock_free`] does, and reads it without arguments.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn lock_now(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<Loaded>, StoreError> {
    lock(connection, locking!("null::text", "for no key update skip locked"), ids).await
}

/// Locks all of `ids` in their order, waiting for whoever holds them, and reads them without
/// arguments. A missing id has no record.
///
/// # Errors
/// The transaction is to be rolled back; a lock that stayed held too long is one of the causes.
pub async fn lock_all(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<Loaded>, StoreError> {
    lock(connection, locking!("null::text", "for no key update"), ids).await
}

async fn lock(
    connection: &mut PgConnection,
    locking: &'static str,
    ids: &[Uuid],
) -> Result<Vec<Loaded>, StoreError> {
    let rows = sqlx::query(locking).bind(ids).fetch_all(connection).await?;
    rows.iter().map(loaded).collect()
}

fn loaded(row: &sqlx::postgres::PgRow) -> Result<Loaded, StoreError> {
    Ok(Loaded {
        operation: row::operation(row)?,
        arguments: row.try_get("arguments")?,
        now: row::timestamp(row.try_get::<OffsetDateTime, _>("now")?),
    })
}

/// Which of `ids` have a record. Takes no lock.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn existing(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashSet<Uuid>, StoreError> {
    let found = sqlx::query_scalar(
        "select o.operation_id from oncebox.operations o where o.operation_id = any($1)",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(found.into_iter().collect())
}

/// For each of `ordered` (locked records with an ordering key): whether an earlier one is
/// unfinished. The nearest unfinished one is locked (`for no key update skip locked`) and read again
/// under that lock, so that its settle, which needs the lock, finds the mark of who waits.
///
/// An id that is missing from the answer has a predecessor that is busy now: try again.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn predecessors(
    connection: &mut PgConnection,
    ordered: &[Uuid],
) -> Result<HashMap<Uuid, Predecessor>, StoreError> {
    if ordered.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<(Uuid, Option<Uuid>)> = sqlx::query_as(
        "select o.operation_id, (select p.operation_id from oncebox.operations p \
            where p.tenant_id = o.tenant_id and p.environment = o.environment and p.tool_name = o.tool_name \
              and p.ordering_key = o.ordering_key and p.order_number < o.order_number \
              and p.status in ('pending', 'unknown') and not p.order_released \
            order by p.order_number desc limit 1) \
         from oncebox.operations o where o.operation_id = any($1)",
    )
    .bind(ordered)
    .fetch_all(&mut *connection)
    .await?;
    let earlier: Vec<Uuid> = found.iter().filter_map(|(_, predecessor)| *predecessor).collect();
    let locked: Vec<Uuid> = sqlx::query_scalar(
        "select p.operation_id from oncebox.operations p where p.operation_id = any($1) \
           and p.status in ('pending', 'unknown') and not p.order_released \
         order by p.operation_id for no key update skip locked",
    )
    .bind(&earlier)
    .fetch_all(connection)
    .await?;
    let answer = |(id, predecessor): (Uuid, Option<Uuid>)| match predecessor {
        None => Some((id, Predecessor::Finished)),
        Some(earlier) => locked.contains(&earlier).then_some((id, Predecessor::Unfinished)),
    };
    Ok(found.into_iter().filter_map(answer).collect())
}

/// Writes `steps`, whose records the caller holds locked: the records under their fencing token, the
/// trace, the messages that fall due, the result events of endings, and a message for whoever waited
/// for one that finished.
///
/// # Errors
/// [`StoreError::Fenced`] when a record was not as it was read: roll back.
pub async fn write(connection: &mut PgConnection, steps: &[&Step]) -> Result<(), StoreError> {
    if steps.is_empty() {
        return Ok(());
    }
    let written = update(connection, steps).await?;
    if written != u64::try_from(steps.len()).unwrap_or(u64::MAX) {
        return Err(StoreError::Fenced);
    }
    let renumbered: Vec<Uuid> =
        steps.iter().filter(|step| step.renumbered).map(|step| step.record.id).collect();
    renumber(connection, &renumbered).await?;
    trace::append(connection, steps).await?;
    let due: Vec<(&Operation, Timestamp)> =
        steps.iter().filter_map(|step| step.publish_at.map(|at| (&step.record, at))).collect();
    super::outbox::enqueue(connection, &due).await?;
    let ended: Vec<&Operation> =
        steps.iter().filter(|step| step.announces).map(|step| &step.record).collect();
    super::outbox::announce(connection, &ended).await?;
    let freed: Vec<Uuid> =
        steps.iter().filter(|step| step.frees_order).map(|step| step.record.id).collect();
    super::outbox::enqueue_next_in_order(connection, &freed).await?;
    let asking: Vec<Uuid> =
        steps.iter().filter(|step| step.asks_approval).map(|step| step.record.id).collect();
    super::approvals::request(connection, &asking).await?;
    super::twins::wake(connection, steps).await
}

/// Gives locked records the next numbers of their ordering keys, under the lock that makes numbers
/// follow commits. Their age follows the number: twins go by age, and must not wait across.
async fn renumber(connection: &mut PgConnection, ids: &[Uuid]) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "select pg_advisory_xact_lock(l.key) from (select distinct \
           oncebox.order_lock(o.tenant_id, o.environment, o.tool_name, o.ordering_key) as key \
           from oncebox.operations o where o.operation_id = any($1) order by 1) l",
    )
    .bind(ids)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "update oncebox.operations o set order_number = nextval('oncebox.order_numbers'), opened_at = clock_timestamp(), \
           waiting_for_order = false, order_released = false where o.operation_id = any($1)",
    )
    .bind(ids)
    .execute(connection)
    .await?;
    Ok(())
}

async fn update(connection: &mut PgConnection, steps: &[&Step]) -> Result<u64, StoreError> {
    let records: Vec<&Operation> = steps.iter().map(|step| &step.record).collect();
    let time = |at: Option<Timestamp>| at.map(row::database_time);
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    macro_rules! column {
        (|$r:ident| $value:expr) => {
            records.iter().map(|$r| $value).collect::<Vec<_>>()
        };
    }
    let done = sqlx::query(
        "update oncebox.operations o set \
           request_fingerprint = n.fingerprint, material_digests = n.digests::json, status = n.status, phase = n.phase, \
           reason = n.reason, due_at = n.due_at, lease_until = n.lease_until, owner = n.owner, claim_epoch = n.epoch, \
           attempts = n.attempts, lost_claims = n.lost_claims, deferrals = n.deferrals, opened_at = n.opened_at, \
           first_sent_at = n.first_sent_at, key_first_used_at = n.key_first_used_at, downstream_key = n.downstream_key, \
           downstream_key_id = n.downstream_key_id, queued_at = n.queued_at, sweeps = n.sweeps, \
           waiting_for_order = n.waiting, order_released = n.released, effect_reference = n.effect_reference, \
           response_json = n.response::json, response_dropped = n.response_dropped, \
           attempts_over_at = n.attempts_over_at, provider_job = n.job, accepted_at = n.accepted_at, job_alone = n.job_alone, \
           lookups = n.lookups, next_lookup_at = n.next_lookup_at, twin_digest = n.twin_digest, held_behind = n.held_behind, \
           twin_released = n.twin_released, updated_at = clock_timestamp(), \
           unresolved_since = case when n.status = 'unknown' or n.phase = 'parked' \
             then coalesce(o.unresolved_since, clock_timestamp()) end \
         from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
           $8::timestamptz[], $9::timestamptz[], $10::text[], $11::bigint[], $12::int[], $13::int[], $14::int[], \
           $15::timestamptz[], $16::timestamptz[], $17::timestamptz[], $18::text[], $19::text[], $20::timestamptz[], \
           $21::int[], $22::boolean[], $23::boolean[], $24::text[], $25::text[], $26::boolean[], $27::timestamptz[], \
           $28::text[], $29::timestamptz[], $30::boolean[], $31::int[], $32::timestamptz[], $33::text[], $34::uuid[], $35::boolean[]) \
           as n(id, read_epoch, fingerprint, digests, status, phase, reason, due_at, lease_until, owner, epoch, attempts, \
             lost_claims, deferrals, opened_at, first_sent_at, key_first_used_at, downstream_key, downstream_key_id, \
             queued_at, sweeps, waiting, released, effect_reference, response, response_dropped, attempts_over_at, job, \
             accepted_at, job_alone, lookups, next_lookup_at, twin_digest, held_behind, twin_released) \
         where o.operation_id = n.id and o.claim_epoch = n.read_epoch",
    )
    .bind(column!(|r| r.id))
    .bind(steps.iter().map(|step| step.read_token.0).collect::<Vec<_>>())
    .bind(column!(|r| r.fingerprint.as_ref().map(|f| f.as_str().to_owned())))
    .bind(column!(|r| r.digests.clone()))
    .bind(column!(|r| r.state.columns().0))
    .bind(column!(|r| r.state.columns().1))
    .bind(column!(|r| r.reason.map(Reason::code)))
    .bind(column!(|r| row::database_time(r.due_at)))
    .bind(column!(|r| time(r.lease.as_ref().map(|lease| lease.until))))
    .bind(column!(|r| r.lease.as_ref().map(|lease| lease.owner.clone())))
    .bind(column!(|r| r.token.0))
    .bind(column!(|r| number(r.attempts)))
    .bind(column!(|r| number(r.lost_claims)))
    .bind(column!(|r| number(r.deferrals)))
    .bind(column!(|r| row::database_time(r.opened_at)))
    .bind(column!(|r| time(r.first_sent_at)))
    .bind(column!(|r| time(r.key_first_used_at)))
    .bind(column!(|r| r.downstream_key.as_ref().map(|k| k.key.clone())))
    .bind(column!(|r| r.downstream_key.as_ref().map(|k| k.secret_id.clone())))
    .bind(column!(|r| row::database_time(r.queued_at)))
    .bind(column!(|r| number(r.sweeps)))
    .bind(column!(|r| r.order.as_ref().is_some_and(|order| order.waiting)))
    .bind(column!(|r| r.order.as_ref().is_some_and(|order| order.released)))
    .bind(column!(|r| r.effect_reference.clone()))
    .bind(column!(|r| r.response.clone()))
    .bind(column!(|r| r.response_dropped))
    .bind(column!(|r| time(r.attempts_over_at)))
    .bind(column!(|r| r.job.as_ref().map(|job| job.id.as_str().to_owned())))
    .bind(column!(|r| time(r.job.as_ref().map(|job| job.accepted_at))))
    .bind(column!(|r| r.job.as_ref().is_some_and(|job| job.alone)))
    .bind(column!(|r| number(r.lookups)))
    .bind(column!(|r| time(r.next_lookup_at)))
    .bind(column!(|r| r.twin.as_ref().map(|twin| twin.digest.clone())))
    .bind(column!(|r| r.twin.as_ref().and_then(|twin| twin.held_behind)))
    .bind(column!(|r| r.twin.as_ref().is_some_and(|twin| twin.released)))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Names one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// By its id.
    Id(Uuid),
    /// By tenant and whole key.
    Key {
        /// The tenant.
        tenant: String,
        /// The whole operation key.
        key: String,
    },
}

/// Reads one record without a lock, with arguments if it is pending.
///
/// # Errors
/// Nothing was read.
pub async fn look(
    connection: &mut PgConnection,
    which: &Which,
) -> Result<Option<Loaded>, StoreError> {
    let (id, tenant, key) = match which {
        Which::Id(id) => (Some(*id), None, None),
        Which::Key { tenant, key } => (None, Some(tenant.as_str()), Some(key.as_str())),
    };
    let found = sqlx::query(concat!(
        "select ", operation_columns!(), ", o.arguments::text as arguments, clock_timestamp() as now \
         from oncebox.operations o where o.operation_id = $1 or (o.tenant_id = $2 and o.operation_key = $3)"
    ))
    .bind(id)
    .bind(tenant)
    .bind(key)
    .fetch_optional(connection)
    .await?;
    found.as_ref().map(loaded).transpose()
}

/// Which records a list shows.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only this tool's.
    pub tool: Option<String>,
    /// Only this `status`.
    pub status: Option<String>,
    /// Only this `phase`.
    pub phase: Option<String>,
    /// Only records with an id below this one: the next page.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: i64,
}

/// Lists records, newest first, without a lock and without arguments.
///
/// # Errors
/// Nothing was read.
pub async fn list(
    connection: &mut PgConnection,
    filter: &Filter,
) -> Result<Vec<Loaded>, StoreError> {
    let rows = sqlx::query(concat!(
        "select ",
        operation_columns!(),
        ", null::text as arguments, clock_timestamp() as now \
         from oncebox.operations o \
         where ($1::text is null or o.tenant_id = $1) and ($2::text is null or o.tool_name = $2) \
           and ($3::text is null or o.status = $3) and ($4::text is null or o.phase = $4) \
           and ($5::uuid is null or o.operation_id < $5) \
         order by o.operation_id desc limit $6"
    ))
    .bind(&filter.tenant)
    .bind(&filter.tool)
    .bind(&filter.status)
    .bind(&filter.phase)
    .bind(filter.before)
    .bind(filter.limit)
    .fetch_all(connection)
    .await?;
    rows.iter().map(loaded).collect()
}
