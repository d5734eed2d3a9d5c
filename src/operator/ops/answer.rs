//! `oncebox ops approve`, `deny` and `withdraw`: a person's answer, in the transaction that moves the
//! record.

use std::time::Duration;

use clap::Args;

use super::act::{act, named, tell};
use crate::domain::contract::Contract;
use crate::domain::lifecycle::State;
use crate::domain::operation::Operation;
use crate::domain::verbs::{self, Answer, Person};
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::record;
use crate::store::{self, Connection, StoreError};

/// How long an approval holds where the record's registered contract does not say. As long as one
/// that leaves it out.
const EXPIRES: Duration = Duration::from_hours(24);

/// Approve exactly the request that was shown
///
/// The fingerprint is the one that `ops show` prints: who approves another request than the one
/// that stands is refused. So is the actor that submitted it. An approval covers every retry of this
/// one operation, holds as long as its contract says, and can be withdrawn until the effect.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox ops show acme:prod:run_827:record_issue --with-arguments\n  oncebox ops approve acme:prod:run_827:record_issue --fingerprint sha256:1:9f86… --by ann"
)]
pub(in crate::operator) struct ApproveFlags {
    /// The operation, by id or key
    operation: String,

    /// The fingerprint that was shown
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: String,

    /// The person who approves; kept with the approval
    #[arg(long, value_name = "NAME")]
    by: String,

    /// Why; kept with the approval
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Deny the request that was shown
///
/// The operation ends rejected and nothing is sent. The same submission may come again; it asks again.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox ops deny acme:prod:run_827:record_issue --fingerprint sha256:1:9f86… --by ann --reason 'wrong queue'"
)]
pub(in crate::operator) struct DenyFlags {
    /// The operation, by id or key
    operation: String,

    /// The fingerprint that was shown
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: String,

    /// The person who denies; kept with the answer
    #[arg(long, value_name = "NAME")]
    by: String,

    /// Why; kept with the answer
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Take an approval back, until the effect
///
/// Nothing is sent any more. Exit code 1 when that comes too late to be sure: an attempt may be under
/// way or an earlier one may have worked. The operation then ends by what is found out.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox ops withdraw acme:prod:run_827:record_issue --by ann --reason 'the customer called'"
)]
pub(in crate::operator) struct WithdrawFlags {
    /// The operation, by id or key
    operation: String,

    /// The person who withdraws; kept with the approval
    #[arg(long, value_name = "NAME")]
    by: String,

    /// Why; kept with the approval
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn approve(context: &Context, flags: &ApproveFlags) -> Result<(), Failure> {
    let by = named(&flags.by, &flags.reason)?;
    answer(context, &flags.operation, &flags.fingerprint, Answer::Approve, &by).await
}

pub(super) async fn deny(context: &Context, flags: &DenyFlags) -> Result<(), Failure> {
    let by = reasoned(&flags.by, &flags.reason)?;
    answer(context, &flags.operation, &flags.fingerprint, Answer::Deny, &by).await
}

async fn answer(
    context: &Context,
    operation: &str,
    shown: &str,
    given: Answer,
    by: &Person,
) -> Result<(), Failure> {
    // A refusal names no fingerprint: who approves has looked at the request.
    let acted = act(context, operation, async |connection, row, now| {
        let decided = verbs::may_answer(row, shown, by)
            .and_then(|()| verbs::answer(row, given, now, by))
            .map_err(str::to_owned);
        if decided.is_err() {
            return Ok(decided);
        }
        let holds = match given {
            Answer::Approve => Some(holds_for(context, connection, row).await?),
            Answer::Deny => None,
        };
        let said = (by.name.as_str(), by.reason.as_str());
        Ok(if store::answer_approval(connection, row.id, shown, said, holds).await? {
            decided
        } else {
            Err("there is no open request of this fingerprint".to_owned())
        })
    });
    let also = match given {
        Answer::Approve => "; a worker takes it from here",
        Answer::Deny => "; nothing was sent, and the same submission may come again",
    };
    tell(context, &acted.await?, also)
}

/// How long an approval of this record holds.
async fn holds_for(
    context: &Context,
    connection: &mut Connection,
    row: &Operation,
) -> Result<Duration, StoreError> {
    let contract: Option<Contract> = record::contract(context, connection, row).await?;
    let approval = contract.and_then(|contract| contract.approval);
    Ok(approval.map_or(EXPIRES, |approval| approval.expires))
}

pub(super) async fn withdraw(context: &Context, flags: &WithdrawFlags) -> Result<(), Failure> {
    let by = reasoned(&flags.by, &flags.reason)?;
    let acted = act(context, &flags.operation, async |connection, row, _| {
        let decided = verbs::withdraw(row, &by).map_err(str::to_owned);
        if decided.is_err() {
            return Ok(decided);
        }
        Ok(if store::withdraw_approval(connection, row.id, &by.name, &by.reason).await? {
            decided
        } else {
            Err("no approval of it stands".to_owned())
        })
    });
    let (row, now) = acted.await?;
    let (id, late) = (row.id, row.may_have_been_sent());
    let also = if row.state == State::Rejected { "" } else { "; nothing is sent any more" };
    tell(context, &(row, now), also)?;
    if late {
        return Err(Failure::failed(format!(
            "{id} is withdrawn, but was sent before: an attempt may be under way, or an earlier one may have worked; `oncebox ops wait {id}`"
        )));
    }
    Ok(())
}

/// A named person with a reason.
fn reasoned(name: &str, reason: &str) -> Result<Person, Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::usage("--reason must say something; it is kept for ever"));
    }
    named(name, reason)
}
