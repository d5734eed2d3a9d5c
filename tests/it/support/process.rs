//! The real binaries as processes that a test kills, freezes and stops. Each ends with its handle.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::world::World;

/// A process that this test started.
pub(crate) struct Process(Child);

/// A program that cargo built beside the tests.
pub(crate) fn built(name: &str) -> PathBuf {
    let oncebox = PathBuf::from(env!("CARGO_BIN_EXE_oncebox"));
    if name == "oncebox" { oncebox } else { oncebox.parent().unwrap().join("examples").join(name) }
}

/// The oncebox binary in this test's deployment.
pub(crate) fn oncebox(world: &World, arguments: &[&str]) -> Command {
    let mut command = Command::new(built("oncebox"));
    command
        .args(arguments)
        .envs(world.variables())
        .current_dir(&world.contracts)
        .stdin(Stdio::null());
    command
}

impl Process {
    /// Starts `command` in the background; what it logs goes nowhere unless `RUST_LOG` is set.
    pub(crate) fn start(mut command: Command) -> Self {
        #[allow(clippy::disallowed_methods, reason = "only how much a test shows")]
        let show = std::env::var("RUST_LOG").is_ok();
        command.stderr(if show { Stdio::inherit() } else { Stdio::null() });
        Self(command.spawn().unwrap())
    }

    /// Starts `command` in the background; what it logs goes to `file`.
    pub(crate) fn start_logging(mut command: Command, file: &Path) -> Self {
        command.stderr(std::fs::File::create(file).unwrap());
        Self(command.spawn().unwrap())
    }

    /// Starts `command` and answers the first line it prints.
    pub(crate) fn start_and_read(mut command: Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line)
    }

    /// Whether it is still there.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    #[cfg(feature = "kill_everywhere")]
    /// How it ended by itself; `None` while it runs, and when a signal ended it.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.0.try_wait().ok().flatten()?.code()
    }

    /// SIGKILL, and wait for its end.
    pub(crate) fn kill(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }

    /// SIGTERM, SIGSTOP, SIGCONT …
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success(), "kill -{name}");
    }

    /// SIGTERM, then its exit code, or `None` when it had to be killed after `seconds`.
    pub(crate) fn stop(&mut self, seconds: u64) -> Option<i32> {
        self.signal("TERM");
        for _ in 0..seconds * 50 {
            if let Ok(Some(status)) = self.0.try_wait() {
                return status.code();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        self.kill();
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
