//! A record as the command line names and shows it.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::Context;
use super::failure::Failure;
use crate::contract_file;
use crate::domain::contract::{Contract, duration_text};
use crate::domain::key::OperationKey;
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::outcome::{Asked, Envelope};
use crate::domain::reason::Reason;
use crate::domain::rule::AttemptRule;
use crate::store::{self, Connection, Loaded, Responsible, StoreError, Which};

/// Reads an operation's id or its whole key; the key names its tenant.
pub(super) fn which(text: &str) -> Result<Which, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(Which::Id(id));
    }
    match OperationKey::parse(text) {
        Ok(key) => Ok(Which::Key { tenant: key.tenant().to_owned(), key: key.as_str().to_owned() }),
        Err(error) => Err(Failure::usage(format!(
            "{error}; name an operation by its id, or by its key tenant:environment:workflow_id:step_id"
        ))),
    }
}

/// There is no such operation.
pub(super) fn missing() -> Failure {
    Failure::failed("there is no such operation; `oncebox ops list` shows what there is")
}

/// A time in RFC 3339.
pub(super) fn time_text(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}

/// A record's time in RFC 3339, to the millisecond.
pub(super) fn moment(at: Timestamp) -> String {
    let micros = i128::from(at.0 - at.0.rem_euclid(1000));
    OffsetDateTime::from_unix_timestamp_nanos(micros * 1000).map(time_text).unwrap_or_default()
}

/// The envelope as whoever looks sees it, without `response`; a suspected twin names the older key.
pub(super) async fn envelope(
    connection: &mut Connection,
    loaded: &Loaded,
) -> Result<Envelope, StoreError> {
    let operation = &loaded.operation;
    let envelope = Envelope::of(operation, Asked::ByLook, loaded.now).without_response();
    if operation.reason != Some(Reason::SuspectedTwin) {
        return Ok(envelope);
    }
    Ok(envelope.behind(store::held_behind_key(connection, operation.id).await?))
}

/// `status`, and while pending `phase`.
pub(super) fn state_text(operation: &Operation) -> String {
    match operation.state.columns() {
        (status, None) => status.to_owned(),
        (status, Some(phase)) => format!("{status}/{phase}"),
    }
}

/// The record without arguments and response, under the names of its columns, in the order in
/// which people read it.
pub(super) fn fields(operation: &Operation) -> Vec<(&'static str, Value)> {
    let (status, phase) = operation.state.columns();
    let (lease, order) = (operation.lease.as_ref(), operation.order.as_ref());
    let key = operation.downstream_key.as_ref();
    vec![
        ("operation_id", json!(operation.id)),
        ("operation_key", json!(operation.key)),
        ("tenant", json!(operation.tenant)),
        ("environment", json!(operation.environment)),
        ("tool", json!(operation.tool)),
        ("tool_version", json!(operation.tool_version)),
        ("status", json!(status)),
        ("phase", json!(phase)),
        ("reason", json!(operation.reason.map(Reason::code))),
        ("effect_reference", json!(operation.effect_reference)),
        ("response_dropped", json!(operation.response_dropped)),
        ("request_fingerprint", json!(operation.fingerprint.as_ref().map(|f| f.as_str()))),
        ("due_at", json!(moment(operation.due_at))),
        ("owner", json!(lease.map(|lease| &lease.owner))),
        ("lease_until", json!(lease.map(|lease| moment(lease.until)))),
        ("claim_epoch", json!(operation.token.0)),
        ("attempts", json!(operation.attempts)),
        ("lost_claims", json!(operation.lost_claims)),
        ("deferrals", json!(operation.deferrals)),
        ("opened_at", json!(moment(operation.opened_at))),
        ("first_sent_at", json!(operation.first_sent_at.map(moment))),
        ("key_first_used_at", json!(operation.key_first_used_at.map(moment))),
        ("downstream_key", json!(key.map(|key| &key.key))),
        ("downstream_key_id", json!(key.map(|key| &key.secret_id))),
        ("queued_at", json!(moment(operation.queued_at))),
        ("sweeps", json!(operation.sweeps)),
        ("ordering_key", json!(order.map(|order| &order.key))),
        ("order_number", json!(order.map(|order| order.number))),
        ("waiting_for_order", json!(order.is_some_and(|order| order.waiting))),
        ("order_released", json!(order.is_some_and(|order| order.released))),
        ("provider_job", json!(operation.job.as_ref().map(|job| job.id.as_str()))),
        ("accepted_at", json!(operation.job.as_ref().map(|job| moment(job.accepted_at)))),
        ("held_behind", json!(operation.twin.as_ref().and_then(|twin| twin.held_behind))),
        ("twin_released", json!(operation.twin.as_ref().is_some_and(|twin| twin.released))),
        ("attempts_over_at", json!(operation.attempts_over_at.map(moment))),
        ("unresolved_since", json!(operation.unresolved_since.map(moment))),
        ("lookups", json!(operation.lookups)),
        ("next_lookup_at", json!(operation.next_lookup_at.map(moment))),
        ("actor", json!(operation.actor)),
        ("traceparent", json!(operation.traceparent)),
        ("updated_at", json!(moment(operation.updated_at))),
    ]
}

/// A span for people: its two largest units.
pub(super) fn about(span: Duration) -> String {
    let seconds = span.as_secs();
    let number = |size: u64, within: u64| (seconds % within) / size;
    let parts = [
        (seconds / 86_400, "d"),
        (number(3600, 86_400), "h"),
        (number(60, 3600), "m"),
        (number(1, 60), "s"),
    ];
    let told = parts.iter().skip_while(|(number, _)| *number == 0).take(2);
    let told: Vec<String> = told.map(|(number, unit)| format!("{number}{unit}")).collect();
    if told.is_empty() { "0s".to_owned() } else { told.join(" ") }
}

/// Whom a record that waits for a person waits for, since when, and for how long too long.
pub(super) fn waits_for(operation: &Operation, responsible: &Responsible) -> Value {
    json!({
        "owner": responsible.owner,
        "since": operation.unresolved_since.map(moment),
        "respond_within": responsible.respond_within.map(duration_text),
        "overdue": responsible.overdue.is_some(),
        "overdue_seconds": responsible.overdue.map(|by| by.as_secs()),
    })
}

/// The same as one object.
pub(super) fn object(operation: &Operation) -> Value {
    let members = fields(operation).into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.collect())
}

/// The record's contract version; `None`: the registry does not have it, or its text can no longer be
/// read.
pub(super) async fn contract(
    context: &Context,
    connection: &mut Connection,
    row: &Operation,
) -> Result<Option<Contract>, StoreError> {
    let margin = context.config.worker.margin;
    let registered = store::find(connection, &row.tool, &row.tool_version).await?;
    Ok(registered.and_then(|registered| contract_file::read(&registered.text, margin).ok()))
}

/// What the record's contract version says about attempts, if it can be read.
pub(super) async fn rule(
    context: &Context,
    connection: &mut Connection,
    row: &Operation,
) -> Result<Option<AttemptRule>, StoreError> {
    let worker = &context.config.worker;
    let contract = contract(context, connection, row).await?;
    Ok(contract.map(|contract| AttemptRule::of(&contract, worker.margin, worker.stall_margin)))
}
