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
effect_class: key_based
downstream:
  http: {method: POST, url: 'http://127.0.0.1:9/', applied: [200], receipt: /id}
";
const RUST: &str = "effect_class: key_based";
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
    let refused = rust(contract("1", "effect_class: key_based\nsensitive: true")).unwrap_err();
    assert!(matches!(refused, ServeError::Unsupported { .. }));
    assert!(refused.to_string().contains("/sensitive"), "{refused}");
}

#[test]
fn what_adds_or_cannot_be_undone_and_cannot_be_found_out_is_served_with_approvals_only() {
    let http = "http: {method: POST, url: 'http://127.0.0.1:9/', applied: [200], receipt: /id}";
    let finds_out = ["idempotency: {window: 24h}", "lookup: {authoritative: true}"];
    let every = "approval: {wait: 1h, expires: 1h}";
    let some = "approval: {when: {/subject: [legal]}, wait: 1h, expires: 1h}";
    for class in ["append", "irreversible"] {
        let of = |rest: &str| contract("1", &format!("effect_class: {class}\n{rest}"));
        let by_http = self::http as fn(_) -> _;
        let kinds = [(by_http, format!("downstream: {{{http}}}\n")), (rust, String::new())];
        for (serve, downstream) in &kinds {
            for approval in ["", some] {
                let refused = serve(of(&format!("{downstream}{approval}"))).unwrap_err();
                let ServeError::KeptManual { .. } = &refused else { panic!("{refused}") };
                let told = refused.to_string();
                assert!(!told.contains('\n') && told.contains("approval without `when`"), "{told}");
            }
            serve(of(&format!("{downstream}{every}"))).unwrap();
        }
        for found in finds_out {
            rust(of(&format!("downstream: {{{found}}}"))).unwrap();
        }
    }
    // Other gaps are a reviewer's to weigh.
    rust(contract("1", "effect_class: key_based")).unwrap();
    rust(contract("1", "effect_class: natural_idempotent")).unwrap();
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

/// A tool whose code answers every question alike; `None` panics.
struct Answering {
    evidence: Option<Evidence>,
    checked: Option<Checked>,
}

#[async_trait]
impl Tool for Answering {
    async fn call(&self, _: &Call, _: Gate) -> Attempted {
        Attempted::not_sent(NotSent::Tool)
    }
    async fn lookup(&self, _: &Call) -> Evidence {
        self.evidence.clone().expect("no answer")
    }
    async fn poll(&self, _: &Call) -> Evidence {
        self.evidence.clone().expect("no answer")
    }
    async fn precondition(&self, _: &Call) -> Checked {
        self.checked.expect("no answer")
    }
    async fn postcondition(&self, _: &Call, _: &Receipt) -> Checked {
        self.checked.expect("no answer")
    }
}

const ASKS_CODE: &str = "
effect_class: append
downstream: {lookup: {authoritative: true}, poll: {every: 5s, give_up: 1h}}
";

fn call(resend: bool, job: Option<&str>) -> Call {
    Call {
        operation_id: uuid::Uuid::nil(),
        tenant: "acme".to_owned(),
        environment: "test".to_owned(),
        tool: "tickets.create".to_owned(),
        tool_version: "1".to_owned(),
        arguments: Arc::new(crate::domain::json::Json::Null),
        idempotency_key: "key".to_owned(),
        resend,
        attempt: 1,
        traceparent: None,
        actor: None,
        job: job.map(str::to_owned),
        receipt: None,
    }
}

fn effect() -> Effect {
    let receipt = Receipt::new("T-1").unwrap();
    Effect { receipt, response: crate::domain::attempt::Response::None }
}

fn answering(rest: &str, evidence: Option<Evidence>, checked: Option<Checked>) -> ServedTool {
    let tool = ToolKind::Rust(Arc::new(Answering { evidence, checked }));
    let authorizers = Authorizers::default();
    ServedTool::assemble(contract("1", rest), tool, &outside(&authorizers)).unwrap()
}

/// Code answers where the contract says so, and only what the question can have as an answer.
#[tokio::test]
async fn code_is_asked_where_the_contract_names_the_question() {
    let blank = |why| Evidence::CannotTell(why);
    let unconfirmed = Evidence::Unconfirmed(effect(), Unconfirmed::Failed);
    for (said, of_lookup, of_poll) in [
        (Evidence::Found(effect()), Evidence::Found(effect()), Evidence::Found(effect())),
        (unconfirmed.clone(), unconfirmed.clone(), unconfirmed),
        (Evidence::Absent, Evidence::Absent, blank(Blank::Unclear)),
        (Evidence::JobFailed, blank(Blank::Unclear), Evidence::JobFailed),
        (Evidence::JobRuns, blank(Blank::Unclear), Evidence::JobRuns),
        (blank(Blank::Denied), blank(Blank::Denied), blank(Blank::Denied)),
    ] {
        let served = answering(ASKS_CODE, Some(said), Some(Checked::Holds));
        let call = call(true, Some("J"));
        assert_eq!(served.lookup(&call).await, of_lookup);
        assert_eq!(served.poll(&call).await, of_poll);
        let silent = answering(RUST, Some(Evidence::Absent), Some(Checked::Holds));
        assert_eq!(silent.lookup(&call).await, blank(Blank::NoQuestion));
        assert_eq!(silent.poll(&call).await, blank(Blank::NoQuestion));
    }
    let served = answering(ASKS_CODE, Some(Evidence::Found(effect())), Some(Checked::Holds));
    assert_eq!(served.poll(&call(true, None)).await, blank(Blank::Unbuildable), "no job");
}

/// A look-up or a poll that finds the effect is held against the postcondition, as an answer is.
#[tokio::test]
async fn a_proved_effect_is_held_against_the_postcondition() {
    for (checked, why) in [
        (Some(Checked::Holds), None),
        (Some(Checked::Fails), Some(Unconfirmed::Failed)),
        (Some(Checked::Unreachable), Some(Unconfirmed::Unreachable)),
        (None, Some(Unconfirmed::Unreachable)),
    ] {
        let served = answering(ASKS_CODE, Some(Evidence::Found(effect())), checked);
        let found =
            why.map_or(Evidence::Found(effect()), |why| Evidence::Unconfirmed(effect(), why));
        let call = call(true, Some("J"));
        assert_eq!((served.lookup(&call).await, served.poll(&call).await), (found.clone(), found));
        for learned in [Learned::Applied(effect()), Learned::Already(effect())] {
            let expected = why.map_or(learned.clone(), |why| Learned::Unconfirmed(effect(), why));
            assert_eq!(served.confirm(&call, learned).await, expected);
        }
    }
}

/// A postcondition speaks of an effect that is proved: nothing else becomes one by it.
#[tokio::test]
async fn what_proves_nothing_is_not_held_against_the_postcondition() {
    let served = answering(ASKS_CODE, None, None);
    let (first, job) = (call(false, None), crate::domain::attempt::Job::new("J").unwrap());
    for learned in [
        Learned::Already(effect()),
        Learned::NotSent(NotSent::Tool),
        Learned::NotNow { retry_after: None },
        Learned::Denied,
        Learned::Refused,
        Learned::Unconfirmed(effect(), Unconfirmed::Failed),
        Learned::Accepted(job),
        Learned::Ambiguous(crate::domain::attempt::Ambiguity::TimedOut),
        Learned::Panicked,
    ] {
        assert_eq!(served.confirm(&first, learned.clone()).await, learned);
    }
}

#[tokio::test]
async fn no_panic_leaves_a_question() {
    let served = answering(ASKS_CODE, None, None);
    let call = call(false, Some("J"));
    let panicked = Evidence::CannotTell(Blank::Panicked);
    assert_eq!(
        (served.lookup(&call).await, served.poll(&call).await),
        (panicked.clone(), panicked)
    );
    assert_eq!(served.may_send(&call).await, Err(NotSent::PreconditionUnreachable));
    let learned = served.confirm(&call, Learned::Applied(effect())).await;
    assert_eq!(learned, Learned::Unconfirmed(effect(), Unconfirmed::Unreachable));
}

#[tokio::test]
async fn code_that_never_answers_has_not_answered() {
    let soon = Duration::from_millis(20);
    let unreachable = Evidence::CannotTell(Blank::Unreachable);
    assert_eq!(told(std::future::pending(), soon).await, unreachable);
    assert_eq!(checked(std::future::pending(), soon).await, Checked::Unreachable);
}

#[tokio::test]
async fn a_precondition_is_asked_before_the_first_send_only() {
    for (checked, before_first) in [
        (Some(Checked::Holds), Ok(())),
        (Some(Checked::Fails), Err(NotSent::Forbidden(Denial::PreconditionFailed))),
        (Some(Checked::Unreachable), Err(NotSent::PreconditionUnreachable)),
        (None, Err(NotSent::PreconditionUnreachable)),
    ] {
        let served = answering(RUST, None, checked);
        assert_eq!(served.may_send(&call(false, None)).await, before_first);
        assert_eq!(served.may_send(&call(true, None)).await, Ok(()));
        assert!(served.asks_before_send() && !served.contract().asks_before_send());
    }
}

/// Nobody answers on that port.
const NOBODY: &str = "{method: GET, url: 'http://127.0.0.1:9/', timeout: 500ms}";

#[tokio::test]
async fn permission_is_asked_before_every_send() {
    struct Fixed(Allowance);
    #[async_trait]
    impl crate::tool::Authorizer for Fixed {
        async fn allow(&self, _: &Question<'_>) -> Allowance {
            self.0
        }
    }
    for (allowance, expected) in [
        (Allowance::Allowed, Ok(())),
        (Allowance::Denied, Err(NotSent::Forbidden(Denial::NotAuthorized))),
        (Allowance::Unreachable, Err(NotSent::PolicyUnreachable)),
    ] {
        let mut authorizers = Authorizers::default();
        authorizers.add("staff", Arc::new(Fixed(allowance)));
        let text = format!("{HTTP}authorization: {{code: staff}}\n");
        let shared = contract("1", &text);
        let http = http(contract("1", HTTP)).unwrap().kind;
        let served = ServedTool::assemble(shared, http, &outside(&authorizers)).unwrap();
        for resend in [false, true] {
            assert_eq!(served.may_send(&call(resend, None)).await, expected);
        }
        assert!(served.asks_before_send());
    }
}

#[tokio::test]
async fn a_policy_and_a_precondition_that_nobody_answers_are_told_apart() {
    let check = async |more: &str, expected: NotSent| {
        let http = http(contract("1", HTTP)).unwrap().kind;
        let authorizers = Authorizers::default();
        let shared = contract("1", &format!("{HTTP}{more}\n"));
        let served = ServedTool::assemble(shared, http, &outside(&authorizers)).unwrap();
        assert_eq!(served.may_send(&call(false, None)).await, Err(expected));
        assert!(served.asks_before_send());
    };
    let policy = "authorization: {http: {url: 'http://127.0.0.1:9/', timeout: 500ms}}";
    check(policy, NotSent::PolicyUnreachable).await;
    let condition = format!("preconditions: {{http: {NOBODY}}}");
    check(&condition, NotSent::PreconditionUnreachable).await;
}

#[test]
fn a_tool_whose_authorizer_is_not_here_is_served_elsewhere() {
    let text = format!("{RUST}\nauthorization: {{code: staff}}\n");
    let kind = ToolKind::Rust(Arc::new(Idle));
    let authorizers = Authorizers::default();
    let refused = ServedTool::assemble(contract("1", &text), kind, &outside(&authorizers));
    let error = refused.unwrap_err();
    assert!(matches!(error, ServeError::NoAuthorizer { .. }));
    let said = error.to_string();
    assert!(said.contains("asks authorizer staff, which this process does not have"), "{said}");
}

#[test]
fn every_secret_that_is_missing_is_named_once() {
    let text = "
effect_class: append
downstream:
  http: {method: POST, url: 'http://127.0.0.1:9/', headers: {A: '${env:ONE}'}, applied: [200], receipt: /id}
  lookup: {http: {method: GET, url: 'http://127.0.0.1:9/{operation_id}', headers: {A: '${env:ONE}', B: '${env:TWO}'}, found: 200, absent: 404, receipt: /id}}
authorization: {http: {url: '${env:THREE}/allow'}}
";
    let shared = contract("1", text);
    let http = HttpTool::new(
        Arc::new(HttpClient::system().unwrap()),
        shared.http().unwrap(),
        false,
        &|_| None,
    );
    let authorizers = Authorizers::default();
    let kind = ToolKind::Http(Box::new(http));
    let served = ServedTool::assemble(shared, kind, &outside(&authorizers)).unwrap();
    let named: Vec<String> = served.missing_secrets().iter().map(ToString::to_string).collect();
    assert_eq!(named, ["${env:ONE}", "${env:THREE}", "${env:TWO}"]);
}
