//! The registry: every contract version's whole text, and which version is current.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use super::StoreError;
use crate::domain::contract::Contract;

/// A registered contract version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The tool.
    pub tool: String,
    /// The version.
    pub version: String,
    /// The contract file's text as it was registered.
    pub text: String,
    /// The digest of its material part.
    pub material_digest: String,
    /// Submissions that name no version get this one.
    pub current: bool,
}

/// What of a contract the registry keeps in columns, because statements need it. None of it is
/// material: it may change without a new version, and the last one to register says so.
#[derive(Debug, Clone, Copy, Default)]
pub struct Immaterial<'a> {
    /// Whether endings are announced, of operations submitted from then on.
    pub results: bool,
    /// Whom an unknown goes to.
    pub owner: Option<&'a str>,
    /// How soon they answer.
    pub respond_within: Option<Duration>,
}

impl<'a> Immaterial<'a> {
    /// What `contract` says.
    #[must_use]
    pub fn of(contract: &'a Contract) -> Self {
        let owner = contract.owner.as_ref();
        Self {
            results: contract.results,
            owner: owner.map(|owner| owner.reconciliation.as_str()),
            respond_within: owner.and_then(|owner| owner.respond_within),
        }
    }
}

/// Registers a version if it is missing; never overwrites its text, never changes which is current,
/// except that a tool's very first version becomes current. Answers what stands in the registry now.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn register(
    connection: &mut PgConnection,
    tool: &str,
    version: &str,
    text: &str,
    material_digest: &str,
    immaterial: Immaterial<'_>,
) -> Result<Registered, StoreError> {
    // Two workers that start at once must agree on which version was the first.
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('oncebox contract ' || $1, 0))")
        .bind(tool)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "insert into oncebox.contracts (tool_name, tool_version, contract_text, material_digest, is_current, \
           results, owner, respond_within) \
         select $1, $2, $3, $4, not exists (select from oncebox.contracts c where c.tool_name = $1), \
           $5, $6, make_interval(secs => $7) \
         on conflict (tool_name, tool_version) do update \
         set results = excluded.results, owner = excluded.owner, respond_within = excluded.respond_within \
         where (contracts.results, contracts.owner, contracts.respond_within) \
             is distinct from (excluded.results, excluded.owner, excluded.respond_within) \
           and contracts.material_digest = excluded.material_digest",
    )
    .bind(tool)
    .bind(version)
    .bind(text)
    .bind(material_digest)
    .bind(immaterial.results)
    .bind(immaterial.owner)
    .bind(immaterial.respond_within.map(|within| within.as_secs_f64()))
    .execute(&mut *connection)
    .await?;
    find(connection, tool, version).await?.ok_or(StoreError::Unreadable("contracts"))
}

/// The registered version, if it is.
///
/// # Errors
/// Nothing was read.
pub async fn find(
    connection: &mut PgConnection,
    tool: &str,
    version: &str,
) -> Result<Option<Registered>, StoreError> {
    let row = sqlx::query(
        "select c.tool_name, c.tool_version, c.contract_text, c.material_digest, c.is_current \
         from oncebox.contracts c where c.tool_name = $1 and c.tool_version = $2",
    )
    .bind(tool)
    .bind(version)
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(registered).transpose()
}

/// Every registered version.
///
/// # Errors
/// Nothing was read.
pub async fn registry(connection: &mut PgConnection) -> Result<Vec<Registered>, StoreError> {
    let rows = sqlx::query(
        "select c.tool_name, c.tool_version, c.contract_text, c.material_digest, c.is_current \
         from oncebox.contracts c order by c.tool_name, c.registered_at, c.tool_version",
    )
    .fetch_all(connection)
    .await?;
    rows.iter().map(registered).collect()
}

fn registered(row: &sqlx::postgres::PgRow) -> Result<Registered, StoreError> {
    Ok(Registered {
        tool: row.try_get("tool_name")?,
        version: row.try_get("tool_version")?,
        text: row.try_get("contract_text")?,
        material_digest: row.try_get("material_digest")?,
        current: row.try_get("is_current")?,
    })
}

/// The names of all registered tools: the queues there are.
///
/// # Errors
/// Nothing was read.
pub async fn tools(connection: &mut PgConnection) -> Result<HashSet<String>, StoreError> {
    let tools = sqlx::query_scalar("select distinct c.tool_name from oncebox.contracts c")
        .fetch_all(connection)
        .await?;
    Ok(tools.into_iter().collect())
}

/// Makes a registered version its tool's current one. False: it is not registered.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn activate(
    connection: &mut PgConnection,
    tool: &str,
    version: &str,
) -> Result<bool, StoreError> {
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('oncebox contract ' || $1, 0))")
        .bind(tool)
        .execute(&mut *connection)
        .await?;
    if find(connection, tool, version).await?.is_none() {
        return Ok(false);
    }
    sqlx::query("update oncebox.contracts c set is_current = false where c.tool_name = $1 and c.is_current and c.tool_version <> $2")
        .bind(tool)
        .bind(version)
        .execute(&mut *connection)
        .await?;
    sqlx::query("update oncebox.contracts c set is_current = true where c.tool_name = $1 and c.tool_version = $2")
        .bind(tool)
        .bind(version)
        .execute(connection)
        .await?;
    Ok(true)
}

/// The version that a submission gets: the one it names if it is registered, else the current one.
///
/// # Errors
/// Nothing was read.
pub async fn version_for(
    connection: &mut PgConnection,
    tool: &str,
    named: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let version = sqlx::query_scalar(
        "select c.tool_version from oncebox.contracts c \
         where c.tool_name = $1 and case when $2::text is null then c.is_current else c.tool_version = $2 end",
    )
    .bind(tool)
    .bind(named)
    .fetch_optional(connection)
    .await?;
    Ok(version)
}
