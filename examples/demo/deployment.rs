//! Where everything is: servers, programs, files, and the environment of oncebox's processes.

use std::path::{Path, PathBuf};

use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use oncebox::broker::Names;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::process::Command;

use crate::{Fault, process};

/// The demo's own database on whatever server it got.
const DATABASE: &str = "oncebox_demo";
const SECRET: &str = "demo:a-secret-of-the-demo-and-nothing-else";

/// The example contracts, by their tools.
const CONTRACTS: [&str; 4] = ["tickets.create", "mail.send", "tickets.import", "tickets.batch"];

/// Whether the servers may be stopped.
pub(crate) enum Control {
    /// By services.sh on this directory; they end after the demo.
    Private(PathBuf),
    /// They run in containers, whose ports would change with a restart; they end after the demo.
    Docker,
    /// They are someone else's and go on.
    Given,
}

/// One demo's deployment.
pub(crate) struct Deployment {
    /// URL of the demo's own database.
    pub(crate) database: String,
    amqp: String,
    /// In front of every queue and exchange of this run.
    pub(crate) prefix: String,
    pub(crate) control: Control,
    /// An interpreter with psycopg.
    pub(crate) python: Option<PathBuf>,
    /// Input, output and logs of this run; the next one replaces them.
    pub(crate) run: PathBuf,
    programs: PathBuf,
    source: PathBuf,
}

impl Deployment {
    /// Reads the environment, makes an empty database and an empty directory.
    pub(crate) async fn prepare() -> Result<Self, Fault> {
        let (Some(server), Some(amqp)) = (variable("DATABASE_URL"), variable("AMQP_URL")) else {
            return Err("DATABASE_URL and AMQP_URL are not set; run it with `make demo`".into());
        };
        let control = match (variable("SERVICES_CONTROL").as_deref(), variable("SERVICES_DIR")) {
            (Some("private"), Some(directory)) => Control::Private(directory.into()),
            (Some("docker"), _) => Control::Docker,
            _ => Control::Given,
        };
        let program = std::env::current_exe()?;
        let programs = program.ancestors().nth(2).ok_or("not in a target directory")?.to_owned();
        let run = programs.parent().ok_or("not in a target directory")?.join("demo");
        if run.exists() {
            std::fs::remove_dir_all(&run)?;
        }
        std::fs::create_dir_all(&run)?;
        create_database(&server).await?;
        Ok(Self {
            database: on_database(&server, DATABASE),
            amqp,
            prefix: format!("demo-{}.", std::process::id()),
            control,
            python: variable("PYTHON").map(PathBuf::from),
            run,
            programs,
            source: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        })
    }

    /// The oncebox binary in this deployment.
    pub(crate) fn oncebox(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        // Not in the source tree: an oncebox.toml there is not the demo's.
        command
            .args(arguments)
            .current_dir(&self.run)
            .env("DATABASE_URL", &self.database)
            .env("AMQP_URL", &self.amqp)
            .env("ONCEBOX_BROKER_PREFIX", &self.prefix)
            .env("ONCEBOX_CONTRACTS", self.source.join("contracts"))
            .env("ONCEBOX_DOWNSTREAM_SECRET", SECRET);
        command
    }

    /// The oncebox binary.
    pub(crate) fn program(&self) -> PathBuf {
        self.programs.join("oncebox")
    }

    pub(crate) fn example(&self, name: &str) -> PathBuf {
        self.programs.join("examples").join(name)
    }

    pub(crate) fn script(&self, path: &str) -> PathBuf {
        self.source.join(path)
    }

    pub(crate) async fn migrate_and_activate(&self) -> Result<(), Fault> {
        process::succeed("migrate", self.oncebox(&["migrate"]), &self.run).await?;
        let files: Vec<String> = CONTRACTS
            .iter()
            .map(|tool| self.script(&format!("contracts/{tool}.yaml")).display().to_string())
            .collect();
        let mut command = self.oncebox(&["contract", "activate"]);
        command.args(files);
        process::succeed("activate", command, &self.run).await
    }

    /// Kills a server and starts it again.
    pub(crate) async fn restart(
        &self,
        directory: &Path,
        verb: &str,
        how: &str,
    ) -> Result<(), Fault> {
        let mut command = Command::new(self.script("deploy/local/services.sh"));
        command.arg(verb).arg(directory).arg(how);
        process::succeed(verb, command, &self.run).await
    }

    /// Removes this run's queues and exchanges from a broker that goes on living.
    pub(crate) async fn clean_up(&self) -> Result<(), Fault> {
        if !matches!(self.control, Control::Given) {
            return Ok(());
        }
        let connection = lapin::Connection::connect(&self.amqp, Default::default()).await?;
        let channel = connection.create_channel().await?;
        let names = Names::new(&self.prefix)?;
        let tools = CONTRACTS.iter().map(|tool| names.tool(tool));
        for queue in tools.chain([names.dead(), names.unreadable()]) {
            channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
        }
        for exchange in [names.operations(), names.dead(), names.results()] {
            channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await?;
        }
        Ok(connection.close(200, "done".into()).await?)
    }
}

/// A database of the demo's own, empty: what an earlier demo left in it goes.
async fn create_database(server: &str) -> Result<(), Fault> {
    let mut connection = PgConnection::connect(server)
        .await
        .map_err(|error| format!("PostgreSQL cannot be reached through DATABASE_URL: {error}"))?;
    for statement in
        [format!("drop database if exists {DATABASE}"), format!("create database {DATABASE}")]
    {
        connection.execute(AssertSqlSafe(statement)).await.map_err(|error| {
            format!("the demo needs a database {DATABASE} of its own, and so a role with CREATEDB and nobody connected to it: {error}")
        })?;
    }
    Ok(connection.close().await?)
}

/// `url` with another database.
fn on_database(url: &str, name: &str) -> String {
    let (place, parameters) = url.split_once('?').map_or((url, None), |(p, q)| (p, Some(q)));
    let (scheme, rest) = place.split_once("://").unwrap_or(("postgres", place));
    let authority = rest.split('/').next().unwrap_or(rest);
    let parameters = parameters.map(|parameters| format!("?{parameters}")).unwrap_or_default();
    format!("{scheme}://{authority}/{name}{parameters}")
}

/// A variable of the environment; an empty one is none.
pub(crate) fn variable(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods, reason = "no settings of oncebox: where the demo runs")]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
