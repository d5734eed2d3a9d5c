//! One tool version as the process serves it: how its effect is made, and what can be asked about it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::timeout;

use super::http::{HttpClient, HttpQuestions, HttpTool};
use super::permission::{Authorizers, Permission, Question};
use super::{Call, ServeError, Tool, TransactionalTool};
use crate::domain::attempt::{Denial, Effect, Learned, NotSent, Receipt, Unconfirmed};
use crate::domain::contract::template::{SecretRef, Secrets};
use crate::domain::contract::{Contract, EffectClass};
use crate::domain::evidence::{Allowance, Blank, Checked, Evidence};

/// Longest wait for an answer that code gives, which sets itself no end. As long as a usual claim:
/// whoever asks more slowly than that is as good as unreachable.
pub(super) const CODE_PATIENCE: Duration = Duration::from_secs(30);

/// How a tool makes its effect.
pub enum ToolKind {
    /// As its contract's `downstream.http` says.
    Http(Box<HttpTool>),
    /// In Rust, outside this database.
    Rust(Arc<dyn Tool>),
    /// In Rust, inside the settling transaction.
    Transactional(Arc<dyn TransactionalTool>),
}

/// What tools need of the process that serves them.
#[derive(Clone)]
pub struct Outside<'a> {
    /// Speaks HTTP, for effects, questions and policies.
    pub client: Arc<HttpClient>,
    /// Finds what contracts refer to.
    pub secrets: Secrets<'a>,
    /// Who decides in code.
    pub authorizers: &'a Authorizers,
}

/// A tool version with its contract, and one face for all that is asked about its operations.
///
/// No question has an effect, each may be asked again, and none of them lets a panic out.
pub struct ServedTool {
    contract: Arc<Contract>,
    kind: ToolKind,
    questions: HttpQuestions,
    permission: Permission,
}

impl ServedTool {
    /// A tool that is all contract.
    ///
    /// # Errors
    /// When the contract has no `downstream`, is kept manual, or relies on what is not carried out or
    /// not there.
    pub fn http(contract: Arc<Contract>, outside: &Outside<'_>) -> Result<Self, ServeError> {
        if contract.effect_class == EffectClass::Transactional {
            return Err(other_kind(&contract, "a transactional effect is no HTTP call"));
        }
        let Some(http) = contract.http() else {
            return Err(other_kind(
                &contract,
                "its contract has no downstream, and no Rust tool is registered for it",
            ));
        };
        let client = Arc::clone(&outside.client);
        let tool = HttpTool::new(client, http, contract.blind(), outside.secrets);
        Self::carried_out(contract, ToolKind::Http(Box::new(tool)), outside)
    }

    /// A tool written in Rust.
    ///
    /// # Errors
    /// When the contract is a transactional or an HTTP one, is kept manual, or relies on what is not
    /// carried out or not there.
    pub fn rust(
        contract: Arc<Contract>,
        tool: Arc<dyn Tool>,
        outside: &Outside<'_>,
    ) -> Result<Self, ServeError> {
        if contract.effect_class == EffectClass::Transactional {
            return Err(other_kind(&contract, "a transactional effect needs a TransactionalTool"));
        }
        if contract.http().is_some() {
            return Err(other_kind(&contract, "its contract has a downstream of its own"));
        }
        Self::carried_out(contract, ToolKind::Rust(tool), outside)
    }

    /// A tool written in Rust whose effect and settlement are one transaction.
    ///
    /// # Errors
    /// When the contract's effect class is another, or it relies on what is not carried
    /// out or not there.
    pub fn transactional(
        contract: Arc<Contract>,
        tool: Arc<dyn TransactionalTool>,
        outside: &Outside<'_>,
    ) -> Result<Self, ServeError> {
        if contract.effect_class != EffectClass::Transactional {
            return Err(other_kind(
                &contract,
                "a TransactionalTool needs effect_class: transactional",
            ));
        }
        Self::carried_out(contract, ToolKind::Transactional(tool), outside)
    }

    /// The contract.
    #[must_use]
    pub fn contract(&self) -> &Arc<Contract> {
        &self.contract
    }

    /// How the effect is made.
    #[must_use]
    pub fn kind(&self) -> &ToolKind {
        &self.kind
    }

