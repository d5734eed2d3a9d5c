//! `oncebox submit`: lines in, envelopes out, one for one.
//!
//! Each chunk of lines is one transaction. A chunk that was rolled back, or whose commit got no
//! answer, is submitted again: the keys make that safe. A line that is refused gets a rejected
//! envelope and holds nobody up.

mod lines;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::Context;
use super::failure::{Failure, chain, say, what_to_do};
use super::progress::Progress;
use crate::domain::key::OperationKey;
use crate::domain::outcome::{Envelope, Status};
use crate::domain::reason::Reason;
use crate::ingress::{Publisher, Submission, SubmitError};
use crate::store::{Link, StoreError};
use lines::Line;

/// How long one chunk is tried: more than a restart of the database takes.
const GIVE_UP: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Publish operations, one JSON object a line, and print an outcome envelope for each
///
/// Input and output lines correspond one to one. Each object has tenant, environment, workflow_id,
/// step_id, tool and arguments; optional are tool_version, metadata, actor, ordering_key,
/// not_before, distinct_from and traceparent. A line that is refused gets a rejected envelope, and
/// its number with the reason goes to stderr; the others go on. Submitting the same file again is
/// safe at any time. Exit code 1 when a line was rejected.
#[derive(Args, Debug)]
#[command(after_help = r#"Example, one line in a file:
  printf '%s' '{"tenant":"acme","environment":"prod",' \
    '"workflow_id":"run_827","step_id":"record_issue",' \
    '"tool":"tickets.create","arguments":{"queue_id":"support",' \
    '"subject":"Refund","body":"Please"}}' > operations.ndjson
  oncebox submit --file operations.ndjson"#)]
pub(super) struct SubmitFlags {
    /// Where the lines are; - is stdin
    #[arg(long, value_name = "PATH", default_value = "-")]
    file: PathBuf,

    /// Lines in one transaction, at most
    #[arg(long, value_name = "LINES", default_value_t = 200, value_parser = lines_at_most)]
    chunk: u16,
}

fn lines_at_most(text: &str) -> Result<u16, &'static str> {
    let told = "a whole number from 1 to 5000 is needed";
    text.parse().ok().filter(|lines| (1..=5000).contains(lines)).ok_or(told)
}

/// One pass over the input.
struct Run<'a> {
    context: &'a Context,
    publisher: Publisher,
    link: Link,
    /// The database has answered before, so a broken connection is worth waiting for.
    reached: bool,
    seen: u64,
    rejected: u64,
}

pub(super) async fn run(context: &Context, flags: &SubmitFlags) -> Result<(), Failure> {
    let (total, mut lines) = lines::read(&flags.file)?;
    let mut run = Run {
        context,
        publisher: Publisher::new(context.config.key_policy()),
        link: context.link(),
        reached: false,
        seen: 0,
        rejected: 0,
    };
    let progress = Progress::new(total, if total.is_some() { "bytes" } else { "lines" });
    let mut chunk = Vec::new();
    while lines.recv_many(&mut chunk, usize::from(flags.chunk)).await > 0 {
        let done = chunk.iter().map(|line| if total.is_some() { line.bytes } else { 1 }).sum();
        run.chunk(chunk.split_off(0)).await?;
        progress.add(done);
    }
    drop(progress);
    let (seen, rejected) = (run.seen, run.rejected);
    if rejected > 0 {
        return Err(Failure::failed(format!(
            "{rejected} of {seen} lines were rejected; the lines above say why, all others stand"
        )));
    }
    Ok(())
}

