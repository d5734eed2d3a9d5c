//! The three ways in, at once, and each a second time.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::deployment::Deployment;
use crate::input::Input;
use crate::{Fault, process};

pub(crate) const RUST_COUNT: u32 = 400;
pub(crate) const PYTHON_COUNT: u32 = 400;

/// Every so many transactions of the two publishers is rolled back.
pub(crate) const ROLLBACK_EVERY: u32 = 8;

/// The part of an outcome envelope that is looked at.
#[derive(Clone, Deserialize, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) status: String,
    pub(crate) operation_id: Option<String>,
    pub(crate) reason: Option<String>,
}

/// What a publisher says at its end.
#[derive(Deserialize)]
pub(crate) struct Summary {
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    pub(crate) by_status: std::collections::BTreeMap<String, u64>,
}

/// What was answered.
pub(crate) struct Sent {
    pub(crate) first: Vec<Envelope>,
    pub(crate) second: Vec<Envelope>,
    pub(crate) changed: Vec<Envelope>,
    /// First and second run of each publisher.
    pub(crate) rust: (Summary, Summary),
    pub(crate) python: Option<(Summary, Summary)>,
}

/// Publishers that run.
pub(crate) struct Publishing {
    file: JoinHandle<Result<(), Fault>>,
    rust: JoinHandle<Result<(), Fault>>,
    python: Option<JoinHandle<Result<(), Fault>>>,
}

/// Starts all three.
pub(crate) fn start(deployment: &Deployment, input: &Input) -> Result<Publishing, Fault> {
    let run = &deployment.run;
    let background = |name: &'static str, command: Command| {
        let run = run.clone();
        tokio::spawn(async move { process::succeed(name, command, &run).await })
    };
    Ok(Publishing {
        file: background("submit-1", submit(deployment, &input.file)),
        rust: background("publisher-1", rust(deployment)),
        python: python(deployment).map(|command| background("publish.py-1", command)),
    })
}

impl Publishing {
    /// Waits for all three, then submits the file once more, changed requests under its keys, and
    /// lets both publishers run once more.
    pub(crate) async fn then_again(
        self,
        deployment: &Deployment,
        input: &Input,
    ) -> Result<Sent, Fault> {
        let run = &deployment.run;
        self.file.await??;
        process::succeed("submit-2", submit(deployment, &input.file), run).await?;
        // Exit code 1: lines were rejected, as they should be.
        let code = process::run("submit-3", submit(deployment, &input.changed_file), run).await?;
        if code != 1 {
            return Err(format!("changed requests: submit ended with {code} instead of 1").into());
        }
        self.rust.await??;
        process::succeed("publisher-2", rust(deployment), run).await?;
        let mut summaries = None;
        if let (Some(first), Some(command)) = (self.python, python(deployment)) {
            first.await??;
            process::succeed("publish.py-2", command, run).await?;
            summaries = Some((read_one(run, "publish.py-1")?, read_one(run, "publish.py-2")?));
        }
        Ok(Sent {
            first: read(run, "submit-1")?,
            second: read(run, "submit-2")?,
            changed: read(run, "submit-3")?,
            rust: (read_one(run, "publisher-1")?, read_one(run, "publisher-2")?),
            python: summaries,
        })
    }
}

fn submit(deployment: &Deployment, file: &Path) -> Command {
    let mut command = deployment.oncebox(&["submit", "--file"]);
    command.arg(file);
    command
}

fn rust(deployment: &Deployment) -> Command {
    let mut command = Command::new(deployment.example("publisher"));
    command.args(["--database-url", &deployment.database, "--prefix", "invoice"]);
    counted(command, RUST_COUNT)
}

fn python(deployment: &Deployment) -> Option<Command> {
    let mut command = Command::new(deployment.python.as_ref()?);
    command.arg(deployment.script("examples/publish.py"));
    command.args(["--dsn", &deployment.database, "--prefix", "order"]);
    Some(counted(command, PYTHON_COUNT))
}

fn counted(mut command: Command, count: u32) -> Command {
    let (count, every) = (count.to_string(), ROLLBACK_EVERY.to_string());
    command.args(["--count", &count, "--rollback-every", &every]);
    command
}

/// What a process printed, an object a line.
fn read<T: for<'de> Deserialize<'de>>(run: &Path, name: &str) -> Result<Vec<T>, Fault> {
    let text = std::fs::read_to_string(run.join(format!("{name}.out")))?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn read_one(run: &Path, name: &str) -> Result<Summary, Fault> {
    read(run, name)?.pop().ok_or_else(|| format!("{name} printed no summary").into())
}
