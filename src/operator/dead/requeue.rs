//! `oncebox dead requeue`
//!
//! A letter whose record stands: a new message for the record, which is the truth. A letter without
//! a record: the operation is put back as *may have been sent*, so that recovery decides and nothing
//! is sent blindly. Its key was first used when the record was born at the earliest, which its id
//! tells; the key itself can be made again only with the secret that made it, so an operator has to
//! name that secret, else the downstream's window counts as closed.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Decided, closed, missing};
use crate::broker::{self, Unreadable};
use crate::domain::key::OperationKey;
use crate::domain::lifecycle::State;
use crate::domain::operation::{DownstreamKey, Operation};
use crate::domain::reason::Reason;
use crate::ingress::{Publisher, Submission, SubmitError};
use crate::operator::Context;
use crate::operator::arguments::letter_id;
use crate::operator::failure::{Failure, chain};
use crate::operator::record;
use crate::store::{self, Connection, KeptLetter, Noted, PutBack, StoreError, Which};
use crate::tool::DownstreamSecret;

/// Longest submission file: what the line of `submit` may have.
const MAX_SUBMISSION_BYTES: u64 = 2 * 1024 * 1024;

/// Publish the operation that a letter names again, and close the letter
///
/// The record decides what the message does, so this makes no second effect. When the record has
/// ended, is unknown or parked, or the letter contradicts it, a message changes nothing or needs a
/// decision: the state is shown and --yes asked for. When the record is gone (after a restore),
/// --submission puts it back, marked as may have been sent: recovery, never a blind send, decides.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox dead requeue 0190a6f0-0000-7000-8000-000000000000 --by ann\n  oncebox dead requeue 0190a6f0-0000-7000-8000-000000000000 --submission lost.json --secret-id k1 --by ann --reason 'restored backup'"
)]
pub(in crate::operator) struct RequeueFlags {
    /// The letter's id, as `dead list` prints it
    #[arg(value_parser = letter_id)]
    letter: Uuid,

    /// Publish although the record has ended, is unknown or parked, or the letter contradicts it
    #[arg(long)]
    yes: bool,

    /// The original submission, one JSON object, for an operation whose record is gone
    #[arg(long, value_name = "FILE")]
    submission: Option<PathBuf>,

    /// With --submission: the id in `ONCEBOX_DOWNSTREAM_SECRET` of the secret that was current when
    /// the operation was first sent. Without it the downstream's window counts as closed, and an
    /// operation that relies on its key ends unknown
    #[arg(long, value_name = "ID", requires = "submission")]
    secret_id: Option<String>,

    #[command(flatten)]
    decided: Decided,
}

/// What became of the letter.
enum Done {
    Missing,
    Closed(String),
    Refused(String),
    Published(Uuid),
    PutBack(Uuid),
}

pub(super) async fn run(context: &Context, flags: &RequeueFlags) -> Result<(), Failure> {
    let lost = match &flags.submission {
        Some(path) => Some(Lost::read(context, path, flags.secret_id.as_deref())?),
        None => None,
    };
    let mut link = context.link();
    let done = link
        .transaction(async |connection| {
            let Some(letter) = store::kept_letter(connection, flags.letter).await? else {
                return Ok(Done::Missing);
            };
            if let Some(resolution) = letter.resolution {
                return Ok(Done::Closed(resolution));
            }
            let done = requeue(connection, &letter, lost.as_ref(), flags).await?;
            if matches!(done, Done::Published(_) | Done::PutBack(_)) {
                let resolution = flags.decided.text("requeued");
                store::close_letter(connection, letter.id, &resolution).await?;
            }
            Ok(done)
        })
        .await?;
    let (id, what) = match done {
        Done::Missing => return Err(missing()),
        Done::Closed(resolution) => return Err(closed(&resolution)),
        Done::Refused(why) => return Err(Failure::failed(why)),
        Done::Published(id) => (id, "published again"),
        Done::PutBack(id) => (id, "put back as may have been sent"),
    };
    let object = json!({ "dead_letter_id": flags.letter, "operation_id": id, "done": what });
    Ok(context
        .output
        .either(&object, &format!("operation {id} is {what}; the letter is closed"))?)
}

