//! The calls that decide whether something may happen: a policy, a precondition, a postcondition.
//!
//! Each says yes unless a rule says otherwise.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::answers::{Answer, json_answer, plain};
use crate::calls::Call;
use crate::ledger::By;
use crate::service::Service;
use crate::wire::Script;

/// As many as a test looks at.
const KEPT_INPUTS: usize = 100;

/// The last inputs of the policy, oldest first.
#[derive(Default)]
pub(crate) struct Inputs(Mutex<VecDeque<Value>>);

impl Inputs {
    fn keep(&self, input: Value) {
        let mut inputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inputs.len() == KEPT_INPUTS {
            inputs.pop_front();
        }
        inputs.push_back(input);
    }

    pub(crate) fn all(&self) -> Value {
        json!(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service {
    /// `POST /v1/data/oncebox/allow`, as an Open Policy Agent would be asked.
    pub(crate) async fn allow(&self, body: &[u8], script: &Script) -> Answer {
        let Some(input) =
            serde_json::from_slice::<Value>(body).ok().and_then(|body| body.get("input").cloned())
        else {
            return plain(StatusCode::BAD_REQUEST, "expected {\"input\": …}");
        };
        let actor = input.get("actor").and_then(Value::as_str).unwrap_or("").to_owned();
        self.inputs.keep(input);
        let rule = match self.admit(Call::Policy, &actor, script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let answer = json_answer(StatusCode::OK, &json!({"result": true}));
        self.spoil(&rule, answer, script).await
    }

    /// `GET /queues/QUEUE/open`
    pub(crate) async fn is_open(&self, queue: Option<String>, script: &Script) -> Answer {
        let Some(queue) = queue else {
            return plain(StatusCode::BAD_REQUEST, "expected a queue");
        };
        let rule = match self.admit(Call::Precondition, &queue, script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let answer = json_answer(StatusCode::OK, &json!({"open": true}));
        self.spoil(&rule, answer, script).await
    }

    /// `GET /tickets/ID/verified`, `GET /tickets/verified?key=K` and `?reference=R`. A ticket that
    /// look-ups do not see yet is verified all the same.
    pub(crate) async fn is_verified(&self, by: Option<By>, script: &Script) -> Answer {
        let Some(by) = by else {
            return plain(StatusCode::BAD_REQUEST, "expected a ticket");
        };
        let rule = match self.admit(Call::Postcondition, by.text(), script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let there = self.ledger().ticket(&by, std::time::Duration::ZERO).is_some();
        let answer = if there {
            json_answer(StatusCode::OK, &json!({"verified": true}))
        } else {
            plain(StatusCode::NOT_FOUND, "no such ticket")
        };
        self.spoil(&rule, answer, script).await
    }
}
