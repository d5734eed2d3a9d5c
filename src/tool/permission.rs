//! Who says whether the actor may: a policy service, an authorizer in code, or both.
//!
//! The table of grants is the database's and is asked there. Whoever cannot be asked has not allowed
//! anything: only [`Allowance::Allowed`] is an allow.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use thiserror::Error;
use tokio::time::timeout;
use uuid::Uuid;

use super::Call;
use super::http::{HttpClient, HttpPolicy};
use super::served::CODE_PATIENCE;
use crate::domain::contract::Contract;
use crate::domain::contract::template::{SecretRef, Secrets};
use crate::domain::evidence::Allowance;
use crate::domain::json::Json;

/// What the actor wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The effect.
    Send,
    /// The stored result.
    Read,
}

/// What is to be decided. All of it comes from the record, but the actor of a read, which is whoever
/// asks.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// What the actor wants.
    pub action: Action,
    /// Who; `None` when nobody was named.
    pub actor: Option<&'a str>,
    /// The operation's tenant.
    pub tenant: &'a str,
    /// The operation's environment.
    pub environment: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// The record's version of the tool.
    pub tool_version: &'a str,
    /// The record.
    pub operation_id: Uuid,
    /// The validated arguments; null when they are not kept any more.
    pub arguments: &'a Json,
    /// The submission's W3C trace context.
    pub traceparent: Option<&'a str>,
}

/// Decides in Rust who may do what. Contracts refer to it by name (`authorization: {code: NAME}`).
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Decides one question.
    ///
    /// Say [`Allowance::Denied`] only as a decision; whatever keeps from one is
    /// [`Allowance::Unreachable`], and the operation is tried again later. A panic, and an answer
    /// that takes longer than 30 seconds, count as unreachable too. Have no effect: the same question
    /// may come again, and a decision is never kept.
    async fn allow(&self, ask: &Question<'_>) -> Allowance;
}

/// The authorizers of this process, by the names that contracts use.
#[derive(Clone, Default)]
pub struct Authorizers(BTreeMap<String, Arc<dyn Authorizer>>);

/// A contract refers to an authorizer that this process does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("its contract asks authorizer {0}, which this process does not have")]
pub struct UnknownAuthorizer(pub String);

/// Whom one contract asks for permission, outside the database.
///
/// Made from a contract alone, so that whoever hands out results can ask as well as a worker.
#[derive(Default)]
pub struct Permission {
    http: Option<HttpPolicy>,
    code: Option<Arc<dyn Authorizer>>,
}

impl Action {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
        }
    }
}

impl<'a> Question<'a> {
    /// Whether this call may be sent.
    #[must_use]
    pub fn of_send(call: &'a Call) -> Self {
        Self {
            action: Action::Send,
            actor: call.actor.as_deref(),
            tenant: &call.tenant,
            environment: &call.environment,
            tool: &call.tool,
            tool_version: &call.tool_version,
            operation_id: call.operation_id,
            arguments: &call.arguments,
            traceparent: call.traceparent.as_deref(),
        }
    }
}

impl Authorizers {
    /// Adds an authorizer; a second one of that name takes the first one's place.
    pub fn add(&mut self, name: &str, code: Arc<dyn Authorizer>) {
        self.0.insert(name.to_owned(), code);
    }
}

impl Permission {
    /// Whom `contract` asks. Secrets are looked up now; without them the policy service is not asked,
    /// which is no allow.
    ///
    /// # Errors
    /// When the contract names an authorizer that is not there: nobody could decide.
    pub fn of(
        contract: &Contract,
        client: &Arc<HttpClient>,
        secrets: Secrets<'_>,
        authorizers: &Authorizers,
    ) -> Result<Self, UnknownAuthorizer> {
        let Some(authorization) = &contract.authorization else { return Ok(Self::default()) };
        let policy = authorization.http.as_ref();
        let code = authorization.code.as_ref().map(|name| {
            let found = authorizers.0.get(name).cloned();
            found.ok_or_else(|| UnknownAuthorizer(name.clone()))
        });
        Ok(Self {
            http: policy.map(|policy| HttpPolicy::new(Arc::clone(client), policy, secrets)),
            code: code.transpose()?,
        })
    }

    /// Whether anybody is asked at all.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.http.is_some() || self.code.is_some()
    }

    /// Asks everyone; all must allow. A decision against it weighs more than one that could not be
    /// had. Where nobody is to be asked it is allowed.
    pub async fn allow(&self, question: &Question<'_>) -> Allowance {
        let by_policy = match &self.http {
            Some(policy) => policy.allow(question).await,
            None => Allowance::Allowed,
        };
        if by_policy == Allowance::Denied {
            return Allowance::Denied;
        }
        match (by_policy, self.by_code(question).await) {
            (_, Allowance::Denied) | (Allowance::Denied, _) => Allowance::Denied,
            (Allowance::Unreachable, _) | (_, Allowance::Unreachable) => Allowance::Unreachable,
            (Allowance::Allowed, Allowance::Allowed) => Allowance::Allowed,
        }
    }

    /// The secrets that the policy service's request needs and that were not there.
    #[must_use]
    pub fn missing_secrets(&self) -> Vec<&SecretRef> {
        self.http.as_ref().map(HttpPolicy::missing_secrets).unwrap_or_default()
    }

    async fn by_code(&self, question: &Question<'_>) -> Allowance {
        let Some(code) = &self.code else { return Allowance::Allowed };
        let asked = AssertUnwindSafe(async { code.allow(question).await }).catch_unwind();
        match timeout(CODE_PATIENCE, asked).await {
            Ok(Ok(allowance)) => allowance,
            Ok(Err(_)) | Err(_) => Allowance::Unreachable,
        }
    }
}

/// Never shows the arguments or the actor.
impl fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("action", &self.action)
            .field("tool", &self.tool)
            .field("operation_id", &self.operation_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Authorizers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl fmt::Debug for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permission")
            .field("http", &self.http)
            .field("code", &self.code.is_some())
            .finish()
    }
}
