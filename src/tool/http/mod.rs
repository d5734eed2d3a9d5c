//! HTTP: one request, one answer, and an honest account of what the wire showed.
//!
//! It speaks HTTP/1.1 on connections of its own, because a client that repeats requests or follows
//! redirects by itself would make effects that no record knows of. What was learned depends on
//! what really happened:
//!
//! | on the wire | learned |
//! |---|---|
//! | the request could not be built, or no connection was made | `NotSent` |
//! | the gate stayed closed, or its time passed before the first byte | `NotSent` |
//! | an error, and no byte of the request had left | `NotSent` |
//! | a whole answer whose status the contract lists | what the list says |
//! | a whole 401 or 403 that no list names | `Denied` |
//! | anything else after the first byte | `Ambiguous` |
//!
//! Questions (look-ups, polls, conditions, policies) go the same way without a gate, since they change nothing.
//!
//! Absent on purpose: redirects, cookies, proxies, compression, HTTP/2, pipelining, and any second
//! send once a byte has left.

mod answer;
mod client;
mod connect;
mod connection;
mod meaning;
mod policy;
mod pool;
mod questions;
mod request;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Attempted, Call, Gate, Tool};
use crate::domain::attempt::NotSent;
use crate::domain::contract::HttpRequest;
use crate::domain::contract::template::{RenderContext, SecretRef, Secrets, TemplateError};
use client::Connections;

pub use client::HttpClient;
pub use connect::TlsSetupError;
pub(crate) use policy::HttpPolicy;
pub(crate) use questions::HttpQuestions;

/// A tool whose contract says how its effect is made over HTTP.
pub struct HttpTool {
    client: Arc<HttpClient>,
    http: HttpRequest,
    connections: Connections,
    /// What the contract refers to, looked up when the tool was made.
    secrets: BTreeMap<SecretRef, String>,
}

impl HttpTool {
    /// Makes the tool of one contract. `blind` is [`Contract::blind`]'s answer. Secrets are looked
    /// up now and never again, so that a call waits for no file.
    ///
    /// A secret that is not there does not stop the others' work: the tool is made, and its calls
    /// are not sent ([`NotSent::SecretMissing`]).
    ///
    /// [`Contract::blind`]: crate::domain::contract::Contract::blind
    #[must_use]
    pub fn new(
        client: Arc<HttpClient>,
        http: &HttpRequest,
        blind: bool,
        secrets: Secrets<'_>,
    ) -> Self {
        let http = http.clone();
        let connections = if blind { Connections::Fresh } else { Connections::Kept };
        let secrets = found(http.secrets(), secrets);
        Self { client, http, connections, secrets }
    }

    /// The secrets that the contract refers to and that were not there.
    #[must_use]
    pub fn missing_secrets(&self) -> Vec<&SecretRef> {
        self.http.secrets().into_iter().filter(|name| !self.secrets.contains_key(name)).collect()
    }
}

#[async_trait]
impl Tool for HttpTool {
    async fn call(&self, call: &Call, gate: Gate) -> Attempted {
        let operation_id = call.operation_id.to_string();
        let context = RenderContext {
            arguments: &call.arguments,
            idempotency_key: Some(&call.idempotency_key),
            operation_id: &operation_id,
            tenant: &call.tenant,
            environment: &call.environment,
            job: None,
            receipt: None,
        };
        match self.http.render(&context, &|name| self.secrets.get(name).cloned()) {
            Ok(rendered) => {
                self.client.send(call, rendered, &self.http, self.connections, gate).await
            }
            Err(error) => {
                tracing::warn!(%operation_id, tool = call.tool, %error, "request cannot be built");
                Attempted::not_sent(not_built(&error))
            }
        }
    }
}

/// Those of the named secrets that are there.
fn found(named: Vec<&SecretRef>, secrets: Secrets<'_>) -> BTreeMap<SecretRef, String> {
    named.into_iter().filter_map(|name| Some((name.clone(), secrets(name)?))).collect()
}

/// Whose fault it is: other arguments can be built, or the deployment has to be mended.
fn not_built(error: &TemplateError) -> NotSent {
    if error.problem.is_of_the_arguments() { NotSent::Unbuildable } else { NotSent::SecretMissing }
}

/// Shows no secret.
impl fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTool")
            .field("connections", &self.connections)
            .field("missing_secrets", &self.missing_secrets())
            .finish_non_exhaustive()
    }
}
