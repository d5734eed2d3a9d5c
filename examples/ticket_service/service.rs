//! The calls: what arrives, what happens, what is answered.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::faults::{Call, Faults, Garbage, Rule};
use crate::gauge::Gauge;
use crate::journal::Journal;
use crate::ledger::{Kind, Ledger, Outcome};
use crate::wire::Script;

type Answer = Response<Full<Bytes>>;

const MAX_BODY_BYTES: usize = 1 << 20;

/// The service's state: what it did, what it was asked, how it shall misbehave.
pub(crate) struct Service {
    ledger: Mutex<Ledger>,
    journal: Journal,
    faults: Faults,
    requests: AtomicU64,
    tickets: Gauge,
    mails: Gauge,
    deduplicate: bool,
}

/// One body of `POST /control`; the other is a [`Rule`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pause {
    pause: bool,
}

impl Service {
    /// Starts empty, or with the effects of an earlier run's journal.
    ///
    /// # Errors
    /// When the journal cannot be opened or holds what is no effect.
    pub(crate) fn open(journal: Option<&Path>, deduplicate: bool) -> Result<Self, Box<dyn Error>> {
        let (journal, earlier) = match journal {
            Some(path) => Journal::open(path)?,
            None => (Journal::none(), String::new()),
        };
        let ledger = Mutex::new(Ledger::replay(&earlier)?);
        Ok(Self {
            ledger,
            journal,
            faults: Faults::none(),
            requests: AtomicU64::new(0),
            tickets: Gauge::default(),
            mails: Gauge::default(),
            deduplicate,
        })
    }

    pub(crate) async fn handle(&self, request: Request<Incoming>, script: &Script) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long, or ended early");
        };
        let body = body.to_bytes();
        match (&head.method, head.uri.path()) {
            (&Method::POST, "/tickets") => {
                self.effect(Kind::Ticket, &head.headers, &body, script).await
            }
            (&Method::POST, "/mail") => self.effect(Kind::Mail, &head.headers, &body, script).await,
            (&Method::GET, "/tickets") => {
                self.look_up(head.uri.query().unwrap_or(""), script).await
            }
            (&Method::GET, "/effects") => {
                let requests = self.requests.load(Ordering::SeqCst);
                let most_at_once =
                    json!({"tickets": self.tickets.most(), "mail": self.mails.most()});
                json_answer(StatusCode::OK, &self.ledger().summary(requests, &most_at_once))
            }
            (&Method::POST, "/control") => self.control(&body),
            (&Method::POST, "/reset") => {
                self.faults.clear();
                json_answer(StatusCode::OK, &json!({}))
            }
            _ => plain(StatusCode::NOT_FOUND, "no such call"),
        }
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self, body: &[u8]) -> Answer {
        if let Ok(Pause { pause }) = serde_json::from_slice(body) {
            self.faults.pause(pause);
            return json_answer(StatusCode::OK, &json!({}));
        }
        match serde_json::from_slice(body) {
            Ok(rule) => self.faults.add(rule),
            Err(error) => {
                return plain(StatusCode::BAD_REQUEST, &format!("not a fault rule: {error}"));
            }
        }
        json_answer(StatusCode::OK, &json!({}))
    }

    async fn effect(
        &self,
        kind: Kind,
        headers: &HeaderMap,
        body: &[u8],
        script: &Script,
    ) -> Answer {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let gauge = if kind == Kind::Ticket { &self.tickets } else { &self.mails };
        let _at_work = gauge.enter();
        let Some((key, request)) = read(kind, headers, body) else {
            return plain(
                StatusCode::BAD_REQUEST,
                "expected a JSON object with the call's three members",
            );
        };
        self.faults.until_resumed().await;
        let call = if kind == Kind::Ticket { Call::Tickets } else { Call::Mail };
        let rule = self.faults.take(call, &key);
        pause(rule.delay_ms_before_effect).await;
        if let Some(answer) = refuse(&rule, script) {
            return answer;
        }
        let keyed = kind == Kind::Ticket && headers.contains_key("idempotency-key");
        let answer = self.commit(kind, &key, &request, keyed && self.deduplicate).await;
        if rule.duplicate {
            self.requests.fetch_add(1, Ordering::SeqCst);
            drop(self.commit(kind, &key, &request, keyed && self.deduplicate).await);
        }
        pause(rule.delay_ms_after_effect).await;
        distort(&rule, answer, script).await
    }

    /// Makes the effect and waits until it is on disk; a repeated key waits for the first one's.
    async fn commit(&self, kind: Kind, key: &str, request: &Value, deduplicate: bool) -> Answer {
        let (outcome, written) = {
            // Queued under the ledger's lock, so that the journal has the ledger's order.
            let mut ledger = self.ledger();
            let outcome = ledger.apply(kind, key, request, deduplicate);
            let line = match &outcome {
                Outcome::New(effect) => format!("{}\n", json!(effect)),
                Outcome::Repeated(_) | Outcome::Mismatch => String::new(),
            };
            (outcome, self.journal.append(line))
        };
        if written.await.is_err() {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "the journal is gone");
        }
        match outcome {
            Outcome::New(effect) if kind == Kind::Ticket => {
                json_answer(StatusCode::CREATED, &effect.answer())
            }
            Outcome::New(effect) => json_answer(StatusCode::OK, &effect.answer()),
            Outcome::Repeated(effect) => {
                let mut answer = json_answer(StatusCode::OK, &effect.answer());
                let replayed = HeaderName::from_static("idempotent-replayed");
                answer.headers_mut().insert(replayed, HeaderValue::from_static("true"));
                answer
            }
            Outcome::Mismatch => plain(
                StatusCode::UNPROCESSABLE_ENTITY,
                "this Idempotency-Key belongs to another request",
            ),
        }
    }

    async fn look_up(&self, query: &str, script: &Script) -> Answer {
        let Some(key) =
            query.split('&').find_map(|pair| pair.strip_prefix("key=")).and_then(percent_decoded)
        else {
            return plain(StatusCode::BAD_REQUEST, "expected ?key=");
        };
        self.faults.until_resumed().await;
        let rule = self.faults.take(Call::Lookup, &key);
        pause(rule.delay_ms_before_effect).await;
        if let Some(answer) = refuse(&rule, script) {
            return answer;
        }
        let found = self.ledger().ticket(&key).map(|effect| effect.answer());
        pause(rule.delay_ms_after_effect).await;
        let answer = match found {
            Some(ticket) => json_answer(StatusCode::OK, &ticket),
            None => plain(StatusCode::NOT_FOUND, "no ticket has this key"),
        };
        distort(&rule, answer, script).await
    }
}

