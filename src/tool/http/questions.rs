//! The questions of a contract that are asked over HTTP, and what each answer shows.
//!
//! | the answer | a look-up | a poll | a check |
//! |---|---|---|---|
//! | in its list, read whole | `Found`, `Absent` | `Found`, `JobFailed` | `Holds`, `Fails` |
//! | found or done, without the receipt | `NoReceipt` | `NoReceipt` | |
//! | another success | `Unclear` | `JobRuns` | `Unreachable` |
//! | 401, 403 | `Denied` | `Denied` | `Unreachable` |
//! | any other status, a redirect, a body that is cut short, unreadable or over 256 KiB | `Unclear` | `Unclear` | `Unreachable` |
//! | none | `Unreachable` | `Unreachable` | `Unreachable` |
//!
//! So a server that fails never says that an effect is absent, that a job failed, or that a condition
//! does or does not hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::answer::Answer;
use super::client::{About, HttpClient};
use crate::domain::attempt::{Ambiguity, Effect, Receipt};
use crate::domain::contract::template::{RenderContext, SecretRef, Secrets};
use crate::domain::contract::{Check, Contract, HttpCall, LookupRequest, PollRequest};
use crate::domain::evidence::{Blank, Checked, Evidence};
use crate::domain::pointer::Pointer;
use crate::tool::Call;

/// The questions of one contract. Each may be asked at any time, as often as needed, by anyone.
pub(crate) struct HttpQuestions {
    client: Arc<HttpClient>,
    lookup: Option<LookupRequest>,
    poll: Option<PollRequest>,
    preconditions: Option<Check>,
    postcondition: Option<Check>,
    secrets: BTreeMap<SecretRef, String>,
}

impl HttpQuestions {
    /// The questions of `contract`. Secrets are looked up now and never again; a question whose
    /// secret is missing is not asked, and has no answer.
    pub(crate) fn of(contract: &Contract, client: Arc<HttpClient>, secrets: Secrets<'_>) -> Self {
        let mut questions = Self {
            client,
            lookup: contract.lookup().and_then(|lookup| lookup.http.clone()),
            poll: contract.poll().and_then(|poll| poll.http.clone()),
            preconditions: contract.preconditions.clone(),
            postcondition: contract.postcondition.clone(),
            secrets: BTreeMap::new(),
        };
        questions.secrets = super::found(questions.named_secrets(), secrets);
        questions
    }

    /// The secrets that the questions refer to and that were not there.
    pub(crate) fn missing_secrets(&self) -> Vec<&SecretRef> {
        self.named_secrets().into_iter().filter(|name| !self.secrets.contains_key(name)).collect()
    }

    /// Looks the effect up; `None` where the contract asks nobody over HTTP.
    pub(crate) async fn lookup(&self, call: &Call) -> Option<Evidence> {
        let lookup = self.lookup.as_ref()?;
        Some(match self.ask(call, &lookup.call, call.receipt.as_deref()).await {
            Ok(answer) => answer.of_lookup(lookup, call),
            Err(blank) => Evidence::CannotTell(blank),
        })
    }

    /// Asks how the job stands; `None` where the contract asks nobody over HTTP.
    pub(crate) async fn poll(&self, call: &Call) -> Option<Evidence> {
        let poll = self.poll.as_ref()?;
        Some(match self.ask(call, &poll.call, call.receipt.as_deref()).await {
            Ok(answer) => answer.of_poll(poll, call),
            Err(blank) => Evidence::CannotTell(blank),
        })
    }

    /// Asks whether the first send may be made; it may where there is nothing to ask.
    pub(crate) async fn precondition(&self, call: &Call) -> Checked {
        self.check(call, self.preconditions.as_ref(), None).await
    }

    /// Asks whether the effect `receipt` is as the contract demands; it is where there is nothing to
    /// ask.
    pub(crate) async fn postcondition(&self, call: &Call, receipt: &Receipt) -> Checked {
        self.check(call, self.postcondition.as_ref(), Some(receipt.as_str())).await
    }