impl Run<'_> {
    async fn chunk(&mut self, lines: Vec<Line>) -> Result<(), Failure> {
        let mut read = Vec::with_capacity(lines.len());
        for line in lines {
            let text = line.text.map_err(|problem| SubmitError::Invalid(problem.to_owned()));
            read.push(text.and_then(|text| Submission::from_json(&text)));
        }
        let good: Vec<Submission> = read.iter().flatten().cloned().collect();
        let mut answers = self.published(&good).await?.into_iter();
        let mut out = Vec::new();
        for submission in read {
            self.seen += 1;
            let envelope = match submission {
                Err(error) => self.refused(None, &error),
                Ok(submission) => match answers.next() {
                    Some(Ok(envelope)) => self.told(envelope),
                    Some(Err(error)) => self.refused(Some(&submission), &error),
                    None => return Err(self.broken("fewer answers than lines;")),
                },
            };
            serde_json::to_writer(&mut out, &envelope)
                .map_err(|error| self.broken(&format!("{error};")))?;
            out.push(b'\n');
        }
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(&out).and_then(|()| stdout.flush());
        written.map_err(|error| self.broken(&format!("the answers cannot be written ({error});")))
    }

    fn told(&mut self, envelope: Envelope) -> Envelope {
        if envelope.status == Status::Rejected {
            self.rejected += 1;
            let reason = envelope.reason.unwrap_or("rejected");
            say(&format!("line {}: {reason}", self.seen));
        }
        // Whether the asking actor may see a stored response is not this door's to decide.
        envelope.without_response()
    }

    fn refused(&mut self, submission: Option<&Submission>, error: &SubmitError) -> Envelope {
        self.rejected += 1;
        say(&format!("line {}: {}", self.seen, why(error)));
        let key = submission.and_then(|s| {
            let policy = self.context.config.key_policy();
            let key =
                OperationKey::new(&s.tenant, &s.environment, &s.workflow_id, &s.step_id, &policy);
            key.ok().map(|key| key.as_str().to_owned())
        });
        let reason = error.reason().unwrap_or(Reason::InvalidArguments);
        let tool = submission.map(|s| s.tool.clone());
        Envelope::refused(key, tool, submission.and_then(|s| s.tool_version.clone()), reason)
    }

    /// Publishes in one transaction, again and again until it is certain that it is committed.
    async fn published(
        &mut self,
        submissions: &[Submission],
    ) -> Result<Vec<Result<Envelope, SubmitError>>, Failure> {
        if submissions.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        let mut wait = FIRST_WAIT;
        loop {
            let error = match self.transaction(submissions).await {
                Ok(answers) => {
                    self.reached = true;
                    return Ok(answers);
                }
                Err(error) => error,
            };
            if error.data_refused() {
                return self.one_by_one(submissions, error).await;
            }
            if !self.passes(&error) {
                let (why, first) = (chain(&error), what_to_do(&error));
                return Err(self.broken(&format!("{why}; {first}, and then")));
            }
            if begun.elapsed() > GIVE_UP {
                return Err(self.broken(&format!("{};", chain(&error))));
            }
            self.reached |= error.sqlstate().is_some();
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn transaction(
        &mut self,
        submissions: &[Submission],
    ) -> Result<Vec<Result<Envelope, SubmitError>>, StoreError> {
        let publisher = &self.publisher;
        self.link
            .transaction(async |connection| {
                publisher.submit_many(connection, submissions).await.map_err(|error| match error {
                    SubmitError::Store(error) => error,
                    // The rest of the list are answers to one line and do not come here.
                    SubmitError::Busy
                    | SubmitError::Invalid(_)
                    | SubmitError::Key(_)
                    | SubmitError::Arguments(_)
                    | SubmitError::UnknownContract
                    | SubmitError::UnreadableContract => StoreError::Deadline,
                })
            })
            .await
    }

    /// The database refused a chunk for what is in it: finds the line that did it.
    async fn one_by_one(
        &mut self,
        submissions: &[Submission],
        error: StoreError,
    ) -> Result<Vec<Result<Envelope, SubmitError>>, Failure> {
        if let [_] = submissions {
            let told = SubmitError::Invalid(format!("refused by the database: {}", chain(&error)));
            return Ok(vec![Err(told)]);
        }
        let mut answers = Vec::with_capacity(submissions.len());
        for one in submissions.chunks(1) {
            answers.extend(Box::pin(self.published(one)).await?);
        }
        Ok(answers)
    }

    /// Whether the same chunk may succeed later.
    fn passes(&self, error: &StoreError) -> bool {
        match error {
            StoreError::CommitUnknown(_) | StoreError::CommitDeadline | StoreError::Deadline => {
                true
            }
            StoreError::Connect(_) => self.reached,
            StoreError::Url | StoreError::Fenced | StoreError::Unreadable(_) => false,
            StoreError::RolledBack(_) => match error.sqlstate() {
                // Lock time-out, serialization, deadlock; shutdown and start; too many connections;
                // a connection or an idle transaction that the server ended.
                Some(code) => ["55P03", "40001", "40P01", "57P", "53300", "08", "25P03"]
                    .iter()
                    .any(|passing| code.starts_with(passing)),
                None => true,
            },
        }
    }

    fn broken(&self, why: &str) -> Failure {
        Failure::failed(format!(
            "stopped after {} lines: {why} submit the same input again: what is published stays one operation each",
            self.seen
        ))
    }
}

/// The reason of a refusal; a refused key says of itself what it is.
fn why(error: &SubmitError) -> String {
    match error {
        SubmitError::Key(key) => key.to_string(),
        SubmitError::Store(error) => chain(error),
        SubmitError::Invalid(_)
        | SubmitError::Arguments(_)
        | SubmitError::UnknownContract
        | SubmitError::UnreadableContract
        | SubmitError::Busy => error.to_string(),
    }
}

/// The lines, as many as there are by now.
type Lines = mpsc::Receiver<Line>;
