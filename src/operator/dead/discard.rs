//! `oncebox dead discard`

use serde_json::json;

use super::{DiscardFlags, closed, missing};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::store;

pub(super) async fn run(context: &Context, flags: &DiscardFlags) -> Result<(), Failure> {
    let resolution = flags.decided.text("discarded");
    let mut link = context.link();
    let letter = link
        .transaction(async |connection| {
            let Some(letter) = store::kept_letter(connection, flags.letter).await? else {
                return Ok(None);
            };
            if letter.resolution.is_none() {
                store::close_letter(connection, flags.letter, &resolution).await?;
            }
            Ok(Some(letter))
        })
        .await?;
    let letter = letter.ok_or_else(missing)?;
    if let Some(before) = &letter.resolution {
        return Err(closed(before));
    }
    let object = json!({ "dead_letter_id": letter.id, "resolution": resolution });
    Ok(context.output.either(&object, &format!("{} is discarded", letter.id))?)
}
