//! The tools that a worker serves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::http::{HttpClient, HttpTool};
use super::{Tool, TransactionalTool};
use crate::domain::contract::template::Secrets;
use crate::domain::contract::{Contract, EffectClass, ToolName, ToolVersion, Unsupported};

/// How a tool makes its effect.
pub enum ToolKind {
    /// As its contract's `downstream.http` says.
    Http(Box<HttpTool>),
    /// In Rust, outside this database.
    Rust(Arc<dyn Tool>),
    /// In Rust, inside the settling transaction.
    Transactional(Arc<dyn TransactionalTool>),
}

/// A tool version with its contract.
pub struct ServedTool {
    contract: Arc<Contract>,
    kind: ToolKind,
}

/// Why a tool is not served. The others are not concerned.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The same version twice.
    #[error("{tool} {version} is there twice; give one of them another version")]
    Twice {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
    },
    /// The contract relies on sections that this release does not carry out.
    #[error("{tool} {version} relies on what this release does not carry out: {}", sentences(.sections))]
    Unsupported {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
        /// The sections.
        sections: Vec<Unsupported>,
    },
    /// The contract describes another kind of tool.
    #[error("{tool} {version} cannot be served so: {problem}")]
    OtherKind {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
        /// What does not fit.
        problem: &'static str,
    },
}

impl ServedTool {
    /// A tool that is all contract.
    ///
    /// # Errors
    /// When the contract has no `downstream`, or relies on what is not carried out.
    pub fn http(
        contract: Arc<Contract>,
        client: Arc<HttpClient>,
        secrets: Secrets<'_>,
    ) -> Result<Self, ServeError> {
        if contract.effect_class == EffectClass::Transactional {
            return Err(other_kind(&contract, "a transactional effect is no HTTP call"));
        }
        let Some(http) = contract.http() else {
            return Err(other_kind(
                &contract,
                "its contract has no downstream, and no Rust tool is registered for it",
            ));
        };
        let tool = HttpTool::new(client, http, contract.blind(), secrets);
        Self::carried_out(contract, ToolKind::Http(Box::new(tool)))
    }

    /// A tool written in Rust.
    ///
    /// # Errors
    /// When the contract is a transactional or an HTTP one, or relies on what is not carried out.
    pub fn rust(contract: Arc<Contract>, tool: Arc<dyn Tool>) -> Result<Self, ServeError> {
        if contract.effect_class == EffectClass::Transactional {
            return Err(other_kind(&contract, "a transactional effect needs a TransactionalTool"));
        }
        if contract.http().is_some() {
            return Err(other_kind(&contract, "its contract has a downstream of its own"));
        }
        Self::carried_out(contract, ToolKind::Rust(tool))
    }

    /// A tool written in Rust whose effect and settlement are one transaction.
    ///
    /// # Errors
    /// When the contract's effect class is another, or it relies on what is not carried out.
    pub fn transactional(
        contract: Arc<Contract>,
        tool: Arc<dyn TransactionalTool>,
    ) -> Result<Self, ServeError> {
        if contract.effect_class != EffectClass::Transactional {
            return Err(other_kind(
                &contract,
                "a TransactionalTool needs effect_class: transactional",
            ));
        }
        Self::carried_out(contract, ToolKind::Transactional(tool))
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

    /// Looks up.
    pub async fn lookup(&self, _call: &super::Call) -> crate::domain::evidence::Evidence {
        crate::domain::evidence::Evidence::CannotTell(crate::domain::evidence::Blank::NoQuestion)
    }
    /// Polls.
    pub async fn poll(&self, _call: &super::Call) -> crate::domain::evidence::Evidence {
        crate::domain::evidence::Evidence::CannotTell(crate::domain::evidence::Blank::NoQuestion)
    }
    /// Confirms.
    pub async fn confirm(&self, _call: &super::Call, learned: crate::domain::attempt::Learned) -> crate::domain::attempt::Learned {
        learned
    }
    /// May.
    pub async fn may_send(&self, _call: &super::Call) -> Result<(), crate::domain::attempt::NotSent> {
        Ok(())
    }

    fn carried_out(contract: Arc<Contract>, kind: ToolKind) -> Result<Self, ServeError> {
        let sections = contract.unsupported();
        if sections.is_empty() {
            return Ok(Self { contract, kind });
        }
        let (tool, version) = (contract.tool.clone(), contract.version.clone());
        Err(ServeError::Unsupported { tool, version, sections })
    }
}

/// The tools that a worker serves, by name and version.
#[derive(Debug, Default)]
pub struct ToolSet(BTreeMap<String, BTreeMap<String, Arc<ServedTool>>>);

impl ToolSet {
    /// Adds a tool.
    ///
    /// # Errors
    /// When this version is there already; the first one stays.
    pub fn add(&mut self, served: ServedTool) -> Result<(), ServeError> {
        let (tool, version) = (served.contract.tool.clone(), served.contract.version.clone());
        let versions = self.0.entry(tool.to_string()).or_default();
        if versions.contains_key(version.as_str()) {
            return Err(ServeError::Twice { tool, version });
        }
        versions.insert(version.to_string(), Arc::new(served));
        Ok(())
    }

