//! `oncebox migrate`

use serde_json::json;

use super::Context;
use super::failure::{Failure, say};
use crate::store::{PublisherRole, migrate};

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let migrated = migrate(&context.config.database.url).await?;
    let row = |(version, name, applied): &(i32, &str, bool)| {
        let state = if *applied { "applied now" } else { "was there" };
        let cells = vec![version.to_string(), (*name).to_owned(), state.to_owned()];
        (cells, json!({ "version": version, "name": name, "applied_now": applied }))
    };
    let rows: Vec<_> = migrated.versions.iter().map(row).collect();
    context.output.rows(&["version", "name", "state"], &rows)?;
    if migrated.publisher == PublisherRole::Missing {
        say(&format!(
            "role oncebox_publisher is missing and this role may not create it; run this as a role with CREATEROLE, then migrate again: {}",
            PublisherRole::STATEMENT
        ));
    }
    Ok(())
}
