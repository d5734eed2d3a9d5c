//! `oncebox ops retry`, `release` and `resolve`: lock, decide, write, in one transaction.

use std::time::Duration;

use clap::{ArgGroup, Args};

use super::advice;
use crate::domain::attempt::Receipt;
use crate::domain::lifecycle::State;
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::outcome::{Asked, Envelope};
use crate::domain::step::Step;
use crate::domain::verbs::{self, Finding, Person};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::output::shown;
use crate::operator::record;
use crate::store::{self, Connection, InOrder, StoreError, Which};

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
///
/// Exit code 1 also when the finding is kept but contradicts what is known, so that the operation stays
/// unknown.
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
    let acted = act(context, &flags.operation, async |connection, row, now| {
        let decided = if flags.reopen {
            verbs::reopen(row, now, &by)
        } else {
            let rule = record::rule(context, connection, row).await?;
            verbs::retry(row, rule.is_some_and(|rule| rule.can_look_up(row)), now, &by)
        };
        Ok(decided.map_err(|why| advised(row, why)))
    });
    tell(context, &acted.await?, "")
}

/// A held operation goes on; for the head of an ordering key, the database is asked whom it would let
/// pass, so that a release which helps nobody does not look like one that did.
pub(super) async fn release(context: &Context, flags: &ReleaseFlags) -> Result<(), Failure> {
    let by = person(&flags.acting.by, &flags.acting.reason)?;
    let mut passed = false;
    let acted = act(context, &flags.operation, async |connection, row, now| {
        let decided = verbs::release(row, now, &by).map_err(|why| advised(row, why));
        passed = row.state != State::Held;
        if decided.is_err() || !passed {
            return Ok(decided);
        }
        let around = store::in_order(connection, row.id).await?;
        Ok(match around.and_then(no_release) {
            Some(why) => Err(why),
            None => decided,
        })
    });
    let acted = acted.await?;
    tell(context, &acted, if passed { "; those behind it may pass" } else { "" })
}

/// Why the release of a member of an ordering key would let nobody pass.
fn no_release(around: InOrder) -> Option<String> {
    if let Some(head) = around.head {
        return Some(format!(
            "it waits for its turn itself, behind {head}; look at that one with `oncebox ops show {head}`, and release that one if it is stuck"
        ));
    }
    (!around.waited_for)
        .then(|| "nothing waits behind it, so a release would let nobody pass".to_owned())
}

pub(super) async fn resolve(context: &Context, flags: &ResolveFlags) -> Result<(), Failure> {
    if flags.reason.trim().is_empty() {
        return Err(Failure::usage("--reason must say something; it is kept for ever"));
    }
    let by = named(&flags.by, &flags.reason)?;
    let finding = match (&flags.applied, flags.not_applied) {
        (Some(reference), _) => {
            Finding::Applied(Receipt::new(reference.as_str()).ok_or_else(|| {
                Failure::usage("--applied takes 1 byte to 1 KiB of text without NUL")
            })?)
        }
        (None, true) => Finding::NotApplied,
        (None, false) => Finding::Compensated,
    };
    let acted = act(context, &flags.operation, async |connection, row, now| {
        // A request that left at the last moment takes its time-out to be over.
        let rule = record::rule(context, connection, row).await?;
        let timeout = rule.map(|rule| rule.timeout).unwrap_or_default();
        let lasts = context.config.worker.stall_margin.saturating_add(timeout);
        let decided = verbs::resolve(row, &finding, lasts, now, &by);
        Ok(decided.map_err(|why| not_resolved(row, why, lasts)))
    });
    let (row, now) = acted.await?;
    let left_open = row.state == State::Unknown;
    let id = row.id;
    let next = advice::next_step(&row).unwrap_or_default();
    tell(context, &(row, now), "")?;
    if left_open {
        return Err(Failure::failed(format!("{id} is written down, but not decided: {next}")));
    }
    Ok(())
}

/// Why a finding was refused; when it only came too early, from when on it fits.
fn not_resolved(row: &Operation, why: &'static str, lasts: Duration) -> String {
    if why != verbs::UNDER_WAY {
        return advised(row, why);
    }
    // The moment is shown in whole milliseconds.
    let over = verbs::earlier_attempts_over(row, lasts).after(Duration::from_millis(1));
    let over = record::moment(over);
    format!("{why}; this can be said from {over} on, when it is over for certain")
}

/// A refusal, and what fits the record instead.
fn advised(row: &Operation, why: &'static str) -> String {
    let next = advice::next_step(row).map(|next| format!("; {next}")).unwrap_or_default();
    format!("{why}{next}")
}

/// A person who has to say who they are.
pub(super) fn named(name: &str, reason: &str) -> Result<Person, Failure> {
    // Names are compared: a space before one makes no other person.
    let name = name.trim();
    if name.is_empty() {
        return Err(Failure::usage("--by must name a person; it is kept for ever"));
    }
    person(name, reason)
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
    Refused(Operation, String),
}

/// Locks the record, decides and writes; answers what stands then.
pub(super) async fn act(
    context: &Context,
    operation: &str,
    mut decide: impl AsyncFnMut(
        &mut Connection,
        &Operation,
        Timestamp,
    ) -> Result<Result<Step, String>, StoreError>,
) -> Result<(Operation, Timestamp), Failure> {
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
            Ok(Some(match decide(connection, &row.operation, row.now).await? {
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
            let state = record::state_text(&row);
            Err(Failure::failed(format!("{} ({state}): {why}", row.id)))
        }
        Acted::Done(row, now) => Ok((row, now)),
    }
}

/// Prints what stands after a verb; `also` is for people only.
pub(super) fn tell(
    context: &Context,
    (row, now): &(Operation, Timestamp),
    also: &str,
) -> Result<(), Failure> {
    let envelope = Envelope::of(row, Asked::ByLook, *now).without_response();
    let reason = row.reason.map(|reason| format!(" ({})", reason.code()));
    let state = record::state_text(row);
    let text = format!("{} is now {state}{}{also}", row.id, reason.unwrap_or_default());
    Ok(context.output.either(&envelope, &shown(&text))?)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_release_that_lets_nobody_pass_says_why() {
        let head = Uuid::from_u128(7);
        let behind = no_release(InOrder { head: Some(head), waited_for: true }).unwrap();
        assert!(behind.contains(&head.to_string()), "{behind}");
        let last = no_release(InOrder { head: None, waited_for: false }).unwrap();
        assert!(last.contains("nothing waits behind it"), "{last}");
        assert_eq!(no_release(InOrder { head: None, waited_for: true }), None);
    }
}
