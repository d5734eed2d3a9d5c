//! Starts attempts, each in a task of its own, and waits for them in the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::claim::Started;
use super::effect::{Guard, Passage, attempt};
use super::lease::Leases;
use super::mark::ToMark;
use super::served::Served;
use super::settle::{Finished, Outcome};
use super::transact::ToCommit;
use crate::broker::AckHandle;
use crate::domain::rule::Resend;
use crate::tool::{Call, ToolKind};

/// Where attempts begin, and where they go on to.
pub(super) struct Starter {
    pub(super) served: Arc<Served>,
    pub(super) margin: Duration,
    pub(super) leases: Leases,
    pub(super) finished: mpsc::Sender<Finished>,
    pub(super) marker: mpsc::Sender<ToMark>,
    pub(super) committer: mpsc::Sender<ToCommit>,
    pub(super) effects: JoinSet<()>,
}

impl Starter {
    /// Starts one attempt of a claim that was asked for at `asked`.
    pub(super) async fn start(&mut self, started: Started, handle: AckHandle, asked: Instant) {
        while self.effects.try_join_next().is_some() {}
        let Started { run, serving, arguments } = started;
        let record = run.step.record;
        let Some(running) = self.served.lane(&record.tool).map(|lane| lane.begin()) else {
            return;
        };
        let held = self.leases.hold(record.id, run.ticket.token.0, serving.rule.lease, asked);
        let call = Call {
            operation_id: record.id,
            tenant: record.tenant,
            environment: record.environment,
            tool: record.tool,
            tool_version: record.tool_version,
            arguments: Arc::new(arguments),
            idempotency_key: record.downstream_key.map(|key| key.key).unwrap_or_default(),
            resend: run.ticket.is_resend(),
            attempt: record.attempts,
            traceparent: record.traceparent,
            actor: None,
            job: None,
            receipt: None,
        };
        let (ticket, rule) = (run.ticket, serving.rule);
        if let ToolKind::Transactional(tool) = serving.tool.kind() {
            let ask = ToCommit { call, ticket, rule, tool: Arc::clone(tool), handle, running };
            drop(self.committer.send(ask).await);
            return;
        }
        let passage = Arc::new(Passage::default());
        let guard = Guard {
            ticket,
            held,
            margin: self.margin,
            window_ends: run.send_within.map(|within| asked + within),
            marker: (rule.resend == Resend::Never).then(|| self.marker.clone()),
            passage: Arc::clone(&passage),
        };
        let finished = self.finished.clone();
        self.effects.spawn(async move {
            let operation = call.operation_id;
            let learned = attempt(serving.tool.kind(), &call, guard).await;
            let outcome = Outcome { operation, ticket: passage.ticket(ticket), learned, rule };
            if finished.send(Finished { outcome, handle, running }).await.is_err() {
                warn!(operation_id = %operation, "the settler is gone; the lease will end");
            }
        });
    }

    /// Lets running effects end, at most for `within`; what does not is left to its lease.
    pub(super) async fn drain(mut self, within: Duration) {
        let all = async { while self.effects.join_next().await.is_some() {} };
        if timeout(within, all).await.is_err() {
            warn!(left = self.effects.len(), "effects did not end in time; their leases will");
            self.effects.shutdown().await;
        }
    }
}