/// The key under which an effect counts, and the request to compare a repetition with.
fn read(kind: Kind, headers: &HeaderMap, body: &[u8]) -> Option<(String, Value)> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let (header, members) = match kind {
        Kind::Ticket => ("idempotency-key", ["queue", "subject", "body"]),
        Kind::Mail => ("x-reference", ["to", "subject", "body"]),
    };
    if members.iter().any(|member| request.get(member).is_none()) {
        return None;
    }
    let named = headers.get(header).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let key = named.or_else(|| request.get("subject")?.as_str().map(str::to_owned))?;
    Some((key, request))
}

/// The faults that keep the effect from happening.
fn refuse(rule: &Rule, script: &Script) -> Option<Answer> {
    if rule.drop_before_effect {
        script.instead("");
        return Some(plain(StatusCode::OK, ""));
    }
    if let Some(location) = &rule.redirect {
        let mut answer = plain(StatusCode::TEMPORARY_REDIRECT, "elsewhere");
        answer.headers_mut().insert(LOCATION, HeaderValue::from_str(location).ok()?);
        return Some(answer);
    }
    Some(with_status(rule, rule.status?))
}

/// The faults that spoil the answer to an effect that was made.
async fn distort(rule: &Rule, answer: Answer, script: &Script) -> Answer {
    if rule.drop_response {
        script.instead("");
        return answer;
    }
    if let Some(status) = rule.status_after_effect {
        return with_status(rule, status);
    }
    let status = answer.status();
    match rule.garbage {
        Some(Garbage::Body) => return plain(status, "{\"ticket_id\": \"T-"),
        Some(Garbage::Receipt) => return json_answer(status, &json!({"status": "open"})),
        Some(Garbage::Wire) => {
            script.instead(&b"\x16\x03\x01 this is not HTTP\r\n\r\n\x00\xff"[..])
        }
        None => {}
    }
    let Ok(body) =
        answer.clone().into_body().collect().await.map(http_body_util::Collected::to_bytes);
    if rule.truncate {
        let half = body.slice(..body.len() / 2);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        script.instead([head.as_bytes(), &half].concat());
    }
    match (rule.oversized, serde_json::from_slice::<Value>(&body)) {
        (Some(bytes), Ok(Value::Object(mut members))) => {
            members.insert("padding".to_owned(), "x".repeat(bytes).into());
            json_answer(status, &Value::Object(members))
        }
        _ => answer,
    }
}

fn with_status(rule: &Rule, status: u16) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = match &rule.body {
        Some(body) => json_answer(status, body),
        None => plain(status, "as ordered"),
    };
    if let Some(after) =
        rule.retry_after.as_ref().and_then(|after| HeaderValue::from_str(after).ok())
    {
        answer.headers_mut().insert(RETRY_AFTER, after);
    }
    answer
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    with_type(status, "application/json", body.to_string())
}

fn plain(status: StatusCode, text: &str) -> Answer {
    with_type(status, "text/plain", text.to_owned())
}

fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

async fn pause(milliseconds: u64) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}
