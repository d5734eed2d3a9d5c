//! `oncebox ops retry`, `release` and `resolve`: lock, decide, write, in one transaction.

use clap::{ArgGroup, Args};

use super::advice;
use crate::domain::attempt::Receipt;
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::outcome::{Asked, Envelope};
use crate::domain::step::Step;
use crate::domain::verbs::{self, Finding, Person};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::output::shown;
use crate::operator::record;
use crate::store::{self, Which};

/// Who acts, for verbs that may be used in passing.
#[derive(Args, Debug)]
struct Acting {
    /// Who acts; kept in the trace
    #[arg(long, value_name = "NAME", default_value = "operator")]
    by: String,

    /// Why; kept in the trace
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Make due now what is queued, scheduled or parked
///
/// With --reopen, open a failed operation again whose record proves that nothing was done. Refuses
/// unknown and applied ones.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox ops retry acme:prod:run_827:record_issue --by ann --reason 'worker repaired'\n  oncebox ops retry acme:prod:run_827:record_issue --reopen --by ann --reason 'queue exists now'"
)]
pub(in crate::operator) struct RetryFlags {
    /// The operation, by id or key
    operation: String,

    /// Open again an operation that failed for good; needs --by and --reason
    #[arg(long, requires = "by", requires = "reason")]
    reopen: bool,

    /// Who acts; kept in the trace
    #[arg(long, value_name = "NAME")]
    by: Option<String>,

    /// Why; kept in the trace
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Let a held operation go on, or let those behind a stuck one of an ordering key pass it
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  oncebox ops release acme:prod:run_827:record_issue --by ann")]
pub(in crate::operator) struct ReleaseFlags {
    /// The operation, by id or key
    operation: String,

    #[command(flatten)]
    acting: Acting,
}

/// Write down what a person found out about an operation's effect
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox ops resolve acme:prod:run_827:record_issue --applied TCK-9 --by ann --reason 'found in the queue'\n  oncebox ops resolve acme:prod:run_827:record_issue --not-applied --by ann --reason 'provider has no such key'"
)]
#[command(group = ArgGroup::new("finding").required(true))]
pub(in crate::operator) struct ResolveFlags {
    /// The operation, by id or key
    operation: String,

    /// The effect exists; this is the downstream's reference, up to 1 KiB
    #[arg(long, value_name = "REFERENCE", group = "finding")]
    applied: Option<String>,

    /// There was no effect, and the earlier attempt is over
    #[arg(long, group = "finding")]
    not_applied: bool,

    /// There was an effect, and it was undone
    #[arg(long, group = "finding")]
    compensated: bool,

    /// The person who found it out; kept in the trace
    #[arg(long, value_name = "NAME")]
    by: String,

    /// How they know; kept in the trace
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn retry(context: &Context, flags: &RetryFlags) -> Result<(), Failure> {
    let by = flags.by.as_deref().unwrap_or("operator");
    let by = person(by, flags.reason.as_deref().unwrap_or_default())?;
    act(context, &flags.operation, |row, now| {
        if flags.reopen { verbs::reopen(row, now, &by) } else { verbs::retry(row, now, &by) }
    })
    .await
}

pub(super) async fn release(context: &Context, flags: &ReleaseFlags) -> Result<(), Failure> {
    let by = person(&flags.acting.by, &flags.acting.reason)?;
    act(context, &flags.operation, |row, now| verbs::release(row, now, &by)).await
}

pub(super) async fn resolve(context: &Context, flags: &ResolveFlags) -> Result<(), Failure> {
    if flags.by.trim().is_empty() || flags.reason.trim().is_empty() {
        return Err(Failure::usage("--by and --reason must say something; they are kept for ever"));
    }
    let by = person(&flags.by, &flags.reason)?;
    let finding = match (&flags.applied, flags.not_applied) {
        (Some(reference), _) => {
            Finding::Applied(Receipt::new(reference.as_str()).ok_or_else(|| {
                Failure::usage("--applied takes 1 byte to 1 KiB of text without NUL")
            })?)
        }
        (None, true) => Finding::NotApplied,
        (None, false) => Finding::Compensated,
    };
    act(context, &flags.operation, |row, now| verbs::resolve(row, &finding, now, &by)).await
}

fn person(name: &str, reason: &str) -> Result<Person, Failure> {
    if name.len() > 200 || reason.len() > 2000 || name.contains('\0') || reason.contains('\0') {
        return Err(Failure::usage("--by takes up to 200 bytes, --reason up to 2000"));
    }
    Ok(Person { name: name.to_owned(), reason: reason.to_owned() })
}

/// What became of a verb.
enum Acted {
    Done(Operation, Timestamp),
    Refused(Operation, &'static str),
}

async fn act(
    context: &Context,
    operation: &str,
    decide: impl Fn(&Operation, Timestamp) -> Result<Step, &'static str>,
) -> Result<(), Failure> {
    let which = record::which(operation)?;
    let mut link = context.link();
    let acted = link
        .transaction(async |connection| {
            let id = match &which {
                Which::Id(id) => *id,
                Which::Key { .. } => match store::look(connection, &which).await? {
                    Some(found) => found.operation.id,
                    None => return Ok(None),
                },
            };
            let locked = store::lock_all(connection, &[id]).await?;
            let Some(row) = locked.first() else { return Ok(None) };
            Ok(Some(match decide(&row.operation, row.now) {
                Err(why) => Acted::Refused(row.operation.clone(), why),
                Ok(step) => {
                    store::write(connection, &[&step]).await?;
                    Acted::Done(step.record, row.now)
                }
            }))
        })
        .await?;
    match acted.ok_or_else(record::missing)? {
        Acted::Refused(row, why) => {
            let next = advice::next_step(&row).map(|next| format!("; {next}")).unwrap_or_default();
            let state = record::state_text(&row);
            Err(Failure::failed(format!("{} ({state}): {why}{next}", row.id)))
        }
        Acted::Done(row, now) => {
            let envelope = Envelope::of(&row, Asked::ByLook, now).without_response();
            let reason = row.reason.map(|reason| format!(" ({})", reason.code()));
            let state = record::state_text(&row);
            let text = format!("{} is now {state}{}", row.id, reason.unwrap_or_default());
            Ok(context.output.either(&envelope, &shown(&text))?)
        }
    }
}
