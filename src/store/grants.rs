//! Grants: which actor may send a tool's operations, and see their results.

use std::collections::{BTreeMap, HashMap};

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use time::OffsetDateTime;
use uuid::Uuid;

use super::StoreError;
use crate::domain::permission::Grant;

/// (tenant, actor, tool)
pub type Grantee = (String, String, String);

/// The grants that are in force now, by whom they are for. Takes no lock: a grant that is revoked
/// later is missed by the next look.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn grants(
    connection: &mut PgConnection,
    grantees: &[Grantee],
) -> Result<HashMap<Grantee, Vec<Grant>>, StoreError> {
    let mut found: HashMap<Grantee, Vec<Grant>> = HashMap::new();
    if grantees.is_empty() {
        return Ok(found);
    }
    let rows = sqlx::query(
        "select distinct g.grant_id, g.tenant_id, g.actor, g.tool_name, g.arguments::text as arguments \
         from unnest($1::text[], $2::text[], $3::text[]) as w(tenant, actor, tool) \
         join oncebox.grants g on g.tenant_id = w.tenant and g.actor = w.actor and g.tool_name = w.tool \
         where g.revoked_at is null and g.valid_from <= clock_timestamp() \
           and (g.valid_until is null or g.valid_until > clock_timestamp())",
    )
    .bind(grantees.iter().map(|(tenant, _, _)| tenant.as_str()).collect::<Vec<_>>())
    .bind(grantees.iter().map(|(_, actor, _)| actor.as_str()).collect::<Vec<_>>())
    .bind(grantees.iter().map(|(_, _, tool)| tool.as_str()).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    for row in &rows {
        let grantee = (row.try_get("tenant_id")?, row.try_get("actor")?, row.try_get("tool_name")?);
        let grant = match row.try_get("arguments")? {
            None => Some(Grant { arguments: BTreeMap::new() }),
            // A limit that cannot be read limits everything.
            Some(limits) => Grant::limited_to(limits).ok(),
        };
        found.entry(grantee).or_default().extend(grant);
    }
    Ok(found)
}

/// A grant to be given.
#[derive(Debug, Clone)]
pub struct NewGrant {
    /// Its id, so that a repeated write makes no second one.
    pub id: Uuid,
    /// To whom.
    pub grantee: Grantee,
    /// The limits, as JSON text that [`Grant::limited_to`] reads.
    pub arguments: Option<String>,
    /// From when on; now, if not given.
    pub from: Option<OffsetDateTime>,
    /// Until when; until it is revoked, if not given.
    pub until: Option<OffsetDateTime>,
    /// Who gives it.
    pub by: String,
}

/// Gives a grant; one of that id stays as it is.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn add_grant(connection: &mut PgConnection, new: &NewGrant) -> Result<(), StoreError> {
    let (tenant, actor, tool) = &new.grantee;
    sqlx::query(
        "insert into oncebox.grants (grant_id, tenant_id, actor, tool_name, arguments, valid_from, valid_until, granted_by) \
         values ($1, $2, $3, $4, $5::text::json, coalesce($6, clock_timestamp()), $7, $8) \
         on conflict (grant_id) do nothing",
    )
    .bind(new.id)
    .bind(tenant)
    .bind(actor)
    .bind(tool)
    .bind(&new.arguments)
    .bind(new.from)
    .bind(new.until)
    .bind(&new.by)
    .execute(connection)
    .await?;
    Ok(())
}

/// A grant as an operator sees it.
#[derive(Debug, Clone)]
pub struct ListedGrant {
    /// Its id.
    pub id: Uuid,
    /// To whom.
    pub grantee: Grantee,
    /// The limits, as JSON text.
    pub arguments: Option<String>,
    /// `in_force`, `not_yet`, `over` or `revoked`, by the database's clock.
    pub state: String,
    /// From when on.
    pub from: OffsetDateTime,
    /// Until when.
    pub until: Option<OffsetDateTime>,
    /// Who gave it.
    pub granted_by: String,
    /// When it was given.
    pub granted_at: OffsetDateTime,
    /// Who took it back.
    pub revoked_by: Option<String>,
    /// When it was taken back.
    pub revoked_at: Option<OffsetDateTime>,
}

/// Which grants a list shows.
#[derive(Debug, Clone, Default)]
pub struct GrantFilter {
    /// Only this one.
    pub id: Option<Uuid>,
    /// Only this tenant's.
    pub tenant: Option<String>,
    /// Only this actor's.
    pub actor: Option<String>,
    /// Only for this tool.
    pub tool: Option<String>,
    /// Also those that are over or revoked.
    pub all: bool,
    /// At most so many.
    pub limit: i64,
}

/// Lists grants, newest first. Takes no lock.
///
/// # Errors
/// Nothing was read.
pub async fn list_grants(
    connection: &mut PgConnection,
    filter: &GrantFilter,
) -> Result<Vec<ListedGrant>, StoreError> {
    let rows = sqlx::query(
        "select g.* from (select g.grant_id, g.tenant_id, g.actor, g.tool_name, g.arguments::text as arguments, \
             g.valid_from, g.valid_until, g.granted_by, g.granted_at, g.revoked_by, g.revoked_at, \
             case when g.revoked_at is not null then 'revoked' when g.valid_until <= clock_timestamp() then 'over' \
                  when g.valid_from > clock_timestamp() then 'not_yet' else 'in_force' end as state \
           from oncebox.grants g \
           where ($1::uuid is null or g.grant_id = $1) and ($2::text is null or g.tenant_id = $2) \
             and ($3::text is null or g.actor = $3) and ($4::text is null or g.tool_name = $4)) g \
         where $5 or g.state in ('in_force', 'not_yet') order by g.grant_id desc limit $6",
    )
    .bind(filter.id)
    .bind(&filter.tenant)
    .bind(&filter.actor)
    .bind(&filter.tool)
    .bind(filter.all)
    .bind(filter.limit)
    .fetch_all(connection)
    .await?;
    rows.iter().map(listed).collect()
}

fn listed(row: &PgRow) -> Result<ListedGrant, StoreError> {
    Ok(ListedGrant {
        id: row.try_get("grant_id")?,
        grantee: (row.try_get("tenant_id")?, row.try_get("actor")?, row.try_get("tool_name")?),
        arguments: row.try_get("arguments")?,
        state: row.try_get("state")?,
        from: row.try_get("valid_from")?,
        until: row.try_get("valid_until")?,
        granted_by: row.try_get("granted_by")?,
        granted_at: row.try_get("granted_at")?,
        revoked_by: row.try_get("revoked_by")?,
        revoked_at: row.try_get("revoked_at")?,
    })
}

/// Takes a grant back. False: there is none of this id, or it was revoked before.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn revoke_grant(
    connection: &mut PgConnection,
    id: Uuid,
    by: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "update oncebox.grants g set revoked_at = clock_timestamp(), revoked_by = $2 \
         where g.grant_id = $1 and g.revoked_at is null",
    )
    .bind(id)
    .bind(by)
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The tools that somebody has a grant for which is not over.
///
/// # Errors
/// Nothing was read.
pub async fn granted_tools(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    let tools = sqlx::query_scalar(
        "select distinct g.tool_name from oncebox.grants g \
         where g.revoked_at is null and (g.valid_until is null or g.valid_until > clock_timestamp())",
    )
    .fetch_all(connection)
    .await?;
    Ok(tools)
}
