//! `oncebox ops show`

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use uuid::Uuid;

use super::act::named;
use super::advice;
use crate::domain::operation::Operation;
use crate::domain::outcome::{Asked, Envelope};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::output::shown;
use crate::operator::record;
use crate::store::{self, Loaded, Noted, Responsible, ShownApproval, TraceRow};

/// Show an operation's record, outcome envelope and trace, and what to do next
///
/// Flags a trace that goes from sent to applied without a receipt. For a request for approval: what it
/// was asked for, how it was answered, and the commands that answer it. For one that waits for a
/// person: whom its contract names, since when, and when it is looked up next. Arguments and response
/// are printed only when asked for, and that is written into the trace.
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

    /// Who looks at arguments or response; kept in the trace
    #[arg(long, value_name = "NAME", default_value = "operator")]
    by: String,
}

/// Everything that is shown of one operation.
struct Seen {
    loaded: Loaded,
    trace: Vec<TraceRow>,
    approval: Option<ShownApproval>,
    responsible: Option<Responsible>,
}

pub(super) async fn run(context: &Context, flags: &ShowFlags) -> Result<(), Failure> {
    let which = record::which(&flags.operation)?;
    let mut link = context.link();
    let by = named(&flags.by, "")?.name;
    let looks_at = flags.looks_at();
    let found = link
        .transaction(async |connection| {
            let Some(loaded) = store::look(connection, &which).await? else { return Ok(None) };
            let id = loaded.operation.id;
            if !looks_at.is_empty() {
                store::note(connection, vec![shown_to(id, &by, &looks_at)]).await?;
            }
            let trace = store::trace(connection, id).await?;
            let approval = store::shown_approval(connection, id).await?;
            let responsible = store::responsible(connection, id).await?;
            let envelope = record::envelope(connection, &loaded).await?;
            Ok(Some((Seen { loaded, trace, approval, responsible }, envelope)))
        })
        .await?;
    let (seen, envelope) = found.ok_or_else(record::missing)?;
    let object = whole(&seen, envelope, flags);
    if context.output.json() {
        return Ok(context.output.object(&object)?);
    }
    Ok(context.output.line(&page(&seen, &object))?)
}

impl ShowFlags {
    /// What is printed besides the record.
    fn looks_at(&self) -> Vec<&'static str> {
        let all = [("arguments", self.with_arguments), ("response", self.with_response)];
        all.into_iter().filter_map(|(what, asked)| asked.then_some(what)).collect()
    }
}

/// Operators see by their role, and that is traced.
fn shown_to(operation: Uuid, by: &str, what: &[&'static str]) -> Noted {
    let detail = json!({ "what": what, "by": by }).to_string();
    Noted { operation, event: "shown", epoch: 0, owner: None, detail: Some(detail) }
}

/// Everything, as one object.
fn whole(seen: &Seen, mut envelope: Envelope, flags: &ShowFlags) -> Value {
    let Seen { loaded, trace, approval, responsible } = seen;
    let operation = &loaded.operation;
    if flags.with_response {
        envelope.response = Envelope::of(operation, Asked::ByLook, loaded.now).response;
    }
    let mut object = json!({
        "record": record::object(operation),
        "material": material(operation),
        "approval": approval.as_ref().map(approval_object),
        "waits_for": responsible
            .as_ref()
            .filter(|_| operation.unresolved_since.is_some())
            .map(|responsible| record::waits_for(operation, responsible)),
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

/// The places of the arguments that its fingerprint is about; never their values.
fn material(operation: &Operation) -> Option<Vec<String>> {
    let digests = serde_json::from_str::<BTreeMap<String, Value>>(operation.digests.as_deref()?);
    Some(digests.ok()?.into_keys().collect())
}

fn approval_object(approval: &ShownApproval) -> Value {
    json!({
        "state": approval.state,
        "fingerprint": approval.fingerprint,
        "requested_at": record::time_text(approval.requested_at),
        "answered_at": approval.answered_at.map(record::time_text),
        "answered_by": approval.answered_by,
        "reason": approval.reason,
        "expires_at": approval.expires_at.map(record::time_text),
    })
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
fn page(Seen { loaded, trace, .. }: &Seen, object: &Value) -> String {
    let part = |name: &str| object.get(name).cloned().unwrap_or_default();
    let envelope = part("envelope");
    let told =
        ["suspected_twin_of", "safe_to_repeat", "next_action", "retry_after_seconds", "response"]
            .map(|name| (name, envelope.get(name).cloned().unwrap_or_default()));
    let mut all = record::fields(&loaded.operation);
    all.retain(|(_, value)| *value != json!(false));
    all.extend(told);
    all.push(("material", part("material")));
    all.push(("arguments", part("arguments")));
    all.retain(|(_, value)| !value.is_null());
    let mut lines: Vec<String> =
        all.iter().map(|(name, value)| format!("{name:<20} {}", text_of(value))).collect();
    for (title, group) in [("approval", part("approval")), ("waits for", part("waits_for"))] {
        let members = group.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let told: Vec<String> =
            members.map(|(name, value)| format!("{name} {}", text_of(value))).collect();
        if !told.is_empty() {
            lines.push(format!("{title:<20} {}", told.join(", ")));
        }
    }
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
