//! PostgreSQL and RabbitMQ of one test alone: it may stop, kill, pause and empty them.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use uuid::Uuid;

use super::world::World;

/// Both servers, on free ports of loopback. Whatever becomes of the test, even SIGKILL, they end with
/// it and their data goes.
pub(crate) struct Servers {
    directory: PathBuf,
    /// `DATABASE_URL`, `AMQP_URL`, `RABBITMQ_API`, process ids … as `services.sh` wrote them.
    variables: Vec<(String, String)>,
    guard: Guard,
}

/// A process of its own group that takes the servers down as soon as this test's end of the pipe closes.
struct Guard {
    process: Child,
    pipe: Option<ChildStdin>,
}

/// How PostgreSQL or RabbitMQ is to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// As an administrator does it: PostgreSQL cuts its clients, RabbitMQ shuts down.
    Orderly,
    /// As if the machine had died.
    Abrupt,
}

/// Which of the two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Server {
    Postgres,
    Rabbit,
}

impl Servers {
    /// Starts both (some ten seconds).
    pub(crate) async fn start() -> Self {
        let directory =
            std::env::temp_dir().join(format!("oncebox-it-{}", Uuid::now_v7().simple()));
        let guard = Guard::over(&directory);
        let mut servers = Self { directory, variables: Vec::new(), guard };
        servers.control(&["up"]).await;
        servers
    }

    /// A world on these servers: it must be dropped before them.
    pub(crate) async fn world(&self) -> World {
        super::logs();
        World::on(self.variable("DATABASE_URL"), self.variable("AMQP_URL")).await
    }

    /// One line of what `services.sh` wrote down: `RABBITMQ_API`.
    pub(crate) fn variable(&self, name: &str) -> String {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("services.sh wrote no {name}")).1.clone()
    }

    /// Ends one server; its data and its port stay for `start_again`.
    pub(crate) async fn stop(&mut self, server: Server, ending: Ending) {
        match server {
            Server::Postgres => self.control(&["stop-postgres", ending.of_postgres()]).await,
            Server::Rabbit => self.control(&["stop-rabbit", ending.of_rabbit()]).await,
        }
    }

    /// Starts a stopped server and waits until it answers.
    pub(crate) async fn start_again(&mut self, server: Server) {
        match server {
            Server::Postgres => self.control(&["start-postgres"]).await,
            Server::Rabbit => self.control(&["start-rabbit"]).await,
        }
    }

    /// `stop` and `start_again`.
    pub(crate) async fn restart(&mut self, server: Server, ending: Ending) {
        self.stop(server, ending).await;
        self.start_again(server).await;
    }

    /// SIGSTOP: connections stand, nothing answers.
    pub(crate) fn pause(&self, server: Server) {
        self.signal(server, "STOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self, server: Server) {
        self.signal(server, "CONT");
    }

    /// Removes everything that the broker stored. It must be stopped.
    pub(crate) fn empty_broker(&self) {
        assert_eq!(self.variable("RABBITMQ_PID"), "", "the broker is still running");
        let data = self.home().join("rabbit").join("mnesia");
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::create_dir(&data).unwrap();
    }

    /// Evaluates an Erlang expression in RabbitMQ, for what only a running node can be told.
    pub(crate) fn rabbit_eval(&self, expression: &str) {
        let ports = std::fs::read_to_string(self.directory.join("state").join("ports")).unwrap();
        let epmd = ports.lines().find_map(|line| line.strip_prefix("EPMD_PORT=")).unwrap();
        let newest = r#"sbin=${RABBITMQ_BIN:-$(ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin | sort -V | tail -n 1)}
            exec "$sbin/rabbitmqctl" -n oncebox@localhost eval "$1""#;
        let done = Command::new("bash")
            .args(["-c", newest, "bash", expression])
            .env("HOME", self.home().join("rabbit"))
            .env("ERL_EPMD_PORT", epmd)
            .output()
            .unwrap();
        succeeded("rabbitmqctl eval", &done);
    }

    fn home(&self) -> PathBuf {
        let home = std::fs::read_to_string(self.directory.join("state").join("home")).unwrap();
        PathBuf::from(home.trim())
    }

    fn signal(&self, server: Server, name: &str) {
        let first = self.variable(match server {
            Server::Postgres => "POSTGRES_PID",
            Server::Rabbit => "RABBITMQ_PID",
        });
        assert_ne!(first, "", "{server:?} is not running");
        // PostgreSQL's backends are processes of their own; what forked meanwhile is found by the
        // second look, because the postmaster itself has stopped by then.
        for _ in 0..2 {
            for process in family(&first) {
                let mut kill = Command::new("kill");
                kill.args([&format!("-{name}"), &process]).stderr(Stdio::null());
                // A backend that has ended meanwhile is no fault.
                kill.status().unwrap();
            }
        }
    }

    async fn control(&mut self, verb: &[&str]) {
        let (verb, more) = verb.split_first().unwrap();
        let mut command = services(verb, &self.directory);
        command.args(more);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        succeeded(verb, &output);
        self.variables = read_variables(&self.directory.join("env"));
    }
}

/// A paused server cannot be ended by a signal that it has to handle.
impl Drop for Servers {
    fn drop(&mut self) {
        for (name, server) in [("POSTGRES_PID", Server::Postgres), ("RABBITMQ_PID", Server::Rabbit)]
        {
            if self.variables.iter().any(|(known, value)| known == name && !value.is_empty()) {
                self.signal(server, "CONT");
            }
        }
        self.guard.end();
    }
}

impl Guard {
    fn over(directory: &Path) -> Self {
        use std::os::unix::process::CommandExt as _;
        // The runner ends a test by its process group, which must not take the guard along.
        let mut process = Command::new("bash")
            .args(["-c", "trap '' INT TERM; cat >/dev/null; exec \"$0\" down \"$1\""])
            .arg(script())
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let pipe = process.stdin.take();
        Self { process, pipe }
    }

    fn end(&mut self) {
        drop(self.pipe.take());
        self.process.wait().ok();
    }
}

impl Ending {
    fn of_postgres(self) -> &'static str {
        match self {
            Self::Orderly => "fast",
            Self::Abrupt => "immediate",
        }
    }

    fn of_rabbit(self) -> &'static str {
        match self {
            Self::Orderly => "term",
            Self::Abrupt => "kill",
        }
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/local/services.sh")
}

fn services(verb: &str, directory: &Path) -> Command {
    let mut command = Command::new(script());
    command.arg(verb).arg(directory).stdin(Stdio::null());
    command
}

fn succeeded(verb: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "services.sh {verb}: {said}");
}

fn read_variables(file: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A process and its children.
fn family(first: &str) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().map(str::to_owned);
    std::iter::once(first.to_owned()).chain(children).collect()
}
