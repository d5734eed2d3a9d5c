//! The deployment of one scenario: who runs on straight ways, and who on ways that are held and cut.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use oncebox::broker::Broker;
use oncebox::ingress::Publisher;
use oncebox::runtime::RustTools;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};
use tokio::sync::Mutex;

use super::check;
use super::families::{Case, Family};
use super::hold::Ways;
use crate::support::downstream::Downstream;
use crate::support::eventually;
use crate::support::process::{Process, oncebox};
use crate::support::wire::Wire;
use crate::support::world::{Running, World};

/// Longer than a pause goes beyond the lease.
const STALL_MARGIN: &str = "2500ms";

/// Deadlines as short as the settings allow.
const SETTINGS: [(&str, &str); 8] = [
    ("worker.margin", "1s"),
    ("worker.drain", "5s"),
    // Also how long the broker hands messages to a consumer that is frozen: three times this.
    ("broker.heartbeat", "1s"),
    ("broker.confirm_timeout", "2s"),
    ("broker.connect_timeout", "3s"),
    ("relay.lease", "4s"),
    ("relay.poll", "200ms"),
    ("maintain.every", "100ms"),
];

/// What workers on the ways that are held call themselves.
const VICTIM: &str = "victim";

pub(super) struct Stage {
    stall_margin: &'static str,
    pub(super) world: World,
    pub(super) downstream: Downstream,
    pub(super) ways: Ways,
    /// Looks at the records.
    eye: Mutex<PgConnection>,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with(STALL_MARGIN).await
    }

    /// With another stall margin.
    pub(super) async fn with(stall_margin: &'static str) -> Self {
        let world = World::new().await;
        let journal = check::journal(&world);
        let downstream = Downstream::start_with(&["--journal", journal.to_str().unwrap()]);
        let ways = Ways::to(&world).await;
        let eye = Mutex::new(world.connect().await);
        Self { stall_margin, world, downstream, ways, eye }
    }

    pub(super) async fn contract(&self, family: Family, text: &str) {
        let read = oncebox::contract_file::read(text, Duration::from_secs(1))
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        std::fs::write(self.file(family), text).unwrap();
        let (tool, version) = (read.tool.as_str(), read.version.as_str());
        let (digest, immaterial) = (read.material_digest(), oncebox::store::Immaterial::of(&read));
        let mut connection = self.world.connect().await;
        oncebox::store::register(&mut connection, tool, version, text, &digest, immaterial)
            .await
            .unwrap();
    }

    pub(super) fn file(&self, family: Family) -> PathBuf {
        self.world.contracts.join(format!("{}.yaml", family.tool()))
    }

    fn settings(&self) -> Vec<(&'static str, &'static str)> {
        SETTINGS.into_iter().chain([("worker.stall_margin", self.stall_margin)]).collect()
    }

    /// Roles in this process, on straight ways.
    pub(super) fn run(&self, roles: &str) -> Running {
        self.world.run_with(roles, &self.settings(), RustTools::default())
    }

    /// The real binary, on the ways that are held and cut.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = oncebox(&self.world, arguments);
        for (key, value) in self.settings() {
            command.env(format!("ONCEBOX_{}", key.replace('.', "_").to_uppercase()), value);
        }
        command.env("DATABASE_URL", &self.ways.database).env("AMQP_URL", &self.ways.amqp);
        command.env("ONCEBOX_WORKER_NAME", VICTIM).stdout(Stdio::null());
        command
    }

    /// A role of the real binary; with a family, for its tool alone.
    pub(super) fn process(&self, role: &str, family: Option<Family>) -> Process {
        let mut command = self.command(&["run", "--role", role]);
        if let Some(family) = family {
            command.env("ONCEBOX_CONTRACTS", self.file(family));
        }
        Process::start(command)
    }

    /// Submits these in one transaction.
    pub(super) async fn submit(&self, cases: &[Case]) {
        let mut connection = self.world.connect().await;
        connection.execute("begin").await.unwrap();
        for case in cases {
            let arguments = json!({"queue_id": "q", "subject": case.step()}).to_string();
            let submission = self.world.submission(case.family.tool(), &case.step(), &arguments);
            Publisher::default().submit(&mut connection, &submission).await.unwrap();
        }
        connection.execute("commit").await.unwrap();
    }

    /// One number.
    pub(super) async fn count(&self, sql: impl Into<String>) -> i64 {
        let mut eye = self.eye.lock().await;
        sqlx::query_scalar(AssertSqlSafe(sql.into())).fetch_one(&mut *eye).await.unwrap()
    }

    /// Waits until this many rows are found.
    pub(super) async fn until(&self, what: &str, wanted: usize, count: &str) {
        let wanted = i64::try_from(wanted).unwrap();
        eventually(what, 60, async || (self.count(count).await == wanted).then_some(())).await;
    }

    /// Step and status of every operation.
    pub(super) async fn statuses(&self) -> Vec<(String, String)> {
        let statuses = "select replace(operation_key, 'acme:test:run:', '') as step, status from oncebox.operations";
        let mut eye = self.eye.lock().await;
        let rows = sqlx::query(statuses).fetch_all(&mut *eye).await.unwrap();
        rows.iter().map(|row| (row.get("step"), row.get("status"))).collect()
    }

    /// Waits until no worker of the victims has a claim left: others have taken over.
    pub(super) async fn taken_over(&self) {
        let theirs = format!(
            "select count(*) from oncebox.operations where status = 'pending' and owner like '{VICTIM}:%'"
        );
        self.until("others have taken over", 0, &theirs).await;
    }

    /// A record that somebody took to look it up is left alone for a minute, whatever became of them.
    pub(super) async fn a_minute_passes(&self) {
        let sooner = "with early as (update oncebox.operations set next_lookup_at = now() \
              where status = 'unknown' and next_lookup_at between now() + interval '30 s' and now() + interval '56 s' \
              returning 1) \
            select count(*) from early";
        self.count(sooner).await;
    }

    /// The keys of those that wait for an operator.
    pub(super) async fn parked(&self) -> Vec<String> {
        let parked = "select operation_key from oncebox.operations where phase = 'parked'";
        sqlx::query_scalar(parked).fetch_all(&mut *self.eye.lock().await).await.unwrap()
    }

    /// Everything that is known, for a person.
    pub(super) async fn dump(&self) -> String {
        let whole = "select coalesce(json_agg(json_build_object('record', o, 'trace', \
              (select json_agg(json_build_array(e.event, e.claim_epoch, e.detail, e.at::time) order by e.event_id) \
               from oncebox.operation_events e where e.operation_id = o.operation_id))), '[]')::text \
            from (select operation_id, operation_key, status, attempts_over_at, first_sent_at, phase, reason, owner, lease_until, due_at, lookups, attempts, \
                    (select count(*) from oncebox.outbox x where x.operation_id = p.operation_id) as rows \
                  from oncebox.operations p) o";
        let mut connection = self.world.connect().await;
        let whole: String = sqlx::query_scalar(whole).fetch_one(&mut connection).await.unwrap();
        let records: Vec<Value> = serde_json::from_str(&whole).unwrap();
        let records: Vec<String> = records.iter().map(ToString::to_string).collect();
        let calls = self.downstream.ask("GET", "/calls", &[], "").await.body;
        format!("{}\ncalls: {calls}", records.join("\n"))
    }

    /// Everybody who is left stops in order, and nothing is left to do.
    pub(super) async fn stop(
        &self,
        families: &[Family],
        mut processes: Vec<Process>,
        roles: Vec<Running>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        for process in &mut processes {
            if process.runs() {
                process.signal("TERM");
            } else {
                wrong.push("its process had ended by itself".to_owned());
            }
        }
        for process in &mut processes {
            let code = ended(process).await;
            if code != Some(0) {
                wrong.push(format!("its process ended with {code:?}"));
            }
        }
        self.until("the outbox is empty", 0, "select count(*) from oncebox.outbox").await;
        for running in roles {
            running.stop().await;
        }
        let broker = Broker::connect(&self.world.broker("look")).await.unwrap();
        // What came back from the dead a moment ago; and what a stop gave back unread.
        for _ in 0..5 {
            if self.ready(&broker, families).await > 0 {
                let last = self.run("worker");
                eventually("the queues are empty", 30, async || {
                    (self.ready(&broker, families).await == 0).then_some(())
                })
                .await;
                last.stop().await;
            }
        }
        let ready = self.ready(&broker, families).await;
        if ready > 0 {
            wrong.push(format!("{ready} messages were not acked"));
        }
        tokio::time::timeout(Duration::from_secs(5), broker.close()).await.unwrap();
        self.take_queues_away(families).await;
        wrong
    }

    /// Hundreds of scenarios with queues of their own would slow the broker down for all others.
    async fn take_queues_away(&self, families: &[Family]) {
        let wire = Wire::of(&self.world).await;
        let tools = families.iter().map(|family| family.tool());
        for queue in tools.chain(["dead", "unreadable"]) {
            wire.delete_queue(queue).await;
        }
    }

    /// Messages that wait. With all consumers gone, what was not acked is among them.
    async fn ready(&self, broker: &Broker, families: &[Family]) -> u32 {
        let mut all = 0;
        for family in families {
            all += broker.ready_count(family.tool()).await.unwrap();
        }
        all
    }
}

/// The exit code of a process that ends by itself; `None`: by a signal, or not within 20 s.
pub(super) async fn ended(process: &mut Process) -> Option<i32> {
    let began = Instant::now();
    while process.runs() && began.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.exit_code()
}
