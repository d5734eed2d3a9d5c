//! One tool, its downstream, and roles whose waits are short.

use std::sync::OnceLock;

use oncebox::ingress::Submission;
use serde_json::Value;
use sqlx::Executor as _;

use crate::consumer::kit::{self, Record};
use crate::support::contracts::ContractText;
use crate::support::downstream::Downstream;
use crate::support::process::{Process, oncebox};
use crate::support::world::{Running, World};
use crate::support::{doors, eventually};

/// Short waits between attempts and between look-ups, up to twelve of each.
pub(crate) const RETRY: &str = "retry: {initial: 100ms, max: 300ms, jitter: 0}";

/// Short waits, and three of each.
pub(crate) const THREE: &str = "retry: {initial: 100ms, max: 300ms, jitter: 0, attempts: 3}";

/// A deployment with one tool.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) downstream: Downstream,
    pub(crate) tool: String,
    /// That of the roles that run, for `oncebox ops`.
    stall_margin: OnceLock<&'static str>,
}

impl Stage {
    /// The tool of `contract`, with a time-out of 900 ms and a lease of 2 s.
    pub(crate) async fn with(contract: impl FnOnce(&str) -> ContractText, retry: &str) -> Self {
        let quick = |url: &str| contract(url).timeout("900ms").more("lease: 2s").more(retry).text();
        Self::of(quick).await
    }

    /// The tool of this contract's text.
    pub(crate) async fn of(contract: impl FnOnce(&str) -> String) -> Self {
        let (world, downstream) = (World::new().await, Downstream::start());
        let text = contract(&downstream.url);
        kit::contract(&world, &text).await;
        let tool = text.lines().find_map(|line| line.strip_prefix("name: ")).unwrap().to_owned();
        Self { world, downstream, tool, stall_margin: OnceLock::new() }
    }

    /// Relay, worker and maintain in this process. An attempt that nobody answered may be under way
    /// for `stall_margin`.
    pub(crate) fn run(&self, stall_margin: &'static str) -> Running {
        self.roles("relay,worker,maintain", stall_margin)
    }

    /// Some of the roles in this process.
    pub(crate) fn roles(&self, roles: &str, stall_margin: &'static str) -> Running {
        self.stall_margin.get_or_init(|| stall_margin);
        let mut settings = kit::MARGIN.to_vec();
        settings.push(("worker.stall_margin", stall_margin));
        settings.push(("maintain.every", "100ms"));
        self.world.run_with(roles, &settings, Default::default())
    }

    /// Some of the roles as a process that can be killed and frozen.
    pub(crate) fn process(&self, roles: &str, stall_margin: &'static str) -> Process {
        let settings = [
            ("ONCEBOX_WORKER_STALL_MARGIN", stall_margin),
            ("ONCEBOX_WORKER_NAME", "same"),
            ("ONCEBOX_MAINTAIN_EVERY", "100ms"),
            // The broker notices soon that nobody answers there, and gives its messages to others.
            ("ONCEBOX_BROKER_HEARTBEAT", "1s"),
        ];
        kit::roles(&self.world, roles, &settings)
    }