async fn requeue(
    connection: &mut Connection,
    letter: &KeptLetter,
    lost: Option<&Lost>,
    flags: &RequeueFlags,
) -> Result<Done, StoreError> {
    let Some(id) = letter.operation else {
        return Ok(Done::Refused(
            "this letter names no operation that can be read; `dead show` it, then `dead discard`"
                .to_owned(),
        ));
    };
    match (store::look(connection, &Which::Id(id)).await?, lost) {
        (Some(found), None) => {
            if let Some(why) = needs_decision(&found.operation, letter).filter(|_| !flags.yes) {
                return Ok(Done::Refused(why));
            }
            store::enqueue_later(connection, &[id], std::time::Duration::ZERO).await?;
            Ok(Done::Published(id))
        }
        (Some(found), Some(_)) => Ok(Done::Refused(format!(
            "the record of {id} stands ({}); leave --submission out",
            record::state_text(&found.operation)
        ))),
        (None, Some(lost)) => lost.put_back(connection, id, letter, &flags.decided).await,
        (None, None) => Ok(Done::Refused(format!(
            "there is no record of {id}, and its effect may exist; put it back with --submission FILE (the original submission), or `dead discard` the letter"
        ))),
    }
}

/// Why a message for this record needs a person's decision first.
fn needs_decision(operation: &Operation, letter: &KeptLetter) -> Option<String> {
    let (id, state) = (operation.id, record::state_text(operation));
    let why = match operation.state {
        State::Applied | State::Rejected | State::FailedPermanent | State::Expired => {
            "it has ended, so a message changes nothing; `dead discard` the letter"
        }
        State::Unknown => "a message proves nothing; find out, then `oncebox ops resolve`",
        State::Parked => "a message does not move it; use `oncebox ops retry`",
        State::Queued
        | State::Held
        | State::AwaitingApproval
        | State::Claimed
        | State::Sent
        | State::Accepted
        | State::RetryScheduled => {
            let same = named(letter).is_ok_and(|named| {
                named.tenant == operation.tenant && named.operation_key == operation.key
            });
            if same {
                return None;
            }
            "the letter names another tenant or key than the record; `dead show --with-content` both"
        }
    };
    Some(format!("operation {id} is {state}: {why}. --yes publishes all the same"))
}

fn named(letter: &KeptLetter) -> Result<broker::Envelope, Unreadable> {
    broker::read_envelope(None, None, &letter.body)
}

/// An operation whose record is gone.
struct Lost {
    key: OperationKey,
    submission: Submission,
    publisher: Publisher,
    secret: Option<DownstreamSecret>,
}

impl Lost {
    fn read(context: &Context, path: &Path, secret_id: Option<&str>) -> Result<Self, Failure> {
        let unusable = |why: String| {
            Failure::usage(format!(
                "--submission {}: {why}; name a readable file with the original submission as one JSON object",
                path.display()
            ))
        };
        let file = std::fs::File::open(path).map_err(|error| unusable(error.to_string()))?;
        let mut text = Vec::new();
        file.take(MAX_SUBMISSION_BYTES)
            .read_to_end(&mut text)
            .map_err(|error| unusable(error.to_string()))?;
        let submission = Submission::from_json(text.trim_ascii())
            .map_err(|error| unusable(error.to_string()))?;
        let policy = context.config.key_policy();
        let Submission { tenant, environment, workflow_id, step_id, .. } = &submission;
        let key = OperationKey::new(tenant, environment, workflow_id, step_id, &policy)
            .map_err(|error| unusable(error.to_string()))?;
        let secret = secret_id.map(|id| secret_of(context, id)).transpose()?;
        Ok(Self { key, submission, publisher: Publisher::new(policy), secret })
    }

