//! The service's state, and the way of every call: counted, held, refused or let in, answered.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::json;

use crate::answers::{Answer, distort, json_answer, pause, plain, refuse};
use crate::calls::{Call, Counts};
use crate::control::Settings;
use crate::faults::{Faults, Rule};
use crate::gauge::Gauge;
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::ledger::{By, Kind, Ledger};
use crate::lookups::percent_decoded;
use crate::policy::Inputs;
use crate::wire::Script;

const MAX_BODY_BYTES: usize = 1 << 20;

/// The service's state: what it did, what it was asked, how it shall misbehave.
pub(crate) struct Service {
    ledger: Mutex<Ledger>,
    pub(crate) journal: Journal,
    jobs: Mutex<Jobs>,
    pub(crate) job_journal: Journal,
    pub(crate) faults: Faults,
    settings: Mutex<Settings>,
    pub(crate) inputs: Inputs,
    /// Calls that were to make an effect, well-formed or not; a duplicate counts.
    pub(crate) requests: AtomicU64,
    counts: Counts,
    tickets: Gauge,
    mails: Gauge,
    deduplicate: bool,
}

impl Service {
    /// Starts empty, or with the effects of an earlier run's journal.
    ///
    /// # Errors
    /// When the journal cannot be opened or holds what is no effect.
    pub(crate) fn open(journal: Option<&Path>, deduplicate: bool) -> Result<Self, Box<dyn Error>> {
        let open = |path: Option<PathBuf>| match path {
            Some(path) => Journal::open(&path),
            None => Ok((Journal::none(), String::new())),
        };
        let (effects, earlier) = open(journal.map(Path::to_owned))?;
        let ledger = Ledger::replay(&earlier)?;
        // Beside the effects, not among them: whoever reads the effects' journal counts its lines.
        let (job_journal, earlier) = open(journal.map(|path| path.with_added_extension("jobs")))?;
        let jobs = Jobs::replay(&earlier, ledger.tickets())?;
        Ok(Self {
            ledger: Mutex::new(ledger),
            journal: effects,
            jobs: Mutex::new(jobs),
            job_journal,
            faults: Faults::none(),
            settings: Mutex::default(),
            inputs: Inputs::default(),
            requests: AtomicU64::new(0),
            counts: Counts::default(),
            tickets: Gauge::default(),
            mails: Gauge::default(),
            deduplicate,
        })
    }

    pub(crate) async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        script: &Script,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long, or ended early");
        };
        let body = body.to_bytes();
        let path: Vec<&str> = head.uri.path().split('/').skip(1).collect();
        let query = head.uri.query().unwrap_or("");
        match (&head.method, path.as_slice()) {
            (&Method::POST, ["tickets"]) => {
                self.effect(Kind::Ticket, &head.headers, &body, script).await
            }
            (&Method::POST, ["mail"]) => {
                self.effect(Kind::Mail, &head.headers, &body, script).await
            }
            (&Method::POST, ["jobs"]) => self.submit_job(&head.headers, &body, script).await,
            (&Method::GET, ["jobs", id]) => self.poll(id, script).await,
            (&Method::GET, ["tickets"]) => self.look_up(By::query(query), script).await,
            (&Method::GET, ["tickets", "verified"]) => {
                self.is_verified(By::query(query), script).await
            }
            (&Method::GET, ["tickets", id]) => self.look_up(By::segment(id), script).await,
            (&Method::GET, ["tickets", id, "verified"]) => {
                self.is_verified(By::segment(id), script).await
            }
            (&Method::GET, ["queues", queue, "open"]) => {
                self.is_open(percent_decoded(queue), script).await
            }
            (&Method::POST, ["v1", "data", "oncebox", "allow"]) => self.allow(&body, script).await,
            (method, path) => self.tell(method, path, &body).await,
        }
    }

    /// The calls of those who order faults and ask what happened.
    async fn tell(&self, method: &Method, path: &[&str], body: &[u8]) -> Answer {
        let told = match (method, path) {
            (&Method::GET, ["effects"]) => {
                let requests = self.requests.load(Ordering::SeqCst);
                let most_at_once =
                    json!({"tickets": self.tickets.most(), "mail": self.mails.most()});
                self.ledger().summary(requests, &most_at_once)
            }
            (&Method::GET, ["calls"]) => self.counts.summary(),
            (&Method::GET, ["jobs"]) => self.jobs().summary(),
            (&Method::GET, ["inputs"]) => self.inputs.all(),
            (&Method::POST, ["control"]) => return self.control(body).await,
            (&Method::POST, ["reset"]) => return self.reset(),
            _ => return plain(StatusCode::NOT_FOUND, "no such call"),
        };
        json_answer(StatusCode::OK, &told)
    }

    /// Counts a call about `subject`, holds it as long as it shall wait, and lets it in with the
    /// rule that decides about it, or breaks with the answer that it gets instead.
    pub(crate) async fn admit(
        &self,
        call: Call,
        subject: &str,
        script: &Script,
    ) -> ControlFlow<Answer, Rule> {
        self.counts.add(call, subject);
        self.faults.until_resumed(call).await;
        let rule = self.faults.take(call, subject);
        pause(rule.delay_ms_before_effect).await;
        if rule.hang {
            self.faults.until_reset().await;
        }
        match refuse(&rule, script) {
            Some(answer) => ControlFlow::Break(answer),
            None => ControlFlow::Continue(rule),
        }
    }

    /// What the caller of an admitted call gets.
    pub(crate) async fn spoil(&self, rule: &Rule, answer: Answer, script: &Script) -> Answer {
        pause(rule.delay_ms_after_effect).await;
        distort(rule, answer, script).await
    }

    /// Whether a request with these headers is done at most once.
    pub(crate) fn deduplicates(&self, headers: &HeaderMap) -> bool {
        self.deduplicate && headers.contains_key("idempotency-key")
    }

    /// The calls in work that make effects of this kind.
    pub(crate) fn gauge(&self, kind: Kind) -> &Gauge {
        match kind {
            Kind::Ticket => &self.tickets,
            Kind::Mail => &self.mails,
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> Settings {
        *self.settings_mut()
    }

    pub(crate) fn settings_mut(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
