//! The calls about jobs: submit one, ask how it stands; and how one ends.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::{HeaderMap, StatusCode};
use serde_json::json;

use crate::answers::{Answer, json_answer, mismatch, plain, replayed};
use crate::calls::Call;
use crate::effects::read;
use crate::jobs::{End, Jobs, State, Submitted};
use crate::ledger::{Kind, Wanted};
use crate::service::Service;
use crate::wire::Script;

impl Service {
    /// `POST /jobs`
    pub(crate) async fn submit_job(
        self: &Arc<Self>,
        headers: &HeaderMap,
        body: &[u8],
        script: &Script,
    ) -> Answer {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let Some(wanted) = read(Kind::Ticket, headers, body) else {
            return plain(StatusCode::BAD_REQUEST, "expected queue, subject and body");
        };
        let rule = match self.admit(Call::Jobs, &wanted.key, script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let once = self.deduplicates(headers);
        let answer = self.accept(&wanted, once).await;
        if rule.duplicate {
            self.requests.fetch_add(1, Ordering::SeqCst);
            drop(self.accept(&wanted, once).await);
        }
        self.spoil(&rule, answer, script).await
    }

    /// `GET /jobs/ID`
    pub(crate) async fn poll(&self, id: &str, script: &Script) -> Answer {
        let rule = match self.admit(Call::Poll, id, script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let (state, written) = (self.jobs().state(id), self.journal.append(String::new()));
        // What is not on disk is not said.
        drop(written.await);
        let answer = match state {
            None => plain(StatusCode::NOT_FOUND, "no such job"),
            Some(State::Running) => json_answer(StatusCode::ACCEPTED, &json!({"state": "running"})),
            Some(State::Done(effect)) => json_answer(StatusCode::OK, &effect.answer()),
            Some(State::Failed) => json_answer(StatusCode::GONE, &json!({"state": "failed"})),
        };
        self.spoil(&rule, answer, script).await
    }

    /// Goes on with the jobs of an earlier run, from the beginning of each.
    pub(crate) fn resume_jobs(self: &Arc<Self>) {
        let running = self.jobs().all_running();
        running.into_iter().for_each(|id| self.work(id));
    }

    /// Ends a running job: its effect is made here and nowhere else. False: it does not run.
    pub(crate) async fn end_job(&self, id: &str, end: End) -> bool {
        let written = {
            // Always the jobs before the ledger, so that two ends of one job cannot both make it.
            let mut jobs = self.jobs();
            let Some(wanted) = jobs.running(id) else { return false };
            match end {
                End::Done => {
                    let mut ledger = self.ledger();
                    let effect = ledger.make(wanted, Some(id));
                    let written = self.journal.append(format!("{}\n", json!(effect)));
                    jobs.end(id, State::Done(effect));
                    written
                }
                End::Failed => self.job_journal.append(jobs.end(id, State::Failed)),
            }
        };
        written.await.is_ok()
    }

    async fn accept(self: &Arc<Self>, wanted: &Wanted, deduplicate: bool) -> Answer {
        let (submitted, written) = {
            let mut jobs = self.jobs();
            let submitted = jobs.submit(wanted, deduplicate);
            let line = match &submitted {
                Submitted::New(_) => Jobs::line(wanted),
                Submitted::Repeated(_) | Submitted::Mismatch => String::new(),
            };
            (submitted, self.job_journal.append(line))
        };
        if written.await.is_err() {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "the journal is gone");
        }
        let accepted = |id: &str| json_answer(StatusCode::ACCEPTED, &json!({"job_id": id}));
        match submitted {
            Submitted::New(id) if self.settings().jobs.take == Some(Duration::ZERO) => {
                self.end_job(&id, self.settings().jobs.end).await;
                let state = self.jobs().state(&id);
                match state {
                    Some(State::Done(effect)) => json_answer(StatusCode::CREATED, &effect.answer()),
                    Some(State::Running | State::Failed) | None => accepted(&id),
                }
            }
            Submitted::New(id) => {
                let answer = accepted(&id);
                self.work(id);
                answer
            }
            Submitted::Repeated(id) => replayed(accepted(&id)),
            Submitted::Mismatch => mismatch(),
        }
    }

    /// Ends the job when its time has come, if jobs end by themselves now.
    fn work(self: &Arc<Self>, id: String) {
        let rule = self.settings().jobs;
        let Some(take) = rule.take else { return };
        let service = Arc::clone(self);
        drop(tokio::spawn(async move {
            tokio::time::sleep(take).await;
            service.end_job(&id, rule.end).await;
        }));
    }
}