    /// The secrets that the contract refers to and that are not there; sorted, each once. What needs
    /// them is neither sent nor asked.
    #[must_use]
    pub fn missing_secrets(&self) -> Vec<&SecretRef> {
        let of_effect = match &self.kind {
            ToolKind::Http(tool) => tool.missing_secrets(),
            ToolKind::Rust(_) | ToolKind::Transactional(_) => Vec::new(),
        };
        let others = [self.questions.missing_secrets(), self.permission.missing_secrets()];
        let mut missing = [of_effect, others.concat()].concat();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Whether [`ServedTool::may_send`] has anybody to ask, so that the claim knows before.
    #[must_use]
    pub fn asks_before_send(&self) -> bool {
        self.contract.asks_before_send() || self.code().is_some()
    }

    /// Whether the call may be sent now: permission before every send, preconditions before the first
    /// one only, since a later one finds the target as the first may have left it.
    ///
    /// # Errors
    /// Why not. Nothing was sent; whether that ends the operation is not decided here.
    pub async fn may_send(&self, call: &Call) -> Result<(), NotSent> {
        match self.permission.allow(&Question::of_send(call)).await {
            Allowance::Allowed => {}
            Allowance::Denied => return Err(NotSent::Forbidden(Denial::NotAuthorized)),
            Allowance::Unreachable => return Err(NotSent::PolicyUnreachable),
        }
        if call.resend {
            return Ok(());
        }
        let code = self.code().map(|tool| checked(tool.precondition(call), CODE_PATIENCE));
        match both(self.questions.precondition(call).await, code).await {
            Checked::Holds => Ok(()),
            Checked::Fails => Err(NotSent::Forbidden(Denial::PreconditionFailed)),
            Checked::Unreachable => Err(NotSent::PreconditionUnreachable),
        }
    }

    /// Looks for the effect. One that is there is held against the postcondition as well.
    pub async fn lookup(&self, call: &Call) -> Evidence {
        let evidence = match (self.questions.lookup(call).await, self.code()) {
            (Some(evidence), _) => evidence,
            (None, Some(tool)) if self.contract.lookup().is_some() => {
                told(tool.lookup(call), CODE_PATIENCE).await
            }
            (None, _) => Evidence::CannotTell(Blank::NoQuestion),
        };
        match evidence {
            Evidence::Found(effect) => self.found(call, effect).await,
            // Of a job a look-up says nothing, whatever the tool's code answers.
            Evidence::JobFailed | Evidence::JobRuns => Evidence::CannotTell(Blank::Unclear),
            told @ (Evidence::Unconfirmed(..) | Evidence::Absent | Evidence::CannotTell(_)) => told,
        }
    }

    /// Asks the provider how its job stands. A job that is done is held against the postcondition as
    /// well.
    pub async fn poll(&self, call: &Call) -> Evidence {
        if call.job.is_none() {
            return Evidence::CannotTell(Blank::Unbuildable);
        }
        let evidence = match (self.questions.poll(call).await, self.code()) {
            (Some(evidence), _) => evidence,
            (None, Some(tool)) if self.contract.poll().is_some() => {
                told(tool.poll(call), CODE_PATIENCE).await
            }
            (None, _) => Evidence::CannotTell(Blank::NoQuestion),
        };
        match evidence {
            Evidence::Found(effect) => self.found(call, effect).await,
            // A job that is not there proves nothing: its effect may be.
            Evidence::Absent => Evidence::CannotTell(Blank::Unclear),
            told @ (Evidence::Unconfirmed(..)
            | Evidence::JobFailed
            | Evidence::JobRuns
            | Evidence::CannotTell(_)) => told,
        }
    }

    /// Holds what an attempt learned against the postcondition. Only what proves an effect is asked
    /// about, so *already done* on a re-send only.
    pub async fn confirm(&self, call: &Call, learned: Learned) -> Learned {
        let effect = match &learned {
            Learned::Applied(effect) => effect,
            Learned::Already(effect) if call.resend => effect,
            Learned::Already(_)
            | Learned::NotSent(_)
            | Learned::NotNow { .. }
            | Learned::Denied
            | Learned::Refused
            | Learned::Unconfirmed(..)
            | Learned::Accepted(_)
            | Learned::Ambiguous(_)
            | Learned::Panicked => return learned,
        };
        match self.postcondition(call, &effect.receipt).await {
            Some(why) => Learned::Unconfirmed(effect.clone(), why),
            None => learned,
        }
    }

    async fn found(&self, call: &Call, effect: Effect) -> Evidence {
        match self.postcondition(call, &effect.receipt).await {
            Some(why) => Evidence::Unconfirmed(effect, why),
            None => Evidence::Found(effect),
        }
    }

    /// Why the effect is not as the contract demands; `None`: it is.
    async fn postcondition(&self, call: &Call, receipt: &Receipt) -> Option<Unconfirmed> {
        let code =
            self.code().map(|tool| checked(tool.postcondition(call, receipt), CODE_PATIENCE));
        match both(self.questions.postcondition(call, receipt).await, code).await {
            Checked::Holds => None,
            Checked::Fails => Some(Unconfirmed::Failed),
            Checked::Unreachable => Some(Unconfirmed::Unreachable),
        }
    }

    /// The tool's own code, where it can be asked.
    fn code(&self) -> Option<&dyn Tool> {
        match &self.kind {
            ToolKind::Rust(tool) => Some(tool.as_ref()),
            ToolKind::Http(_) | ToolKind::Transactional(_) => None,
        }
    }

    fn carried_out(
        contract: Arc<Contract>,
        kind: ToolKind,
        outside: &Outside<'_>,
    ) -> Result<Self, ServeError> {
        let (tool, version) = (contract.tool.clone(), contract.version.clone());
        let sections = contract.unsupported();
        if !sections.is_empty() {
            return Err(ServeError::Unsupported { tool, version, sections });
        }
        if let Some(why) = contract.kept_manual() {
            return Err(ServeError::KeptManual { tool, version, why });
        }
        Self::assemble(contract, kind, outside)
    }

    pub(super) fn assemble(
        contract: Arc<Contract>,
        kind: ToolKind,
        outside: &Outside<'_>,
    ) -> Result<Self, ServeError> {
        let Outside { client, secrets, authorizers } = outside;
        let permission = Permission::of(&contract, client, secrets, authorizers);
        let permission = permission.map_err(|missing| {
            let (tool, version) = (contract.tool.clone(), contract.version.clone());
            ServeError::NoAuthorizer { tool, version, missing }
        })?;
        let questions = HttpQuestions::of(&contract, Arc::clone(client), secrets);
        Ok(Self { contract, kind, questions, permission })
    }
}

/// What both say together: a check that fails weighs more than one that could not be asked. Code is
/// asked only where it can still change something.
async fn both(first: Checked, code: Option<impl Future<Output = Checked>>) -> Checked {
    let Some(code) = code else { return first };
    if first == Checked::Fails {
        return first;
    }
    match (first, code.await) {
        (Checked::Fails, _) | (_, Checked::Fails) => Checked::Fails,
        (Checked::Unreachable, _) | (_, Checked::Unreachable) => Checked::Unreachable,
        (Checked::Holds, Checked::Holds) => Checked::Holds,
    }
}

/// What a tool's code says of an effect or a job.
async fn told(code: impl Future<Output = Evidence>, patience: Duration) -> Evidence {
    match timeout(patience, AssertUnwindSafe(code).catch_unwind()).await {
        Ok(Ok(evidence)) => evidence,
        Ok(Err(_)) => Evidence::CannotTell(Blank::Panicked),
        Err(_) => Evidence::CannotTell(Blank::Unreachable),
    }
}

/// What a tool's code says of a condition.
async fn checked(code: impl Future<Output = Checked>, patience: Duration) -> Checked {
    match timeout(patience, AssertUnwindSafe(code).catch_unwind()).await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_)) | Err(_) => Checked::Unreachable,
    }
}

impl fmt::Debug for ServedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ToolKind::Http(_) => "http",
            ToolKind::Rust(_) => "rust",
            ToolKind::Transactional(_) => "transactional",
        };
        let Contract { tool, version, .. } = &*self.contract;
        write!(f, "ServedTool({tool} {version}, {kind})")
    }
}

fn other_kind(contract: &Contract, problem: &'static str) -> ServeError {
    let (tool, version) = (contract.tool.clone(), contract.version.clone());
    ServeError::OtherKind { tool, version, problem }
}