    /// What an application submits for `step`.
    pub(crate) fn submission(&self, step: &str) -> Submission {
        let arguments = format!(r#"{{"queue_id":"q","subject":"{step}"}}"#);
        self.world.submission(&self.tool, step, &arguments)
    }

    /// Submits one ticket for `step`.
    pub(crate) async fn submit(&self, step: &str) {
        self.world.submit(&self.submission(step)).await.unwrap();
    }

    /// Waits until the record of `step` has this status.
    pub(crate) async fn ends(&self, step: &str, status: &str) -> Record {
        kit::ends(&self.world, step, status).await
    }

    /// Waits until the record of `step` has this status for this reason.
    pub(crate) async fn ends_for(&self, step: &str, status: &str, reason: &str) -> Record {
        let what = format!("{step} is {status} / {reason}");
        kit::until(&self.world, step, &what, |record| {
            record.status == status && record.reason.as_deref() == Some(reason)
        })
        .await
    }

    /// Waits until the record of `step` is in this phase.
    pub(crate) async fn comes_to(&self, step: &str, phase: &str) -> Record {
        let what = format!("{step} is {phase}");
        kit::until(&self.world, step, &what, |record| record.phase.as_deref() == Some(phase)).await
    }

    /// `oncebox ops LINE`, whose second word is the step that is meant. Exit code, stdout, stderr.
    pub(crate) async fn ops(&self, line: &str) -> (Option<i32>, String, String) {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        words[1] = format!("acme:test:run:{}", words[1]);
        self.oncebox(&format!("ops {}", words.join(" "))).await
    }

    /// `oncebox LINE`. Exit code, stdout, stderr.
    pub(crate) async fn oncebox(&self, line: &str) -> (Option<i32>, String, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = oncebox(&self.world, &words);
        command.env("ONCEBOX_WORKER_STALL_MARGIN", self.stall_margin.get().unwrap_or(&"5m"));
        command.env("ONCEBOX_WORKER_MARGIN", "1s");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// The details of each `event` in the trace of `step`, in order; null where there are none.
    pub(crate) async fn told(&self, step: &str, event: &str) -> Vec<Value> {
        let rows: Vec<Option<String>> = sqlx::query_scalar(
            "select e.detail::text from oncebox.operation_events e join oncebox.operations o using (operation_id) \
             where o.operation_key = $1 and e.event = $2 order by e.event_id",
        )
        .bind(format!("acme:test:run:{step}"))
        .bind(event)
        .fetch_all(&mut self.world.connect().await)
        .await
        .unwrap();
        let read = |text: String| serde_json::from_str(&text).unwrap();
        rows.into_iter().map(|text| text.map_or(Value::Null, read)).collect()
    }

    /// Seconds between two events of the trace of `step`: the last `from` before the first `to` that
    /// follows it, and that one.
    pub(crate) async fn seconds(&self, step: &str, from: &str, to: &str) -> f64 {
        sqlx::query_scalar(
            "select extract(epoch from min(t.at) - (array_agg(f.at order by f.event_id))[1])::float8 \
             from oncebox.operations o join oncebox.operation_events f using (operation_id) \
             join oncebox.operation_events t using (operation_id) \
             where o.operation_key = $1 and f.event = $2 and t.event = $3 and t.event_id > f.event_id",
        )
        .bind(format!("acme:test:run:{step}"))
        .bind(from)
        .bind(to)
        .fetch_one(&mut self.world.connect().await)
        .await
        .unwrap()
    }

    /// One column of the record of `step`, or an expression over it.
    pub(crate) async fn column(&self, step: &str, expression: &'static str) -> Option<String> {
        doors::column(&self.world, step, expression).await
    }

    /// Changes the record of `step`.
    pub(crate) async fn set(&self, step: &str, assignment: &'static str) {
        let statement =
            format!("update oncebox.operations set {assignment} where operation_key = $1");
        let done = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(format!("acme:test:run:{step}"))
            .execute(&mut self.world.connect().await)
            .await
            .unwrap();
        assert_eq!(done.rows_affected(), 1);
    }

    /// Changes every record.
    pub(crate) async fn all(&self, assignment: &'static str) {
        let statement = format!("update oncebox.operations set {assignment}");
        self.world.connect().await.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }

    /// Waits until `expression` holds of the record of `step`.
    pub(crate) async fn holds(&self, step: &str, expression: &'static str) {
        eventually(expression, 30, async || {
            (self.column(step, expression).await.as_deref() == Some("true")).then_some(())
        })
        .await;
    }
}

/// How often an event stands in a trace.
pub(crate) fn times(trace: &[String], event: &str) -> usize {
    trace.iter().filter(|name| *name == event).count()
}
