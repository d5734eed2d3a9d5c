//! Who stands before and behind an operation of an ordering key.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::StoreError;

/// The neighbourhood of an operation in its ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InOrder {
    /// The oldest earlier one that is unfinished and not released: nothing passes it.
    pub head: Option<Uuid>,
    /// Whether a later one is pending.
    pub waited_for: bool,
}

/// Looks before and behind an operation; takes no lock. `None`: it has no ordering key.
///
/// # Errors
/// Nothing was read.
pub async fn in_order(
    connection: &mut PgConnection,
    operation: Uuid,
) -> Result<Option<InOrder>, StoreError> {
    let found: Option<(Option<Uuid>, bool)> = sqlx::query_as(
        "select \
           (select p.operation_id from oncebox.operations p \
            where p.tenant_id = o.tenant_id and p.environment = o.environment and p.tool_name = o.tool_name \
              and p.ordering_key = o.ordering_key and p.order_number < o.order_number \
              and p.status in ('pending', 'unknown') and not p.order_released \
            order by p.order_number limit 1), \
           exists (select from oncebox.operations n \
            where n.tenant_id = o.tenant_id and n.environment = o.environment and n.tool_name = o.tool_name \
              and n.ordering_key = o.ordering_key and n.order_number > o.order_number \
              and n.status = 'pending') \
         from oncebox.operations o where o.operation_id = $1 and o.ordering_key is not null",
    )
    .bind(operation)
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|(head, waited_for)| InOrder { head, waited_for }))
}
