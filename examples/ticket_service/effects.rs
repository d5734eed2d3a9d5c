//! The calls that make an effect at once.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use hyper::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::answers::{Answer, json_answer, mismatch, plain, replayed};
use crate::calls::Call;
use crate::ledger::{Kind, Outcome, Wanted};
use crate::service::Service;
use crate::wire::Script;

impl Service {
    /// `POST /tickets` and `POST /mail`.
    pub(crate) async fn effect(
        &self,
        kind: Kind,
        headers: &HeaderMap,
        body: &[u8],
        script: &Script,
    ) -> Answer {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let _at_work = self.gauge(kind).enter();
        let Some(wanted) = read(kind, headers, body) else {
            return plain(
                StatusCode::BAD_REQUEST,
                "expected a JSON object with the call's three members",
            );
        };
        let call = if kind == Kind::Ticket { Call::Tickets } else { Call::Mail };
        let rule = match self.admit(call, &wanted.key, script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let once = kind == Kind::Ticket && self.deduplicates(headers);
        let answer = self.commit(&wanted, once).await;
        if rule.duplicate {
            self.requests.fetch_add(1, Ordering::SeqCst);
            drop(self.commit(&wanted, once).await);
        }
        self.spoil(&rule, answer, script).await
    }

    /// Makes the effect and waits until it is on disk; a repeated key waits for the first one's.
    async fn commit(&self, wanted: &Wanted, deduplicate: bool) -> Answer {
        let (outcome, written) = {
            // Queued under the ledger's lock, so that the journal has the ledger's order.
            let mut ledger = self.ledger();
            let outcome = ledger.apply(wanted, deduplicate);
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
            Outcome::New(effect) if wanted.kind == Kind::Ticket => {
                json_answer(StatusCode::CREATED, &effect.answer())
            }
            Outcome::New(effect) => json_answer(StatusCode::OK, &effect.answer()),
            Outcome::Repeated(effect) => replayed(json_answer(StatusCode::OK, &effect.answer())),
            Outcome::Mismatch => mismatch(),
        }
    }
}

/// What a request asks for, under which key it counts, and how it can be found again.
pub(crate) fn read(kind: Kind, headers: &HeaderMap, body: &[u8]) -> Option<Wanted> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let members = match kind {
        Kind::Ticket => ["queue", "subject", "body"],
        Kind::Mail => ["to", "subject", "body"],
    };
    if members.iter().any(|member| request.get(member).is_none()) {
        return None;
    }
    let header = |name| headers.get(name)?.to_str().ok().map(str::to_owned);
    let member = |name| request.get(name)?.as_str().map(str::to_owned);
    let reference = header("x-reference").or_else(|| member("reference"));
    let key = match kind {
        Kind::Ticket => header("idempotency-key"),
        Kind::Mail => None,
    };
    let key = key.or_else(|| reference.clone()).or_else(|| member("subject"))?;
    Some(Wanted { kind, key, reference, request })
}
