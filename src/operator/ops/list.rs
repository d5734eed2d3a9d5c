//! `oncebox ops list`

use clap::Args;
use clap::builder::PossibleValuesParser;
use uuid::Uuid;

use crate::operator::Context;
use crate::operator::arguments::{limit, operation_id};
use crate::operator::failure::{Failure, say};
use crate::operator::record;
use crate::store::{self, Filter, Loaded, Responsible};

/// List operations, newest first, without arguments and responses
///
/// With --overdue: those that wait for a person, unknown or parked, whose contract's owner should have
/// answered by now, the longest overdue first. How soon they answer is the contract's
/// owner.respond_within; operations of a contract without it wait too, and are never overdue.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox ops list --status unknown\n  oncebox ops list --phase awaiting_approval\n  oncebox ops list --tenant acme --phase parked --json\n  oncebox ops list --overdue"
)]
pub(in crate::operator) struct ListFlags {
    /// Only this tenant's
    #[arg(long)]
    tenant: Option<String>,

    /// Only this tool's
    #[arg(long)]
    tool: Option<String>,

    /// Only operations with this status
    #[arg(long, value_parser = PossibleValuesParser::new(["pending", "applied", "rejected", "failed_permanent", "unknown", "expired"]))]
    status: Option<String>,

    /// Only pending operations in this phase
    #[arg(long, value_parser = PossibleValuesParser::new(["queued", "held", "awaiting_approval", "claimed", "sent", "accepted", "retry_scheduled", "parked"]))]
    phase: Option<String>,

    /// Only what waits for a person for longer than its owner's time to answer
    #[arg(long)]
    overdue: bool,

    /// Only operations older than this one: the next page
    #[arg(long, conflicts_with = "overdue", value_name = "OPERATION_ID", value_parser = operation_id)]
    before: Option<Uuid>,

    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = limit)]
    limit: u32,
}

pub(super) async fn run(context: &Context, flags: ListFlags) -> Result<(), Failure> {
    let limit = flags.limit;
    let filter = Filter {
        tenant: flags.tenant,
        tool: flags.tool,
        status: flags.status,
        phase: flags.phase,
        before: flags.before,
        limit: i64::from(limit),
    };
    let mut link = context.link();
    if flags.overdue {
        let listed = link.statement(async |c| store::overdue(c, &filter).await).await?;
        let rows: Vec<_> = listed.iter().map(overdue).collect();
        let titles = ["operation", "key", "tool", "state", "reason", "owner", "overdue by"];
        return Ok(context.output.rows(&titles, &rows)?);
    }
    let listed = link.statement(async |connection| store::list(connection, &filter).await).await?;
    let rows: Vec<_> = listed.iter().map(row).collect();
    let titles = ["operation", "key", "tool", "state", "reason", "attempts", "due or updated"];
    context.output.rows(&titles, &rows)?;
    if let Some(last) = listed.last()
        && u32::try_from(listed.len()).is_ok_and(|len| len == limit)
        && !context.output.json()
    {
        say(&format!("there may be more: --before {}", last.operation.id));
    }
    Ok(())
}

fn row(loaded: &Loaded) -> (Vec<String>, serde_json::Value) {
    let operation = &loaded.operation;
    let at = if operation.state.is_pending() { operation.due_at } else { operation.updated_at };
    let cells = vec![
        operation.id.to_string(),
        operation.key.clone(),
        format!("{}@{}", operation.tool, operation.tool_version),
        record::state_text(operation),
        operation.reason.map_or("", |reason| reason.code()).to_owned(),
        operation.attempts.to_string(),
        record::moment(at),
    ];
    (cells, record::object(operation))
}

fn overdue((loaded, responsible): &(Loaded, Responsible)) -> (Vec<String>, serde_json::Value) {
    let operation = &loaded.operation;
    let cells = vec![
        operation.id.to_string(),
        operation.key.clone(),
        format!("{}@{}", operation.tool, operation.tool_version),
        record::state_text(operation),
        operation.reason.map_or("", |reason| reason.code()).to_owned(),
        responsible.owner.clone().unwrap_or_default(),
        responsible.overdue.map(record::about).unwrap_or_default(),
    ];
    let mut object = record::object(operation);
    if let Some(members) = object.as_object_mut() {
        members.insert("waits_for".to_owned(), record::waits_for(operation, responsible));
    }
    (cells, object)
}
