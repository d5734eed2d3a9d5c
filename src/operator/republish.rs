//! `oncebox republish`

use serde_json::json;

use super::Context;
use super::failure::Failure;
use super::progress::Progress;
use crate::store;

/// Rows of one statement: a second's work, and short row locks.
const PAGE: i64 = 5000;

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let mut link = context.link();
    let begun = link.statement(async |connection| store::horizon(connection).await).await?.at;
    let progress = Progress::new(None, "operations");
    let mut published = 0;
    loop {
        // Whatever this call itself publishes has a message younger than `begun`, so this ends.
        let page = link
            .statement(async |connection| store::republish(connection, begun, PAGE).await)
            .await?;
        if page == 0 {
            break;
        }
        published += page;
        progress.add(page);
    }
    drop(progress);
    let text = format!("{published} operations published again");
    Ok(context.output.either(&json!({ "published": published }), &text)?)
}
