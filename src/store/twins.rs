//! Twins: operations of one digest, of which one goes at a time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;
use crate::domain::claim::Twins;
use crate::domain::operation::Timestamp;

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

/// For each of `asks`: whether a twin stands before it. Who is free takes the digest's row.
///
/// Takes the rows of `twins` in the order of their digests and waits for whoever holds them: claims
/// only, which wait for nothing else while they do. What is read of the records is read after that.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn twins(
    connection: &mut PgConnection,
    asks: &[TwinAsk],
) -> Result<HashMap<Uuid, Twins>, StoreError> {
    let mut by_digest: BTreeMap<&str, Vec<&TwinAsk>> = BTreeMap::new();
    for ask in asks {
        by_digest.entry(&ask.digest).or_default().push(ask);
    }
    let mut found = HashMap::new();
    if by_digest.is_empty() {
        return Ok(found);
    }
    for group in by_digest.values_mut() {
        group.sort_by_key(|ask| (ask.opened_at, ask.operation));
    }
    take_rows(connection, &by_digest).await?;
    let mut standing = standing(connection, asks).await?;
    let (mut digests, mut holders) = (Vec::new(), Vec::new());
    for (digest, group) in by_digest {
        let mut goes: Option<Uuid> = None;
        for ask in group {
            let Some(known) = standing.remove(&ask.operation) else { continue };
            // The one that goes of this very batch is not in the tables yet.
            let before = |other: &Uuid| !known.goes && !known.distinct.contains(other);
            let other = goes.filter(before);
            let twins = match (known.twins, other) {
                (Twins::Free, Some(other)) => Twins::Behind(other),
                (twins, _) => twins,
            };
            if twins == Twins::Free {
                goes = Some(ask.operation);
            }
            found.insert(ask.operation, twins);
        }
        if let Some(operation) = goes {
            digests.push(digest);
            holders.push(operation);
        }
    }
    hold(connection, &digests, &holders).await?;
    Ok(found)
}

async fn take_rows(
    connection: &mut PgConnection,
    by_digest: &BTreeMap<&str, Vec<&TwinAsk>>,
) -> Result<(), StoreError> {
    let digests: Vec<&str> = by_digest.keys().copied().collect();
    // A new row names nobody: who goes is decided below, when the tables have been read.
    sqlx::query(
        "insert into oncebox.twins (twin_digest, operation_id) \
         select n.digest, $2 from unnest($1::text[]) as n(digest) \
         order by n.digest collate \"C\" on conflict (twin_digest) do nothing",
    )
    .bind(&digests)
    .bind(Uuid::nil())
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "select t.operation_id from oncebox.twins t where t.twin_digest = any($1) \
         order by t.twin_digest for no key update",
    )
    .bind(&digests)
    .execute(connection)
    .await?;
    Ok(())
}

struct Standing {
    twins: Twins,
    /// It holds the digest's row since an earlier claim.
    goes: bool,
    /// Those of its batch that it is knowingly distinct from.
    distinct: Vec<Uuid>,
}

/// What the tables say of each: the one that it is held behind, if that was applied; the digest's
/// row, if another stands in it that has not ended; an older one that has not ended and is not merely
/// waiting for its time; one that was applied a moment ago.
async fn standing(
    connection: &mut PgConnection,
    asks: &[TwinAsk],
) -> Result<HashMap<Uuid, Standing>, StoreError> {
    let rows = sqlx::query(
        "select o.operation_id, \
           (select b.operation_id from oncebox.operations b \
            where b.operation_id = o.held_behind and b.status = 'applied' \
              and b.operation_key is distinct from o.distinct_from) as applied, \
           (select h.operation_id from oncebox.operations h \
            where h.operation_id = t.operation_id and h.operation_id <> o.operation_id \
              and h.status in ('pending', 'unknown') and h.twin_digest = a.digest \
              and h.operation_key is distinct from o.distinct_from) as holder, \
           t.operation_id = o.operation_id as goes, \
           (select p.operation_id from oncebox.operations p \
            where p.twin_digest = a.digest and p.operation_id <> o.operation_id and p.status in ('pending', 'unknown') \
              and (p.opened_at, p.operation_id) < (o.opened_at, o.operation_id) \
              and not (p.status = 'pending' and p.phase = 'queued' and p.due_at > clock_timestamp()) \
              and p.operation_key is distinct from o.distinct_from \
            order by p.opened_at, p.operation_id limit 1) as older, \
           (select p.operation_id from oncebox.operations p \
            where a.within > 0 and p.twin_digest = a.digest and p.operation_id <> o.operation_id and p.status = 'applied' \
              and p.updated_at > clock_timestamp() - make_interval(secs => a.within) \
              and p.operation_key is distinct from o.distinct_from \
            order by p.updated_at desc limit 1) as recent, \
           array(select d.operation_id from oncebox.operations d \
                 where d.operation_id = any($1) and d.operation_key = o.distinct_from and d.tenant_id = o.tenant_id) as distinct_from \
         from unnest($1::uuid[], $2::text[], $3::float8[]) as a(operation, digest, within) \
         join oncebox.operations o on o.operation_id = a.operation \
         join oncebox.twins t on t.twin_digest = a.digest",
    )
    .bind(asks.iter().map(|ask| ask.operation).collect::<Vec<_>>())
    .bind(asks.iter().map(|ask| ask.digest.as_str()).collect::<Vec<_>>())
    .bind(asks.iter().map(|ask| ask.within.as_secs_f64()).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let applied: Option<Uuid> = row.try_get("applied")?;
            let recent: Option<Uuid> = row.try_get("recent")?;
            let holder: Option<Uuid> = row.try_get("holder")?;
            // Whoever goes already is held behind nobody that turns up later.
            let goes: bool = row.try_get("goes")?;
            let older: Option<Uuid> = row.try_get::<Option<Uuid>, _>("older")?.filter(|_| !goes);
            let twins = match (applied.or(recent), holder.or(older)) {
                (Some(applied), _) => Twins::Applied(applied),
                (None, Some(other)) => Twins::Behind(other),
                (None, None) => Twins::Free,
            };
            let distinct = row.try_get("distinct_from")?;
            Ok((row.try_get("operation_id")?, Standing { twins, goes, distinct }))
        })
        .collect()
}

async fn hold(
    connection: &mut PgConnection,
    digests: &[&str],
    holders: &[Uuid],
) -> Result<(), StoreError> {
    if digests.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "update oncebox.twins t set operation_id = n.operation, taken_at = clock_timestamp() \
         from unnest($1::text[], $2::uuid[]) as n(digest, operation) \
         where t.twin_digest = n.digest and t.operation_id <> n.operation",
    )
    .bind(digests)
    .bind(holders)
    .execute(connection)
    .await?;
    Ok(())
}

/// The key of the older operation that `operation` is or was held behind.
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
