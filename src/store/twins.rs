//! Twins: operations of one digest, of which one goes at a time.
//!
//! The digest's row in `twins` is a lock and nothing more. Who asks for its twins holds it until its
//! decision is committed, and so does who ends: no claim misses another's, and no end misses who is
//! held. What counts stands in the records: who goes has `twin_released`, who waits is `held`.
//!
//! The rows are the last that a transaction waits for, and are taken in one order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use uuid::Uuid;

use super::StoreError;
use crate::domain::claim::Twins;
use crate::domain::operation::Timestamp;
use crate::domain::step::{Step, Wakes};

/// Whether the open record `p` that goes already stands before its twin `o`.
macro_rules! goes_before {
    () => {
        "p.twin_digest = o.twin_digest and p.status in ('pending', 'unknown') and p.twin_released \
         and p.operation_id <> o.operation_id \
         and p.operation_key is distinct from o.distinct_from and p.distinct_from is distinct from o.operation_key"
    };
}

/// Whether the open record `p` that waits stands before its twin `o`: it is older and its time has come.
/// Of one ordering key the numbers say who is older.
macro_rules! waits_before {
    () => {
        "p.twin_digest = o.twin_digest and p.status in ('pending', 'unknown') and not p.twin_released \
         and (p.opened_at, p.operation_id) < (o.opened_at, o.operation_id) \
         and not (p.status = 'pending' and p.phase = 'queued' and p.due_at > clock_timestamp()) \
         and not coalesce(p.ordering_key = o.ordering_key and p.order_number > o.order_number, false) \
         and p.operation_key is distinct from o.distinct_from and p.distinct_from is distinct from o.operation_key"
    };
}

/// Whether the effect of `p` came about while its twin `o` waited. One that was undone came about too:
/// whether it shall be made again is a new decision.
macro_rules! applied_meanwhile {
    () => {
        "p.twin_digest = o.twin_digest and p.status in ('applied', 'failed_permanent') \
         and (p.status = 'applied' or p.reason = 'compensated') and p.updated_at > o.opened_at and p.operation_id <> o.operation_id \
         and p.operation_key is distinct from o.distinct_from and p.distinct_from is distinct from o.operation_key"
    };
}

pub(super) use {applied_meanwhile, goes_before, waits_before};

/// A first claim that asks for its twins.
#[derive(Debug, Clone)]
pub struct TwinAsk {
    /// The record, locked by the caller.
    pub operation: Uuid,
    /// Its digest.
    pub digest: String,
    /// When it was opened: its age.
    pub opened_at: Timestamp,
    /// How long an applied one still counts.
    pub within: Duration,
}

/// For each of `asks`: whether a twin stands before it. `others` are the digests of records that the
/// same transaction may end: locked with the rest, so that all are taken in one order.
///
/// Waits for whoever holds a digest. What is read of the records is read after that.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn twins(
    connection: &mut PgConnection,
    asks: &[TwinAsk],
    others: &[&str],
) -> Result<HashMap<Uuid, Twins>, StoreError> {
    let asked = asks.iter().map(|ask| ask.digest.as_str());
    lock(connection, &asked.chain(others.iter().copied()).collect()).await?;
    let mut standing = standing(connection, asks).await?;
    let mut in_order: Vec<&TwinAsk> = asks.iter().collect();
    in_order.sort_by_key(|ask| (ask.opened_at, ask.operation));
    // Those that go of this very batch do not go in the tables yet.
    let mut going: BTreeMap<&str, Vec<(Uuid, Said)>> = BTreeMap::new();
    let mut found = HashMap::new();
    for ask in in_order {
        let Some((twins, said)) = standing.remove(&ask.operation) else { continue };
        let going = going.entry(&ask.digest).or_default();
        let before = going.iter().find(|(_, other)| !said.distinct(other));
        let twins = match (twins, before) {
            (Twins::Free, Some((other, _))) => Twins::Behind(*other),
            (twins, _) => twins,
        };
        if twins == Twins::Free {
            going.push((ask.operation, said));
        }
        found.insert(ask.operation, twins);
    }
    Ok(found)
}

