//! `oncebox ops show`

use clap::Args;
use serde_json::{Value, json};

use super::advice;
use crate::domain::outcome::{Asked, Envelope};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::output::shown;
use crate::operator::record;
use crate::store::{self, Loaded, TraceRow};

/// Show an operation's record, outcome envelope and trace, and what to do next
///
/// Flags a trace that goes from sent to applied without a receipt. Arguments and response are
/// printed only when asked for.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  oncebox ops show acme:prod:run_827:record_issue")]
pub(in crate::operator) struct ShowFlags {
    /// The operation's id, or its key tenant:environment:workflow_id:step_id
    operation: String,

    /// Print the arguments too
    #[arg(long)]
    with_arguments: bool,

    /// Print the stored part of the downstream's answer too
    #[arg(long)]
    with_response: bool,
}

pub(super) async fn run(context: &Context, flags: &ShowFlags) -> Result<(), Failure> {
    let which = record::which(&flags.operation)?;
    let mut link = context.link();
    let found = link
        .transaction(async |connection| {
            let Some(loaded) = store::look(connection, &which).await? else { return Ok(None) };
            let trace = store::trace(connection, loaded.operation.id).await?;
            Ok(Some((loaded, trace)))
        })
        .await?;
    let (loaded, trace) = found.ok_or_else(record::missing)?;
    let object = whole(&loaded, &trace, flags);
    if context.output.json() {
        return Ok(context.output.object(&object)?);
    }
    Ok(context.output.line(&page(&loaded, &object, &trace))?)
}

/// Everything, as one object.
fn whole(loaded: &Loaded, trace: &[TraceRow], flags: &ShowFlags) -> Value {
    let operation = &loaded.operation;
    let mut envelope = Envelope::of(operation, Asked::ByLook, loaded.now);
    if !flags.with_response {
        envelope = envelope.without_response();
    }
    let mut object = json!({
        "record": record::object(operation),
        "envelope": envelope,
        "trace": trace.iter().map(trace_object).collect::<Vec<_>>(),
        "flags": advice::flags(operation, trace),
        "next_step": advice::next_step(operation),
    });
    if flags.with_arguments
        && let Some(members) = object.as_object_mut()
    {
        // Numbers keep their digits: the JSON library is told to.
        let arguments = loaded.arguments.as_deref().map(serde_json::from_str::<Value>);
        members.insert("arguments".to_owned(), arguments.and_then(Result::ok).into());
    }
    object
}

fn trace_object(row: &TraceRow) -> Value {
    let detail = row.detail.as_deref().map(serde_json::from_str::<Value>);
    json!({
        "at": record::time_text(row.at),
        "event": row.event,
        "claim_epoch": row.epoch,
        "owner": row.owner,
        "detail": detail.and_then(Result::ok),
    })
}

/// The same for people: what is not set is left out.
fn page(loaded: &Loaded, object: &Value, trace: &[TraceRow]) -> String {
    let part = |name: &str| object.get(name).cloned().unwrap_or_default();
    let envelope = part("envelope");
    let told = ["safe_to_repeat", "next_action", "retry_after_seconds", "response"]
        .map(|name| (name, envelope.get(name).cloned().unwrap_or_default()));
    let mut all = record::fields(&loaded.operation);
    all.retain(|(_, value)| *value != json!(false));
    all.extend(told);
    all.push(("arguments", part("arguments")));
    all.retain(|(_, value)| !value.is_null());
    let mut lines: Vec<String> =
        all.iter().map(|(name, value)| format!("{name:<20} {}", text_of(value))).collect();
    lines.push(String::new());
    for row in trace {
        let owner = row.owner.as_deref().unwrap_or_default();
        let detail = row.detail.as_deref().unwrap_or_default();
        let at = record::time_text(row.at);
        let line = format!("{at:<30} {:<16} epoch {} {owner} {detail}", row.event, row.epoch);
        lines.push(shown(line.trim_end()));
    }
    let flags = object.get("flags").and_then(Value::as_array).cloned().unwrap_or_default();
    let next = object.get("next_step").filter(|next| !next.is_null());
    if !flags.is_empty() || next.is_some() {
        lines.push(String::new());
    }
    lines.extend(flags.iter().map(|flag| format!("FLAG: {}", text_of(flag))));
    lines.extend(next.map(|next| format!("next: {}", text_of(next))));
    lines.join("\n")
}

fn text_of(value: &Value) -> String {
    shown(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}
