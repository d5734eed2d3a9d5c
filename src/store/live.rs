//! Live claims of tools whose contract bounds them over all processes.

use std::collections::HashMap;

use sqlx::postgres::PgConnection;

use super::StoreError;

/// A tool's claims whose lease has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveClaims {
    /// Of the owner who asks.
    pub own: u32,
    /// Of everybody else.
    pub elsewhere: u32,
}

impl LiveClaims {
    /// Everybody's.
    #[must_use]
    pub fn all(self) -> u32 {
        self.own.saturating_add(self.elsewhere)
    }
}

/// Takes the locks under which claims of `tools` are counted and made: transaction-level, and only
/// those that nobody holds now. A tool that is missing from the answer is being claimed by another
/// worker. Never waits, so nobody waits for rows that the caller has locked, and locks taken in any
/// order cannot end in a deadlock.
///
/// A process that freezes while it holds one is cut off by the server after five idle seconds; until
/// then nobody claims the tool.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn lock_claims(
    connection: &mut PgConnection,
    tools: &[String],
) -> Result<Vec<String>, StoreError> {
    let asked: Vec<(String, bool, String)> = sqlx::query_as(
        "select t.tool, pg_try_advisory_xact_lock(hashtextextended('live claims' || chr(1) || t.tool, 0)), \
                set_config('idle_in_transaction_session_timeout', '5s', true) \
         from unnest($1::text[]) as t(tool)",
    )
    .bind(tools)
    .fetch_all(connection)
    .await?;
    Ok(asked.into_iter().filter_map(|(tool, held, _)| held.then_some(tool)).collect())
}

/// Counts the live claims of `tools`, with those of `owner` apart. The caller holds their locks, taken
/// in an earlier statement: what this one sees holds every claim made under them before.
///
/// # Errors
/// The transaction is to be rolled back.
pub async fn live_claims(
    connection: &mut PgConnection,
    tools: &[String],
    owner: &str,
) -> Result<HashMap<String, LiveClaims>, StoreError> {
    // Not clock_timestamp(), which changes from row to row and so cannot be looked up in an index.
    let counted: Vec<(String, i64, i64)> = sqlx::query_as(
        "select o.tool_name, count(*) filter (where o.owner = $2), count(*) filter (where o.owner <> $2) \
         from oncebox.operations o \
         where o.tool_name = any($1) and o.lease_until > statement_timestamp() and o.phase in ('claimed', 'sent') \
         group by o.tool_name",
    )
    .bind(tools)
    .bind(owner)
    .fetch_all(connection)
    .await?;
    let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    let live = |(tool, own, elsewhere)| {
        (tool, LiveClaims { own: number(own), elsewhere: number(elsewhere) })
    };
    Ok(counted.into_iter().map(live).collect())
}
