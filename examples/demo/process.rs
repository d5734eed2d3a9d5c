//! Processes of the demo. Each ends with its handle.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Fault;

/// More than `worker.drain`: a role that needs longer does not keep its word.
const DRAINS_WITHIN: Duration = Duration::from_secs(45);

/// A process in the background; what it says goes to a file.
pub(crate) struct Process {
    pub(crate) name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`; `run` is where its log goes.
    pub(crate) fn start(name: &str, mut command: Command, run: &Path) -> Result<Self, Fault> {
        let log = run.join(format!("{name}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let child =
            command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        Ok(Self { name: name.to_owned(), log, child })
    }

    /// Starts `command` and answers the first line it prints.
    pub(crate) async fn start_and_read(
        name: &str,
        mut command: Command,
        run: &Path,
    ) -> Result<(Self, String), Fault> {
        let log = run.join(format!("{name}.log"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{name} cannot be started: {error}"))?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        Ok((Self { name: name.to_owned(), log, child }, line))
    }

    /// An error when it has ended, which nothing told it to.
    pub(crate) fn still_runs(&mut self) -> Result<(), Fault> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = self.log.display();
                Err(format!("{} ended by itself ({status}); see {log}", self.name).into())
            }
        }
    }

    /// SIGKILL, and waits for its end.
    pub(crate) async fn kill(&mut self) -> Result<(), Fault> {
        Ok(self.child.kill().await?)
    }

    /// SIGTERM, and waits for its end; false when it did not end in time, or not with success.
    pub(crate) async fn stop(mut self) -> Result<bool, Fault> {
        let Some(pid) = self.child.id() else { return Ok(false) };
        Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        match tokio::time::timeout(DRAINS_WITHIN, self.child.wait()).await {
            Ok(status) => Ok(status?.success()),
            Err(_) => {
                self.kill().await?;
                Ok(false)
            }
        }
    }
}

/// Runs `command` to its end; stdout goes to `NAME.out`, stderr to `NAME.log`. Answers its exit code.
pub(crate) async fn run(name: &str, mut command: Command, run: &Path) -> Result<i32, Fault> {
    let out = File::create(run.join(format!("{name}.out")))?;
    let log = File::create(run.join(format!("{name}.log")))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(log)
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    status.code().ok_or_else(|| format!("{name} was killed").into())
}

/// The same for what must succeed.
pub(crate) async fn succeed(name: &str, command: Command, directory: &Path) -> Result<(), Fault> {
    match run(name, command, directory).await? {
        0 => Ok(()),
        code => {
            let log = std::fs::read_to_string(directory.join(format!("{name}.log")))?;
            let last = log.lines().last().unwrap_or_default().to_owned();
            Err(format!("{name} ended with exit code {code}: {last}").into())
        }
    }
}
