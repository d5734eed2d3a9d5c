//! One test's database, broker prefix and contracts.

use std::path::PathBuf;
use std::time::Duration;

use oncebox::broker::{AmqpUrl, BrokerSettings};
use oncebox::config::{Config, Needs, Roles, Sources};
use oncebox::domain::outcome::Envelope;
use oncebox::ingress::{Publisher, Submission, SubmitError};
use oncebox::runtime::{self, RustTools};
use oncebox::store::{self, DatabaseUrl};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::environment;

/// What one test has for itself. Its database goes with it.
pub(crate) struct World {
    /// `DATABASE_URL` of this test's database.
    pub(crate) database: String,
    /// `AMQP_URL`.
    pub(crate) amqp: String,
    /// In front of every queue and exchange of this test.
    pub(crate) prefix: String,
    /// This test's contract files.
    pub(crate) contracts: PathBuf,
    admin: String,
    name: String,
}

/// Roles that run in the test's own process, until this is dropped.
#[must_use]
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Asks the roles to stop and waits until they have drained.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(60), self.task)
            .await
            .expect("drains in time")
            .unwrap();
    }
}

impl World {
    /// A migrated database and an unused prefix.
    pub(crate) async fn new() -> Self {
        super::logs();
        let (admin, amqp) = (environment("DATABASE_URL"), environment("AMQP_URL"));
        Self::on(admin, amqp).await
    }

