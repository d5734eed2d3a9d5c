//! What is served, and what a served tool answers.

use async_trait::async_trait;

use super::*;
use crate::domain::attempt::{Effect, NotSent};
use crate::domain::contract::DEFAULT_MARGIN;
use crate::tool::{Attempted, Call, Gate, SettlingConnection, ToolSet, TransactionalRefusal};

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

/// What a process has that knows no secret.
fn outside(authorizers: &Authorizers) -> Outside<'_> {
    Outside { client: Arc::new(HttpClient::system().unwrap()), secrets: &|_| None, authorizers }
}

fn http(contract: Arc<Contract>) -> Result<ServedTool, ServeError> {
    ServedTool::http(contract, &outside(&Authorizers::default()))
}

fn rust(contract: Arc<Contract>) -> Result<ServedTool, ServeError> {
    ServedTool::rust(contract, Arc::new(Idle), &outside(&Authorizers::default()))
}

fn transactional(contract: Arc<Contract>) -> Result<ServedTool, ServeError> {
    ServedTool::transactional(contract, Arc::new(Idle), &outside(&Authorizers::default()))
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
    let refused = rust(contract("1", "effect_class: append\nresults: true")).unwrap_err();
    assert!(matches!(refused, ServeError::Unsupported { .. }));
    assert!(refused.to_string().contains("/results"), "{refused}");
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
