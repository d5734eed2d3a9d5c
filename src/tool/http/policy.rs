//! A policy service in the form of OPA's data API.
//!
//! The question is a POST with `{"input": {...}}`. Only a whole answer 200 whose object says
//! `"result": true` allows. `"result": false` denies, and so does an object without a result, which is
//! how OPA says that no rule gives the decision a value (its REST API page, "Get a Document with
//! Input"): a policy that is not loaded allows nobody. Everything else is no decision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::answer::Answer;
use super::client::{About, HttpClient};
use crate::domain::contract::Policy;
use crate::domain::contract::template::{RenderContext, SecretRef, Secrets};
use crate::domain::evidence::Allowance;
use crate::domain::json::Json;
use crate::tool::permission::Question;

/// The policy service of one contract.
pub(crate) struct HttpPolicy {
    client: Arc<HttpClient>,
    policy: Policy,
    secrets: BTreeMap<SecretRef, String>,
}

impl HttpPolicy {
    pub(crate) fn new(client: Arc<HttpClient>, policy: &Policy, secrets: Secrets<'_>) -> Self {
        let secrets = super::found(policy.secrets(), secrets);
        Self { client, policy: policy.clone(), secrets }
    }

    /// The secrets that the policy's request refers to and that were not there.
    pub(crate) fn missing_secrets(&self) -> Vec<&SecretRef> {
        let named = self.policy.secrets().into_iter();
        named.filter(|name| !self.secrets.contains_key(name)).collect()
    }

    /// Asks for one decision.
    pub(crate) async fn allow(&self, question: &Question<'_>) -> Allowance {
        let operation_id = question.operation_id.to_string();
        let context = RenderContext {
            arguments: question.arguments,
            idempotency_key: None,
            operation_id: &operation_id,
            tenant: question.tenant,
            environment: question.environment,
            job: None,
            receipt: None,
        };
        let secrets = |name: &SecretRef| self.secrets.get(name).cloned();
        let rendered = match self.policy.render(input(question, &operation_id), &context, &secrets)
        {
            Ok(rendered) => rendered,
            Err(error) => {
                let tool = question.tool;
                tracing::warn!(%operation_id, tool, %error, "policy cannot be asked");
                return Allowance::Unreachable;
            }
        };
        let about = About {
            operation_id: question.operation_id,
            tool: question.tool,
            traceparent: question.traceparent,
        };
        let answer = self.client.ask(about, rendered, self.policy.timeout).await;
        answer.map_or(Allowance::Unreachable, |answer| answer.of_policy())
    }
}

/// The body of the question.
fn input(question: &Question<'_>, operation_id: &str) -> String {
    let text = |text: &str| Json::String(text.to_owned());
    let members = [
        ("action", text(question.action.as_str())),
        ("actor", question.actor.map_or(Json::Null, text)),
        ("tenant", text(question.tenant)),
        ("environment", text(question.environment)),
        ("tool", text(question.tool)),
        ("tool_version", text(question.tool_version)),
        ("operation_id", text(operation_id)),
        ("arguments", question.arguments.clone()),
    ];
    let members = members.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Json::Object(vec![("input".to_owned(), Json::Object(members))]).to_text()
}

impl Answer {
    fn of_policy(&self) -> Allowance {
        if self.status.as_u16() != 200 {
            return Allowance::Unreachable;
        }
        match self.json() {
            Some(body @ Json::Object(_)) => match body.member("result") {
                Some(Json::Bool(true)) => Allowance::Allowed,
                Some(Json::Bool(false)) | None => Allowance::Denied,
                Some(
                    Json::Null
                    | Json::Number(_)
                    | Json::String(_)
                    | Json::Array(_)
                    | Json::Object(_),
                ) => Allowance::Unreachable,
            },
            Some(
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_),
            )
            | None => Allowance::Unreachable,
        }
    }
}

/// Shows no secret.
impl fmt::Debug for HttpPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPolicy")
            .field("missing_secrets", &self.missing_secrets())
            .finish_non_exhaustive()
    }
}