    /// The same on servers of one's own.
    pub(crate) async fn on(admin: String, amqp: String) -> Self {
        let name = format!("it_{}", Uuid::now_v7().simple());
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(format!("create database {name}"))).await.unwrap();
        connection.close().await.unwrap();
        let database = replace_database(&admin, &name);
        store::migrate(&DatabaseUrl::new(&database)).await.unwrap();
        let contracts = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&contracts).unwrap();
        Self { database, amqp, prefix: format!("{name}."), contracts, admin, name }
    }

    /// A connection that a test looks or acts with.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.database).await.unwrap()
    }

    /// Writes a contract file and registers it, as a worker at its start would.
    pub(crate) async fn contract(&self, yaml: &str) {
        let read = oncebox::contract_file::read(yaml, Duration::from_secs(5))
            .unwrap_or_else(|e| panic!("{e:?}"));
        let file = format!("{}@{}.yaml", read.tool, read.version.as_str().replace('/', "_"));
        std::fs::write(self.contracts.join(file), yaml).unwrap();
        let mut connection = self.connect().await;
        let digest = read.material_digest();
        store::register(
            &mut connection,
            read.tool.as_str(),
            read.version.as_str(),
            yaml,
            &digest,
            store::Immaterial::of(&read),
        )
        .await
        .unwrap();
    }

    /// The settings of this test's deployment; `more` overrides (`worker.concurrency=4`).
    pub(crate) fn config(&self, more: &[(&str, &str)]) -> Config {
        let mut sources = Sources::none();
        for (name, value) in self.variables() {
            sources.environment.insert(name, value);
        }
        for (key, value) in more {
            let name = match *key {
                "database.url" => "DATABASE_URL".to_owned(),
                "broker.url" => "AMQP_URL".to_owned(),
                key => format!("ONCEBOX_{}", key.replace('.', "_").to_uppercase()),
            };
            sources.environment.insert(name, (*value).to_owned());
        }
        let needs = Needs { database: true, broker: true, downstream_secret: true };
        Config::load(&sources, needs).unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    /// The environment that the real binary gets.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        [
            ("DATABASE_URL", self.database.clone()),
            ("AMQP_URL", self.amqp.clone()),
            ("ONCEBOX_BROKER_PREFIX", self.prefix.clone()),
            ("ONCEBOX_CONTRACTS", self.contracts.display().to_string()),
            ("ONCEBOX_DOWNSTREAM_SECRET", "t1:0123456789abcdef0123456789abcdef".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// How a layer's own test reaches the broker.
    pub(crate) fn broker(&self, name: &str) -> BrokerSettings {
        BrokerSettings {
            url: AmqpUrl::new(&self.amqp),
            prefix: self.prefix.clone(),
            connect_timeout: Duration::from_secs(5),
            heartbeat: Duration::from_secs(5),
            confirm_timeout: Duration::from_secs(5),
            name: name.to_owned(),
        }
    }

    /// Runs roles in this process: `"relay,worker,maintain"`.
    pub(crate) fn run(&self, roles: &str) -> Running {
        self.run_with(roles, &[], RustTools::default())
    }

    /// The same with settings and tools written in Rust.
    pub(crate) fn run_with(&self, roles: &str, more: &[(&str, &str)], tools: RustTools) -> Running {
        let (stop, shutdown) = watch::channel(false);
        let named = |role: &str| roles.split(',').any(|named| named == role);
        let roles =
            Roles { relay: named("relay"), worker: named("worker"), maintain: named("maintain") };
        let config = self.config(more);
        let task =
            tokio::spawn(
                async move { runtime::run(config, roles, tools, shutdown).await.unwrap() },
            );
        Running { stop, task }
    }

    /// Submits in a transaction of its own.
    pub(crate) async fn submit(&self, submission: &Submission) -> Result<Envelope, SubmitError> {
        let mut connection = self.connect().await;
        connection.execute("begin").await.unwrap();
        let outcome = Publisher::default().submit(&mut connection, submission).await;
        connection.execute(if outcome.is_ok() { "commit" } else { "rollback" }).await.unwrap();
        outcome
    }

    /// A submission for `tool` in tenant `acme`, environment `test`.
    pub(crate) fn submission(&self, tool: &str, step: &str, arguments: &str) -> Submission {
        Submission {
            tenant: "acme".into(),
            environment: "test".into(),
            workflow_id: "run".into(),
            step_id: step.into(),
            tool: tool.into(),
            arguments: arguments.into(),
            ..Submission::default()
        }
    }

    /// `(status, phase or reason)` of the operation of step `step`.
    pub(crate) async fn status(&self, step: &str) -> (String, String) {
        let mut connection = self.connect().await;
        let row = sqlx::query(
            "select status, coalesce(phase, reason, '') as more from oncebox.operations where operation_key = $1",
        )
        .bind(format!("acme:test:run:{step}"))
        .fetch_one(&mut connection)
        .await
        .unwrap();
        (row.get("status"), row.get("more"))
    }

    /// One number of this test's database.
    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let mut connection = self.connect().await;
        sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
    }

    /// Waits until every operation has ended or waits for a person.
    pub(crate) async fn settled(&self, seconds: u64) {
        let left = "select count(*) from oncebox.operations where status = 'pending' and phase <> 'parked'";
        super::eventually("every operation has ended", seconds, async || {
            (self.count(left).await == 0).then_some(())
        })
        .await;
    }

    /// The trace of step `step`: event names in order.
    pub(crate) async fn trace(&self, step: &str) -> Vec<String> {
        let mut connection = self.connect().await;
        sqlx::query_scalar(
            "select e.event from oncebox.operation_events e join oncebox.operations o using (operation_id) \
             where o.operation_key = $1 order by e.event_id",
        )
        .bind(format!("acme:test:run:{step}"))
        .fetch_all(&mut connection)
        .await
        .unwrap()
    }
}

/// Takes the database and the contracts away; what the broker keeps goes with the broker.
impl Drop for World {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.contracts).ok();
        let (admin, name) = (self.admin.clone(), self.name.clone());
        let gone = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                if let Ok(mut connection) = PgConnection::connect(&admin).await {
                    connection
                        .execute(sqlx::AssertSqlSafe(format!("drop database {name} with (force)")))
                        .await
                        .ok();
                }
            });
        });
        gone.join().ok();
    }
}

fn replace_database(url: &str, name: &str) -> String {
    let (base, _) = url.rsplit_once('/').expect("DATABASE_URL ends in /database");
    format!("{base}/{name}")
}