    async fn check(&self, call: &Call, check: Option<&Check>, receipt: Option<&str>) -> Checked {
        let Some(check) = check else { return Checked::Holds };
        let answer = self.ask(call, &check.http, receipt).await;
        answer.map_or(Checked::Unreachable, |answer| answer.of_check(check))
    }

    async fn ask(
        &self,
        call: &Call,
        http: &HttpCall,
        receipt: Option<&str>,
    ) -> Result<Answer, Blank> {
        let operation_id = call.operation_id.to_string();
        let context = RenderContext {
            arguments: &call.arguments,
            // Before its first send a record has none, and an empty one would find anything.
            idempotency_key: Some(call.idempotency_key.as_str()).filter(|key| !key.is_empty()),
            operation_id: &operation_id,
            tenant: &call.tenant,
            environment: &call.environment,
            job: call.job.as_deref(),
            receipt,
        };
        let rendered = http.render(&context, &|name| self.secrets.get(name).cloned());
        let rendered = rendered.map_err(|error| {
            tracing::warn!(%operation_id, tool = call.tool, %error, "question cannot be built");
            Blank::Unbuildable
        })?;
        self.client.ask(About::of(call), rendered, http.timeout).await
    }

    fn named_secrets(&self) -> Vec<&SecretRef> {
        let calls = [
            self.lookup.as_ref().map(|lookup| &lookup.call),
            self.poll.as_ref().map(|poll| &poll.call),
            self.preconditions.as_ref().map(|check| &check.http),
            self.postcondition.as_ref().map(|check| &check.http),
        ];
        calls.into_iter().flatten().flat_map(HttpCall::secrets).collect()
    }
}

impl Answer {
    fn of_lookup(&self, lookup: &LookupRequest, call: &Call) -> Evidence {
        let status = self.status.as_u16();
        if lookup.found.contains(&status) {
            self.effect(call, Some(&lookup.receipt), &lookup.response)
        } else if lookup.absent.contains(&status) {
            Evidence::Absent
        } else {
            Evidence::CannotTell(self.nothing_told())
        }
    }

    fn of_poll(&self, poll: &PollRequest, call: &Call) -> Evidence {
        let status = self.status.as_u16();
        if poll.applied.contains(&status) {
            self.effect(call, poll.receipt.as_ref(), &poll.response)
        } else if poll.refused.contains(&status) {
            Evidence::JobFailed
        } else if self.status.is_success() {
            Evidence::JobRuns
        } else {
            Evidence::CannotTell(self.nothing_told())
        }
    }

    fn of_check(&self, check: &Check) -> Checked {
        let status = self.status.as_u16();
        if check.pass.contains(&status) {
            Checked::Holds
        } else if check.fail.contains(&status) {
            Checked::Fails
        } else {
            Checked::Unreachable
        }
    }

    /// An answer that says "done" is believed with the reference of what was done.
    fn effect(&self, call: &Call, place: Option<&Pointer>, kept: &[Pointer]) -> Evidence {
        match self.receipt(call.operation_id, place) {
            Ok(receipt) => Evidence::Found(Effect { receipt, response: self.response(kept) }),
            Err(Ambiguity::Unreadable) => Evidence::CannotTell(Blank::Unclear),
            Err(_) => Evidence::CannotTell(Blank::NoReceipt),
        }
    }

    fn nothing_told(&self) -> Blank {
        if matches!(self.status.as_u16(), 401 | 403) { Blank::Denied } else { Blank::Unclear }
    }
}

/// Shows no secret.
impl fmt::Debug for HttpQuestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpQuestions")
            .field("lookup", &self.lookup.is_some())
            .field("poll", &self.poll.is_some())
            .field("preconditions", &self.preconditions.is_some())
            .field("postcondition", &self.postcondition.is_some())
            .field("missing_secrets", &self.missing_secrets())
            .finish_non_exhaustive()
    }
}