    /// Submits the operation by the same door as ever, then marks what stands now, in the same
    /// transaction: its message cannot be seen before the mark.
    async fn put_back(
        &self,
        connection: &mut Connection,
        id: Uuid,
        letter: &KeptLetter,
        decided: &Decided,
    ) -> Result<Done, StoreError> {
        let refused = |why: &str| Ok(Done::Refused(why.to_owned()));
        let Ok(named) = named(letter) else {
            return refused(
                "the letter's key cannot be read, so no submission can be matched to it; `dead discard` it",
            );
        };
        if self.key.as_str() != named.operation_key || self.key.tenant() != named.tenant {
            return refused(
                "the submission's key is not the letter's; give the original submission",
            );
        }
        let (tenant, key) = (named.tenant, named.operation_key);
        let standing = Which::Key { tenant, key: key.clone() };
        if let Some(other) = store::look(connection, &standing).await? {
            return Ok(Done::Refused(format!(
                "another record stands under this key: `oncebox ops show {}`; `dead discard` the letter",
                other.operation.id
            )));
        }
        let answer = match self.publisher.submit(connection, &self.submission).await {
            Ok(answer) => answer,
            Err(SubmitError::Store(error)) => return Err(error),
            Err(error) => return Ok(Done::Refused(format!("--submission: {}", chain(&error)))),
        };
        let Some(submitted) = answer.operation_id else {
            return Err(StoreError::Unreadable("an answer without a record"));
        };
        let key = self.secret.as_ref().map(|secret| secret.key(&key));
        let put_back = PutBack {
            submitted,
            id,
            first_used: key.as_ref().and_then(|_| born_before(id, letter.at)),
            downstream_key: key.as_ref().map(|DownstreamKey { key, .. }| key.clone()),
            downstream_key_id: key.as_ref().map(|key| key.secret_id.clone()),
            reason: Reason::MayHaveBeenSent.code(),
        };
        if !store::put_back(connection, &put_back).await? {
            // Somebody has submitted it since the look above.
            return Err(StoreError::Fenced);
        }
        let detail = json!({ "verb": "requeue", "by": decided.by, "why": decided.reason, "reason": Reason::MayHaveBeenSent.code() });
        let event = Noted {
            operation: id,
            event: "resolved",
            epoch: 0,
            owner: None,
            detail: Some(detail.to_string()),
        };
        store::note(connection, vec![event]).await?;
        Ok(Done::PutBack(id))
    }
}

fn secret_of(context: &Context, id: &str) -> Result<DownstreamSecret, Failure> {
    let secrets = context.config.downstream_secret.as_ref();
    secrets.and_then(|secrets| secrets.get(id)).map(|secret| DownstreamSecret::new(id, secret)).ok_or_else(|| {
        Failure::usage(format!("ONCEBOX_DOWNSTREAM_SECRET has no secret with id {id}; add it behind the current one, separated by white space"))
    })
}

/// Unix seconds at which a record with this id was born; the id's clock part has it. `None` when it
/// has none, or one that a record which this letter names cannot have.
fn born_before(id: Uuid, letter_at: OffsetDateTime) -> Option<f64> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    let seconds = u32::try_from(seconds).ok()?;
    let possible = i64::from(seconds) <= letter_at.unix_timestamp();
    possible.then(|| f64::from(seconds) + f64::from(nanos) / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_when_its_record_was_born() {
        let id = Uuid::parse_str("01890a5d-ac96-774b-bcce-b302099a8057").unwrap();
        let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        let born = born_before(id, at(1_700_000_000)).unwrap();
        assert!((born - 1_688_112_999.0).abs() < 20_000.0, "{born}");
        assert_eq!(born_before(id, at(1_600_000_000)), None);
        assert_eq!(born_before(Uuid::from_u128(7), at(1_700_000_000)), None);
        assert_eq!(born_before(Uuid::new_v4(), at(1_700_000_000)), None);
    }
}
