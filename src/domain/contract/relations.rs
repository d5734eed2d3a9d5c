//! What must hold between the parts of a contract.

use std::time::Duration;

use serde_json::Value;

use crate::domain::pointer::Pointer;

/// What a lease and a window carry for a fail-over's clock jump.
pub const DEFAULT_MARGIN: Duration = Duration::from_secs(5);

/// Whether the schema makes every step of the way to a place required.
pub(super) fn is_required(schema: &Value, pointer: &Pointer) -> bool {
    let mut at = schema;
    pointer.tokens().iter().all(|token| {
        let required = at
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.iter().any(|name| name.as_str() == Some(token)));
        match at.get("properties").and_then(|properties| properties.get(token)) {
            Some(inner) if required => {
                at = inner;
                true
            }
            Some(_) | None => false,
        }
    })
}
