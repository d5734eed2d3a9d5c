//! Starts attempts, each in a task of its own, and waits for them in the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::claim::Started;
use super::effect::{Guard, Passage, attempt, look_up};
use super::lease::{Held, Leases};
use super::mark::ToMark;
use super::served::{Running, Served};
use super::settle::{Finished, Outcome, Report};
use crate::broker::AckHandle;
use crate::domain::attempt::Learned;
use crate::domain::claim::{Purpose, Ticket};
use crate::domain::rule::AttemptRule;
use crate::serving::Serving;
use crate::tool::{Call, ToolKind};

/// A claim on its way to its settle.
pub(super) struct Begun {
    pub(super) call: Call,
    pub(super) serving: Arc<Serving>,
    pub(super) ticket: Ticket,
    pub(super) rule: AttemptRule,
    pub(super) handle: AckHandle,
    pub(super) running: Running,
}

impl Begun {
    async fn finish(self, ticket: Ticket, report: Report, finished: &mpsc::Sender<Finished>) {
        let Self { call, rule, handle, running, .. } = self;
        let operation = call.operation_id;
        let outcome = Outcome { operation, ticket, report, rule };
        if finished.send(Finished { outcome, handle, running }).await.is_err() {
            warn!(operation_id = %operation, "the settler is gone; the lease will end");
        }
    }
}

/// Where attempts begin, and where they go on to.
pub(super) struct Starter {
    pub(super) served: Arc<Served>,
    pub(super) margin: Duration,
    pub(super) leases: Leases,
    pub(super) finished: mpsc::Sender<Finished>,
    pub(super) marker: mpsc::Sender<ToMark>,
    pub(super) committer: mpsc::Sender<Begun>,
    pub(super) effects: JoinSet<()>,
}

impl Starter {
    /// Starts one attempt of a claim that was asked for at `asked`.
    pub(super) async fn start(&mut self, started: Started, handle: AckHandle, asked: Instant) {
        while self.effects.try_join_next().is_some() {}
        let Started { run, serving, arguments } = started;
        let (ticket, rule, purpose) = (run.ticket, serving.rule, run.purpose);
        let window_ends = run.send_within.map(|within| asked + within);
        let record = run.step.record;
        let Some(running) = self.served.lane(&record.tool).map(|lane| lane.begin(purpose)) else {
            return;
        };
        let call = Call::of(record, arguments, ticket.is_resend());
        let begun = Begun { call, serving, ticket, rule, handle, running };
        let finished = self.finished.clone();
        if purpose == Purpose::Poll {
            self.effects.spawn(async move {
                let evidence = begun.serving.tool.poll(&begun.call).await;
                begun.finish(ticket, Report::Answer(purpose, evidence), &finished).await;
            });
            return;
        }
        let held = self.leases.hold(begun.call.operation_id, ticket.token.0, rule.lease, asked);
        match (purpose, begun.serving.tool.kind()) {
            (Purpose::LookUp, _) => {
                self.effects.spawn(async move {
                    let evidence = look_up(&begun.serving.tool, &begun.call, held).await;
                    begun.finish(ticket, Report::Answer(purpose, evidence), &finished).await;
                });
            }
            (Purpose::Send | Purpose::Poll, ToolKind::Transactional(_)) => {
                self.transact(begun).await;
            }
            (Purpose::Send | Purpose::Poll, ToolKind::Http(_) | ToolKind::Rust(_)) => {
                self.send(begun, held, window_ends);
            }
        }
    }

    fn send(&mut self, begun: Begun, held: Held, window_ends: Option<Instant>) {
        let Begun { ticket, rule, .. } = begun;
        let passage = Arc::new(Passage::default());
        let guard = Guard {
            ticket,
            held,
            margin: self.margin,
            window_ends,
            marker: (!rule.marks_in_claim()).then(|| self.marker.clone()),
            passage: Arc::clone(&passage),
            serving: Arc::clone(&begun.serving),
            arguments: Arc::clone(&begun.call.arguments),
        };
        let finished = self.finished.clone();
        self.effects.spawn(async move {
            let learned = attempt(&begun.serving.tool, &begun.call, guard).await;
            begun.finish(passage.ticket(ticket), Report::Attempt(learned), &finished).await;
        });
    }

    /// Hands a transactional effect on, once what is asked outside the database has been asked.
    async fn transact(&mut self, begun: Begun) {
        let (committer, finished) = (self.committer.clone(), self.finished.clone());
        if !begun.rule.asks_before_send {
            drop(committer.send(begun).await);
            return;
        }
        self.effects.spawn(async move {
            match begun.serving.tool.may_send(&begun.call).await {
                Ok(()) => drop(committer.send(begun).await),
                Err(forbidden) => {
                    let ticket = begun.ticket;
                    let report = Report::Attempt(Learned::NotSent(forbidden));
                    begun.finish(ticket, report, &finished).await;
                }
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
