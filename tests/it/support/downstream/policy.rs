//! The services that say whether something may happen.

use serde_json::{Value, json};

use super::Downstream;
use super::calls::{Calls, Kind};

/// `POST /v1/data/oncebox/allow`; the subject is the actor.
pub(crate) struct Policy;

impl Kind for Policy {
    const NAME: &'static str = "policy";
}

impl Calls<'_, Policy> {
    /// Nobody may, until [`Calls::allow_all`].
    pub(crate) async fn deny_all(&self) {
        self.fault(json!({"name": "deny", "status": 200, "body": {"result": false}})).await;
    }

    /// Ends [`Calls::deny_all`]; an actor that was denied by name stays so.
    pub(crate) async fn allow_all(&self) {
        self.downstream.control(json!({"remove": "deny"})).await;
    }

    /// This actor may not, until [`Calls::allow_actor`].
    pub(crate) async fn deny_actor(&self, actor: &str) {
        let name = format!("deny {actor}");
        let rule = json!({"name": name, "key": actor, "status": 200, "body": {"result": false}});
        self.fault(rule).await;
    }

    /// Ends [`Calls::deny_actor`].
    pub(crate) async fn allow_actor(&self, actor: &str) {
        self.downstream.control(json!({"remove": format!("deny {actor}")})).await;
    }

    /// The next `times` are answered `{}`: no rule applies, which is no yes.
    pub(crate) async fn undefined(&self, times: u64) {
        self.fault(json!({"status": 200, "body": {}, "times": times})).await;
    }

    /// The last inputs, oldest first.
    pub(crate) async fn inputs(&self) -> Vec<Value> {
        self.downstream.get("/inputs").await.as_array().cloned().unwrap_or_default()
    }
}

impl Downstream {
    /// The calls that ask the policy.
    pub(crate) fn policy(&self) -> Calls<'_, Policy> {
        Calls::all(self)
    }
}
