//! What `/control` takes: a rule, a setting, or an order.

use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::answers::{Answer, json_answer, plain};
use crate::calls::Call;
use crate::jobs::End;
use crate::service::Service;

/// How the service behaves until told otherwise or reset.
#[derive(Clone, Copy, Default)]
pub(crate) struct Settings {
    /// How old a ticket is when look-ups begin to see it.
    pub(crate) visible_after: Duration,
    /// For jobs that are submitted from now on.
    pub(crate) jobs: JobRule,
}

/// How long jobs take, and how they end.
#[derive(Clone, Copy)]
pub(crate) struct JobRule {
    /// `None`: until told; zero: within the call that submits it, which then answers with the ticket.
    pub(crate) take: Option<Duration>,
    pub(crate) end: End,
}

impl Default for JobRule {
    /// Long enough that the first poll of an eager client finds it running.
    fn default() -> Self {
        Self { take: Some(Duration::from_millis(200)), end: End::Done }
    }
}

/// One body of `POST /control`; the other is a [`Rule`](crate::faults::Rule).
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// `{"pause": true}` holds every call; `{"pause": {"on": "lookup", "hold": true}}` those of a kind.
    Pause(Pause),
    /// Takes the rule of this name away.
    Remove(String),
    /// `{"visible_after_ms": 500}`
    VisibleAfterMs(u64),
    /// `{"jobs": {"take_ms": 500}}`; `null`: each runs until told; `"end": "failed"`: they fail.
    Jobs {
        take_ms: Option<u64>,
        #[serde(default)]
        end: End,
    },
    /// `{"end_job": {"id": "J-1", "end": "done"}}`
    EndJob { id: String, end: End },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pause {
    All(bool),
    Some { on: Call, hold: bool },
}

impl Service {
    pub(crate) async fn control(&self, body: &[u8]) -> Answer {
        if let Ok(order) = serde_json::from_slice(body) {
            if !self.carry_out(order).await {
                return plain(StatusCode::CONFLICT, "no such job runs");
            }
        } else {
            match serde_json::from_slice(body) {
                Ok(rule) => self.faults.add(rule),
                Err(error) => {
                    let message = format!("neither an order nor a fault rule: {error}");
                    return plain(StatusCode::BAD_REQUEST, &message);
                }
            }
        }
        json_answer(StatusCode::OK, &json!({}))
    }

    /// Back to no faults and no settings; what was done stays.
    pub(crate) fn reset(&self) -> Answer {
        *self.settings_mut() = Settings::default();
        self.faults.clear();
        json_answer(StatusCode::OK, &json!({}))
    }

    /// False: there was nothing that it could be done to.
    async fn carry_out(&self, order: Order) -> bool {
        match order {
            Order::Pause(Pause::All(hold)) => self.faults.pause(None, hold),
            Order::Pause(Pause::Some { on, hold }) => self.faults.pause(Some(on), hold),
            Order::Remove(name) => self.faults.remove(&name),
            Order::VisibleAfterMs(milliseconds) => {
                self.settings_mut().visible_after = Duration::from_millis(milliseconds);
            }
            Order::Jobs { take_ms, end } => {
                let take = take_ms.map(Duration::from_millis);
                self.settings_mut().jobs = JobRule { take, end };
            }
            Order::EndJob { id, end } => return self.end_job(&id, end).await,
        }
        true
    }
}
