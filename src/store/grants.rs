//! Grants: which actor may send a tool's operations.

use std::collections::{BTreeMap, HashMap};

use sqlx::Row as _;
use sqlx::postgres::PgConnection;

use super::StoreError;
use crate::domain::json::{self, Json, JsonLimits};
use crate::domain::permission::Grant;
use crate::domain::pointer::Pointer;

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
        let grantee =
            (row.try_get("tenant_id")?, row.try_get("actor")?, row.try_get("tool_name")?);
        // A limit that cannot be read limits everything.
        if let Some(arguments) = limits(row.try_get("arguments")?) {
            found.entry(grantee).or_default().push(Grant { arguments });
        }
    }
    Ok(found)
}

/// The limits of a grant: an object of places, each with the values that are allowed there, or one
/// value alone.
fn limits(text: Option<&str>) -> Option<BTreeMap<Pointer, Vec<Json>>> {
    let Some(text) = text else { return Some(BTreeMap::new()) };
    let Json::Object(members) = json::parse(text.as_bytes(), &JsonLimits::default()).ok()? else {
        return None;
    };
    members
        .into_iter()
        .map(|(place, allowed)| {
            let allowed = match allowed {
                Json::Array(values) => values,
                one @ (Json::Null
                | Json::Bool(_)
                | Json::Number(_)
                | Json::String(_)
                | Json::Object(_)) => vec![one],
            };
            Some((Pointer::parse(&place).ok()?, allowed))
        })
        .collect()
}
