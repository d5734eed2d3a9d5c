//! One kind of the service's calls: its faults to order, and how often it was made.
//!
//! Faults are tried in the order in which they were given; the first that fits decides about a call.

use std::marker::PhantomData;
use std::time::Duration;

use serde_json::{Value, json};

use super::Downstream;

/// A kind of call.
pub(crate) trait Kind {
    /// Its name in `/control` and `/calls`.
    const NAME: &'static str;
}

/// The calls of one kind, of all subjects or of one.
pub(crate) struct Calls<'a, K> {
    pub(super) downstream: &'a Downstream,
    subject: Option<String>,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Calls<'a, K> {
    pub(super) fn all(downstream: &'a Downstream) -> Self {
        Self { downstream, subject: None, kind: PhantomData }
    }

    /// Those about one subject only: a key, a reference, a receipt, a job, an actor, a queue.
    pub(crate) fn of(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_owned()), ..self }
    }

    /// The next `times` are answered 500.
    pub(crate) async fn fail(&self, times: u64) {
        self.answer(500, times).await;
    }

    /// The next `times` are answered `status`, and do nothing.
    pub(crate) async fn answer(&self, status: u16, times: u64) {
        self.fault(json!({"status": status, "times": times})).await;
    }

    /// All are answered `status`, and do nothing, until [`Calls::as_usual`].
    pub(crate) async fn always(&self, status: u16) {
        self.fault(json!({"name": self.standing(), "status": status})).await;
    }

    /// Ends [`Calls::always`] of the same calls.
    pub(crate) async fn as_usual(&self) {
        self.downstream.control(json!({"remove": self.standing()})).await;
    }

    /// The next `times` are answered 503 with `Retry-After`.
    pub(crate) async fn unavailable(&self, retry_after_seconds: u64, times: u64) {
        let after = retry_after_seconds.to_string();
        self.fault(json!({"status": 503, "retry_after": after, "times": times})).await;
    }

    /// The next `times` do nothing and get no answer before [`Downstream::reset`].
    pub(crate) async fn hang(&self, times: u64) {
        self.fault(json!({"hang": true, "times": times})).await;
    }

    /// The next `times` do nothing, and their connection is closed.
    pub(crate) async fn drop_connection(&self, times: u64) {
        self.fault(json!({"drop_before_effect": true, "times": times})).await;
    }

    /// The next `times` are carried out, then their connection is closed without an answer.
    pub(crate) async fn drop_answer(&self, times: u64) {
        self.fault(json!({"drop_response": true, "times": times})).await;
    }

    /// The next `times` are carried out and answered by what is no JSON.
    pub(crate) async fn garbage(&self, times: u64) {
        self.fault(json!({"garbage": "body", "times": times})).await;
    }

    /// The next `times` are carried out and answered without what their answer is for: receipt, job, result.
    pub(crate) async fn say_nothing(&self, times: u64) {
        self.fault(json!({"garbage": "receipt", "times": times})).await;
    }

    /// The next `times` are answered as they should be, but only after `delay`.
    pub(crate) async fn answer_after(&self, delay: Duration, times: u64) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.fault(json!({"delay_ms_after_effect": delay, "times": times})).await;
    }

    /// All calls of this kind, whatever their subject, wait at the door until they are let go.
    pub(crate) async fn hold(&self) {
        self.pause(true).await;
    }

    /// Lets the held calls go.
    pub(crate) async fn let_go(&self) {
        self.pause(false).await;
    }

    /// How often they were made, counted as they arrived.
    pub(crate) async fn count(&self) -> u64 {
        let calls = self.downstream.get("/calls").await;
        let by_subject = calls[K::NAME].as_object().cloned().unwrap_or_default();
        let wanted = |name: &String| self.subject.as_ref().is_none_or(|subject| subject == name);
        by_subject.iter().filter(|(name, _)| wanted(name)).filter_map(|(_, n)| n.as_u64()).sum()
    }

    /// Waits until they were made `times` often.
    pub(crate) async fn arrived(&self, times: u64, seconds: u64) {
        super::super::eventually("the calls have arrived", seconds, async || {
            (self.count().await >= times).then_some(())
        })
        .await;
    }

    fn standing(&self) -> String {
        format!("always {} {}", K::NAME, self.subject.as_deref().unwrap_or("*"))
    }

    async fn pause(&self, hold: bool) {
        self.downstream.control(json!({"pause": {"on": K::NAME, "hold": hold}})).await;
    }

    /// Any rule of the service's `/control`, for these calls.
    pub(crate) async fn fault(&self, mut rule: Value) {
        rule["on"] = K::NAME.into();
        if let Some(subject) = &self.subject {
            rule["key"] = subject.as_str().into();
        }
        self.downstream.control(rule).await;
    }
}

impl Downstream {
    /// How many calls of every kind have arrived.
    pub(crate) async fn calls(&self) -> u64 {
        let calls = self.get("/calls").await;
        let kinds = calls.as_object().into_iter().flat_map(|kinds| kinds.values());
        let subjects = kinds.filter_map(Value::as_object).flat_map(|subjects| subjects.values());
        subjects.filter_map(Value::as_u64).sum()
    }
}
