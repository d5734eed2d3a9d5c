//! What `/control` takes: a rule, a setting, or an order.

use std::time::Duration;

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::answers::{Answer, json_answer, plain};
use crate::calls::Call;
use crate::service::Service;

/// How the service behaves until told otherwise or reset.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// How old a ticket is when look-ups begin to see it.
    pub(crate) visible_after: Duration,
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
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pause {
    All(bool),
    Some { on: Call, hold: bool },
}

impl Service {
    pub(crate) fn control(&self, body: &[u8]) -> Answer {
        match serde_json::from_slice(body) {
            Ok(order) => self.carry_out(order),
            Err(_) => match serde_json::from_slice(body) {
                Ok(rule) => self.faults.add(rule),
                Err(error) => {
                    let message = format!("neither an order nor a fault rule: {error}");
                    return plain(StatusCode::BAD_REQUEST, &message);
                }
            },
        }
        json_answer(StatusCode::OK, &json!({}))
    }

    /// Back to no faults and no settings; what was done stays.
    pub(crate) fn reset(&self) -> Answer {
        *self.settings_mut() = Settings::default();
        self.faults.clear();
        json_answer(StatusCode::OK, &json!({}))
    }

    fn carry_out(&self, order: Order) {
        match order {
            Order::Pause(Pause::All(hold)) => self.faults.pause(None, hold),
            Order::Pause(Pause::Some { on, hold }) => self.faults.pause(Some(on), hold),
            Order::Remove(name) => self.faults.remove(&name),
            Order::VisibleAfterMs(milliseconds) => {
                self.settings_mut().visible_after = Duration::from_millis(milliseconds);
            }
        }
    }
}
