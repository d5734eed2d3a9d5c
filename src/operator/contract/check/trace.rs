//! `oncebox contract check --trace`: one real operation, transition by transition.

use serde_json::{Value, json};

use crate::contract_file;
use crate::domain::operation::{Operation, Timestamp, Token};
use crate::domain::trace_review::{Allowed, Flag, Stage, TraceReview, Transition, review};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::output::{counted, shown};
use crate::operator::record;
use crate::store::{self, TraceRow};

pub(super) async fn run(context: &Context, operation: &str) -> Result<(), Failure> {
    let which = record::which(operation)?;
    let mut link = context.link();
    // One transaction that changes nothing: record, trace and contract of one moment, nearly.
    let found = link
        .transaction(async |connection| {
            let Some(loaded) = store::look(connection, &which).await? else { return Ok(None) };
            let record = loaded.operation;
            let trace = store::trace(connection, record.id).await?;
            let contract = store::find(connection, &record.tool, &record.tool_version).await?;
            Ok(Some((record, trace, contract)))
        })
        .await?;
    let (record, rows, contract) = found.ok_or_else(record::missing)?;
    let allowed = contract
        .and_then(|registered| {
            contract_file::read(&registered.text, context.config.worker.margin).ok()
        })
        .map(|contract| Allowed::from(&contract));
    let trace: Vec<Transition> = rows.iter().map(transition).collect();
    let reviewed = review(&record, &trace, allowed);
    let object = object(&record, &rows, &trace, &reviewed);
    context.output.either(&object, &page(&record, &rows, &reviewed))?;
    if reviewed.passes() { Ok(()) } else { Err(Failure::Told) }
}

fn transition(row: &TraceRow) -> Transition {
    let micros = i64::try_from(row.at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX);
    let detail = row.detail.as_deref().and_then(|text| serde_json::from_str(text).ok());
    Transition { at: Timestamp(micros), event: row.event.clone(), token: Token(row.epoch), detail }
}

/// The word for a step; what moved nothing along has none.
fn mark(stage: Option<&Option<Stage>>) -> &'static str {
    stage.copied().flatten().map_or("-", Stage::as_str)
}

fn severity(flag: &Flag) -> &'static str {
    if flag.kind.is_red() { "red flag" } else { "note" }
}

fn object(
    record: &Operation,
    rows: &[TraceRow],
    trace: &[Transition],
    reviewed: &TraceReview,
) -> Value {
    let transitions = rows.iter().zip(trace).enumerate().map(|(at, (row, transition))| {
        let stage = reviewed.stages.get(at).copied().flatten();
        json!({
            "at": record::time_text(row.at),
            "event": row.event,
            "mark": stage.map(Stage::as_str),
            "claim_epoch": row.epoch,
            "owner": row.owner,
            "detail": transition.detail,
        })
    });
    let flags = reviewed.flags.iter().map(|flag| {
        let (id, message) = flag.kind.told();
        json!({ "id": id, "severity": severity(flag), "transition": flag.at, "message": message })
    });
    let (status, phase) = record.state.columns();
    json!({
        "operation_id": record.id,
        "operation_key": record.key,
        "tool": record.tool,
        "tool_version": record.tool_version,
        "status": status,
        "phase": phase,
        "effect_reference": record.effect_reference,
        "ok": reviewed.passes(),
        "transitions": transitions.collect::<Vec<_>>(),
        "flags": flags.collect::<Vec<_>>(),
    })
}

fn page(record: &Operation, rows: &[TraceRow], reviewed: &TraceReview) -> String {
    let reds = reviewed.flags.iter().filter(|flag| flag.kind.is_red()).count();
    let receipt = record.effect_reference.as_deref();
    let mut lines = vec![format!(
        "{} {} {} ({}), receipt {}: {}",
        record.id,
        record.tool,
        record.tool_version,
        record::state_text(record),
        receipt.unwrap_or("none"),
        counted(reds, "red flag")
    )];
    for (at, row) in rows.iter().enumerate() {
        let owner = row.owner.as_deref().unwrap_or_default();
        let detail = row.detail.as_deref().unwrap_or_default();
        let line = format!(
            "{at:>4} {:<30} {:<13} {:<16} epoch {} {owner} {detail}",
            record::time_text(row.at),
            mark(reviewed.stages.get(at)),
            row.event,
            row.epoch
        );
        lines.push(line.trim_end().to_owned());
        lines.extend(reviewed.flags.iter().filter(|flag| flag.at == Some(at)).map(flag_line));
    }
    lines.extend(reviewed.flags.iter().filter(|flag| flag.at.is_none()).map(flag_line));
    lines.iter().map(|line| shown(line)).collect::<Vec<_>>().join("\n")
}

fn flag_line(flag: &Flag) -> String {
    let (id, message) = flag.kind.told();
    format!("     {:<8} {id}: {message}", severity(flag))
}
