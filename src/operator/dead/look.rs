//! `oncebox dead list` and `show`

use clap::Args;
use serde_json::{Value, json};
use uuid::Uuid;

use super::missing;
use crate::operator::Context;
use crate::operator::arguments::{letter_id, limit};
use crate::operator::failure::Failure;
use crate::operator::output::shown;
use crate::operator::record;
use crate::store::{self, KeptLetter, Which};

/// List parked messages that nobody has dealt with, oldest first
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  oncebox dead list --all --json")]
pub(in crate::operator) struct ListFlags {
    /// Those that were dealt with, too
    #[arg(long)]
    all: bool,

    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = limit)]
    limit: u32,
}

/// Show a parked message, and the record that it names
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox dead show 0190a6f0-0000-7000-8000-000000000000 --with-content"
)]
pub(in crate::operator) struct ShowFlags {
    /// The letter's id, as `dead list` prints it
    #[arg(value_parser = letter_id)]
    letter: Uuid,

    /// Print the message's body and headers too; they may hold anything
    #[arg(long)]
    with_content: bool,
}

pub(super) async fn list(context: &Context, flags: &ListFlags) -> Result<(), Failure> {
    let mut link = context.link();
    let (all, limit) = (flags.all, i64::from(flags.limit));
    let letters = link
        .statement(async |connection| store::kept_letters(connection, all, limit).await)
        .await?;
    let row = |letter: &KeptLetter| {
        let operation = letter.operation.map(|id| id.to_string()).unwrap_or_default();
        let cells = vec![
            letter.id.to_string(),
            record::time_text(letter.at),
            letter.queue.clone(),
            letter.reason.clone(),
            operation,
            letter.copies.to_string(),
            letter.resolution.clone().unwrap_or_default(),
        ];
        (cells, object(letter))
    };
    let titles = ["letter", "at", "queue", "reason", "operation", "copies", "resolution"];
    Ok(context.output.rows(&titles, &letters.iter().map(row).collect::<Vec<_>>())?)
}

pub(super) async fn show(context: &Context, flags: &ShowFlags) -> Result<(), Failure> {
    let mut link = context.link();
    let found = link
        .transaction(async |connection| {
            let Some(letter) = store::kept_letter(connection, flags.letter).await? else {
                return Ok(None);
            };
            let named = match letter.operation {
                Some(id) => store::look(connection, &Which::Id(id)).await?,
                None => None,
            };
            Ok(Some((letter, named)))
        })
        .await?;
    let (letter, named) = found.ok_or_else(missing)?;
    let mut object = object(&letter);
    let record = named.as_ref().map(|loaded| record::state_text(&loaded.operation));
    let next = next_step(&letter, record.as_deref());
    if let Some(members) = object.as_object_mut() {
        members.insert("record_state".to_owned(), json!(record));
        members.insert("next_step".to_owned(), json!(next));
        if flags.with_content {
            members.insert("headers".to_owned(), json!(letter.headers));
            members.insert("body".to_owned(), json!(body_text(&letter.body)));
        }
    }
    if context.output.json() {
        return Ok(context.output.object(&object)?);
    }
    let set = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (!value.is_null()).then(|| format!("{name:<16} {}", shown(&text)))
    };
    let lines: Vec<String> = object.as_object().into_iter().flatten().filter_map(set).collect();
    Ok(context.output.line(&lines.join("\n"))?)
}

fn object(letter: &KeptLetter) -> Value {
    json!({
        "dead_letter_id": letter.id,
        "at": record::time_text(letter.at),
        "queue": letter.queue,
        "reason": letter.reason,
        "operation_id": letter.operation,
        "tenant": letter.tenant,
        "message_id": letter.message_id,
        "copies": letter.copies,
        "body_bytes": letter.body.len(),
        "resolution": letter.resolution,
    })
}

fn next_step(letter: &KeptLetter, record: Option<&str>) -> Option<String> {
    let id = letter.id;
    if letter.resolution.is_some() {
        return None;
    }
    Some(match (letter.operation, record) {
        (None, _) => format!(
            "it names no operation that can be read; find its sender by queue and message_id, then `oncebox dead discard {id}`"
        ),
        (Some(_), None) => format!(
            "the record is gone, and an effect may exist: `oncebox dead requeue {id} --submission FILE` puts it back as may have been sent, else `dead discard`"
        ),
        (Some(_), Some(_)) => format!(
            "the record is the truth: `oncebox ops show` it; `oncebox dead requeue {id}` publishes it again, `dead discard` closes the letter"
        ),
    })
}

/// A body as text; what is no UTF-8 is escaped byte by byte.
fn body_text(body: &[u8]) -> String {
    std::str::from_utf8(body).map_or_else(|_| body.escape_ascii().to_string(), str::to_owned)
}