/// Locks the rows of `digests` in one order, and makes those that are missing.
async fn lock(connection: &mut PgConnection, digests: &BTreeSet<&str>) -> Result<(), StoreError> {
    if digests.is_empty() {
        return Ok(());
    }
    // A row that exists is locked by the update that is never made; one that is being removed is
    // waited for, and made again.
    sqlx::query(
        "insert into oncebox.twins as t (twin_digest) \
         select n.digest from unnest($1::text[]) as n(digest) order by n.digest collate \"C\" \
         on conflict (twin_digest) do update set made_at = t.made_at where false",
    )
    .bind(digests.iter().copied().collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// What the application said of an operation.
struct Said {
    key: String,
    distinct_from: Option<String>,
}

impl Said {
    /// Whether one of the two is knowingly distinct from the other.
    fn distinct(&self, other: &Self) -> bool {
        self.distinct_from.as_ref() == Some(&other.key)
            || other.distinct_from.as_ref() == Some(&self.key)
    }
}

/// What the tables say of each: a twin that was applied while it waited, or `within`; one that stands
/// before it, those that go first.
async fn standing(
    connection: &mut PgConnection,
    asks: &[TwinAsk],
) -> Result<HashMap<Uuid, (Twins, Said)>, StoreError> {
    if asks.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query(concat!(
        // Computed once a record: a bound that may change while it is read cannot search an index.
        "with asking as materialized ( \
            select o.operation_id, o.operation_key, o.held_behind, o.distinct_from, o.ordering_key, o.order_number, \
              o.opened_at, a.digest as twin_digest, o.phase = 'held' or o.waiting_for_order as waited, \
              case when a.within > 0 then clock_timestamp() - make_interval(secs => a.within) end as since \
            from unnest($1::uuid[], $2::text[], $3::float8[]) as a(operation, digest, within) \
            join oncebox.operations o on o.operation_id = a.operation) \
         select o.operation_id, o.operation_key, o.distinct_from, coalesce( \
           (select p.operation_id from oncebox.operations p \
            where o.waited and p.operation_id = o.held_behind and ", applied_meanwhile!(), "), \
           (select p.operation_id from oncebox.operations p \
            where o.waited and ", applied_meanwhile!(), " order by p.updated_at limit 1), \
           (select p.operation_id from oncebox.operations p \
            where p.twin_digest = o.twin_digest and p.status = 'applied' and p.status in ('applied', 'failed_permanent') \
              and p.updated_at > o.since and p.operation_id <> o.operation_id \
              and p.operation_key is distinct from o.distinct_from and p.distinct_from is distinct from o.operation_key \
            order by p.updated_at desc limit 1)) as applied, coalesce( \
           (select p.operation_id from oncebox.operations p where ", goes_before!(), " \
            order by p.opened_at, p.operation_id limit 1), \
           (select p.operation_id from oncebox.operations p where ", waits_before!(), " \
            order by p.opened_at, p.operation_id limit 1)) as before \
         from asking o",
    ))
    .bind(asks.iter().map(|ask| ask.operation).collect::<Vec<_>>())
    .bind(asks.iter().map(|ask| ask.digest.as_str()).collect::<Vec<_>>())
    .bind(asks.iter().map(|ask| ask.within.as_secs_f64()).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| Ok((row.try_get("operation_id")?, stands(row)?))).collect()
}

fn stands(row: &PgRow) -> Result<(Twins, Said), StoreError> {
    let twins = match (row.try_get("applied")?, row.try_get("before")?) {
        (Some(applied), _) => Twins::Applied(applied),
        (None, Some(other)) => Twins::Behind(other),
        (None, None) => Twins::Free,
    };
    let (key, distinct_from) = (row.try_get("operation_key")?, row.try_get("distinct_from")?);
    Ok((twins, Said { key, distinct_from }))
}

/// How many are woken by one end that rejects them all; maintain finds the rest.
const WOKEN_AT_ONCE: i64 = 100;

/// Writes a message for those whom the ends in `steps` wake, and removes the rows of digests that
/// nobody open has any more. The caller has written the records of `steps`.
///
/// Locks the digests first: a claim that is about to hold somebody behind one of these either commits
/// before and is found here, or reads what ended.
pub(super) async fn wake(connection: &mut PgConnection, steps: &[&Step]) -> Result<(), StoreError> {
    let mut woken: BTreeMap<&str, i64> = BTreeMap::new();
    for step in steps {
        let Some(twin) = step.record.twin.as_ref().filter(|_| step.frees_twins) else { continue };
        let many = match step.wakes() {
            Wakes::Next => 1,
            Wakes::All => WOKEN_AT_ONCE,
        };
        let known = woken.entry(&twin.digest).or_default();
        *known = many.max(*known);
    }
    if woken.is_empty() {
        return Ok(());
    }
    lock(connection, &woken.keys().copied().collect()).await?;
    let (digests, many): (Vec<&str>, Vec<i64>) = woken.into_iter().unzip();
    sqlx::query(
        "with gone as ( \
            delete from oncebox.twins t where t.twin_digest = any($1) and not exists ( \
              select from oncebox.operations o where o.twin_digest = t.twin_digest and o.status in ('pending', 'unknown'))) \
         insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at) \
         select oncebox.new_id(), h.tool_name, h.tenant_id, h.operation_id, h.operation_key, h.traceparent, clock_timestamp() \
         from unnest($1::text[], $2::bigint[]) as w(digest, many) cross join lateral ( \
            select o.* from oncebox.operations o \
            where o.twin_digest = w.digest and o.status in ('pending', 'unknown') and not o.twin_released and o.phase = 'held' \
            order by o.opened_at, o.operation_id limit w.many) h",
    )
    .bind(digests)
    .bind(many)
    .execute(connection)
    .await?;
    Ok(())
}

/// The key of the twin that `operation` is held behind, or was rejected for.
///
/// # Errors
/// Nothing was read.
pub async fn held_behind_key(
    connection: &mut PgConnection,
    operation: Uuid,
) -> Result<Option<String>, StoreError> {
    let key = sqlx::query_scalar(
        "select oncebox.held_behind_key(o) from oncebox.operations o where o.operation_id = $1",
    )
    .bind(operation)
    .fetch_optional(connection)
    .await?;
    Ok(key.flatten())
}