    /// The tool for a record's name and version; `None`: another worker may have it.
    #[must_use]
    pub fn get(&self, tool: &str, version: &str) -> Option<&Arc<ServedTool>> {
        self.0.get(tool)?.get(version)
    }

    /// The names, each once: one queue each.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Every version of every tool, sorted by name and version.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServedTool>> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// Whether there is nothing to serve.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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

fn sentences(sections: &[Unsupported]) -> String {
    let sentences =
        sections.iter().map(|section| format!("{}: {}", section.pointer.brief(), section.sentence));
    sentences.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::domain::attempt::{Effect, NotSent};
    use crate::domain::contract::DEFAULT_MARGIN;
    use crate::tool::{Attempted, Call, Gate, SettlingConnection, TransactionalRefusal};

    const HEAD: &str = "
name: tickets.create
purpose: Create a ticket.
use_when: [a ticket is needed]
do_not_use_when: [there is one]
operation_key:
  created_by: the step
  reused_by: its retries
  new_key_when: a second ticket is wanted
  scope: [tenant, environment, workflow_id, step_id]
arguments: {type: object, required: [subject], properties: {subject: {type: string}}}
fingerprint: {fields: [/subject]}
owner: {reconciliation: support}
";
    const HTTP: &str = "
effect_class: append
downstream:
  http: {method: POST, url: 'http://127.0.0.1:9/', applied: [200], receipt: /id}
";
    const RUST: &str = "effect_class: append";
    const LOCAL: &str = "effect_class: transactional";

    fn contract(version: &str, rest: &str) -> Arc<Contract> {
        let text = format!("{HEAD}version: '{version}'\n{rest}");
        Arc::new(crate::contract_file::read(&text, DEFAULT_MARGIN).unwrap())
    }

    struct Idle;

    #[async_trait]
    impl Tool for Idle {
        async fn call(&self, _: &Call, _: Gate) -> Attempted {
            Attempted::not_sent(NotSent::Tool)
        }
    }

    #[async_trait]
    impl TransactionalTool for Idle {
        async fn apply(
            &self,
            _: &Call,
            _: &mut SettlingConnection,
        ) -> Result<Effect, TransactionalRefusal> {
            Err(TransactionalRefusal::Retry)
        }
    }

    fn http(contract: Arc<Contract>) -> Result<ServedTool, ServeError> {
        ServedTool::http(contract, Arc::new(HttpClient::system().unwrap()), &|_| None)
    }

    fn rust(contract: Arc<Contract>) -> Result<ServedTool, ServeError> {
        ServedTool::rust(contract, Arc::new(Idle))
    }

    fn transactional(contract: Arc<Contract>) -> Result<ServedTool, ServeError> {
        ServedTool::transactional(contract, Arc::new(Idle))
    }

    #[test]
    fn a_contract_is_served_by_its_own_kind_only() {
        type Serve = fn(Arc<Contract>) -> Result<ServedTool, ServeError>;
        let kinds: [(Serve, &str); 3] = [(http, HTTP), (rust, RUST), (transactional, LOCAL)];
        for (at, (serve, _)) in kinds.iter().enumerate() {
            for (described, (_, rest)) in kinds.iter().enumerate() {
                let served = serve(contract("1", rest));
                assert_eq!(served.is_ok(), at == described, "{rest}: {served:?}");
            }
        }
    }

    #[test]
    fn what_is_not_carried_out_is_not_served() {
        let refused = rust(contract("1", "effect_class: append\nsensitive: true")).unwrap_err();
        assert!(matches!(refused, ServeError::Unsupported { .. }));
        assert!(refused.to_string().contains("/sensitive"), "{refused}");
    }

    #[test]
    fn versions_stand_side_by_side_and_none_twice() {
        let mut set = ToolSet::default();
        set.add(rust(contract("1", RUST)).unwrap()).unwrap();
        set.add(http(contract("2", HTTP)).unwrap()).unwrap();
        let again = set.add(http(contract("1", HTTP)).unwrap()).unwrap_err();
        assert!(matches!(again, ServeError::Twice { .. }));
        let kind = set.get("tickets.create", "1").unwrap().kind();
        assert!(matches!(kind, ToolKind::Rust(_)), "the first one stays");
        assert!(set.get("tickets.create", "3").is_none());
        assert!(set.get("tickets", "1").is_none());
        assert_eq!(set.names().collect::<Vec<_>>(), ["tickets.create"]);
        assert_eq!(set.iter().count(), 2);
    }
}
