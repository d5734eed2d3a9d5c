//! Every contract text is accepted, says what its kind is known for, and asks the fake downstream questions that it answers.

use std::time::Duration;

use oncebox::contract_file;
use oncebox::domain::contract::template::{RenderContext, RenderedRequest};
use oncebox::domain::contract::{
    AbsentRule, Contract, DEFAULT_MARGIN, Downstream as Section, HttpCall, LookupRequest,
    PollRequest, Recoverability,
};
use oncebox::domain::json::Json;
use serde_json::{Value, json};

use crate::support::contracts::{ContractText, blind, deduplicating, looked_up};
use crate::support::downstream::{Answer, Downstream};

const KEY: &str = "key/of+1%";

/// A change to a contract.
type Variant = fn(ContractText) -> ContractText;

/// What any kind can be combined with.
const VARIANTS: [(&str, Variant); 8] = [
    ("as it is", |text| text),
    ("jobs", |text| text.jobs("200ms", "10s")),
    ("grants", ContractText::granted),
    ("policy", ContractText::policy),
    ("approval", |text| text.approved("vip", "72h", "24h")),
    ("conditions", |text| text.precondition().postcondition()),
    ("looked up by key", ContractText::also_looked_up),
    ("everything", |text| {
        text.jobs("5s", "1h")
            .policy()
            .approved("vip", "1s", "2s")
            .precondition()
            .postcondition()
            .more("twins: {hold: true}\nresults: true")
            .more("retry: {initial: 100ms, max: 300ms, jitter: 0}")
    }),
];

fn read(text: &ContractText) -> Contract {
    let text = text.text();
    contract_file::read(&text, DEFAULT_MARGIN).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn each(url: &str) -> [ContractText; 3] {
    [deduplicating(url), looked_up(url), blind(url)]
}

#[test]
fn every_kind_in_every_variant_is_a_contract_with_nothing_unknown_in_it() {
    for kind in each("http://127.0.0.1:8099") {
        for (name, variant) in VARIANTS {
            let contract = read(&variant(kind.clone()));
            let accepts = contract.http().is_some_and(|http| !http.accepted.is_empty());
            assert_eq!(accepts, name == "jobs" || name == "everything", "{name}");
        }
    }
}

#[test]
fn a_kind_is_known_for_what_it_is_named_after() {
    let url = "http://127.0.0.1:8099";
    let [keyed, found, blind] = each(url).map(|text| read(&text));
    let window = Duration::from_hours(24);
    assert_eq!(keyed.recoverability(), Recoverability::ResendWithin { window });
    assert!(keyed.downstream.as_ref().is_some_and(|d| d.lookup.is_none()));
    assert_eq!(found.recoverability(), Recoverability::None);
    assert!(!found.blind() && blind.blind());
    let lookup = found.downstream.unwrap().lookup.unwrap();
    assert_eq!((lookup.authoritative, lookup.when_absent), (true, AbsentRule::Resend));

    let other = looked_up(url).visible_after("3s").not_authoritative().absent_to_an_operator();
    let lookup = read(&other).downstream.unwrap().lookup.unwrap();
    assert_eq!((lookup.authoritative, lookup.when_absent), (false, AbsentRule::Operator));
    assert_eq!(lookup.visible_after, Duration::from_secs(3));
    let other = deduplicating(url).name("other").version("2").window("1h").timeout("900ms");
    let other = read(&other.effect_class("irreversible"));
    assert_eq!((other.tool.as_str(), other.version.as_str()), ("other", "2"));
    assert_eq!(other.http().unwrap().timeout, Duration::from_millis(900));
}

#[tokio::test]
async fn each_kinds_requests_are_what_the_fake_downstream_expects() {
    let downstream = Downstream::start();
    for (kind, effects) in each(&downstream.url).into_iter().zip([1, 2, 2]) {
        let contract = read(&kind.precondition().postcondition().policy());
        let before = downstream.total().await;
        let asked = |call: &HttpCall| send(&downstream, call.render(&context(None), &|_| None));
        assert_eq!(asked(&contract.preconditions.as_ref().unwrap().http).await.status, 200);
        let policy = contract.authorization.as_ref().unwrap().http.as_ref().unwrap();
        let question = json!({"input": {"actor": "agent"}}).to_string();
        let decided = send(&downstream, policy.render(question, &context(None), &|_| None)).await;
        assert_eq!((decided.status, decided.json()), (200, json!({"result": true})));
        let lookup = lookup_of(contract.downstream.as_ref().unwrap());
        if let Some(lookup) = lookup {
            assert_eq!(lookup.absent, [asked(&lookup.call).await.status]);
        }
        let http = contract.http().unwrap();
        let made = send(&downstream, http.render(&context(None), &|_| None)).await;
        assert_eq!(made.status, 201);
        let again = send(&downstream, http.render(&context(None), &|_| None)).await;
        assert!(http.applied.contains(&again.status));
        assert_eq!(downstream.total().await - before, effects, "{}", contract.tool.as_str());
        if let Some(lookup) = lookup {
            let found = asked(&lookup.call).await;
            assert_eq!((lookup.found.as_slice(), found.json()), (&[found.status][..], made.json()));
        }
        assert_eq!(asked(&contract.postcondition.as_ref().unwrap().http).await.status, 200);
    }
    let inputs: Vec<Value> = downstream.policy().inputs().await;
    assert_eq!(inputs, vec![json!({"actor": "agent"}); 3]);
    assert_eq!(downstream.preconditions().of("q 1").count().await, 3);
    assert_eq!(downstream.postconditions().of(KEY).count().await, 2);
}

#[tokio::test]
async fn a_jobs_contract_submits_and_polls_as_the_fake_downstream_expects() {
    let downstream = Downstream::start();
    downstream.jobs().run_until_told().await;
    let contract = read(&deduplicating(&downstream.url).jobs("200ms", "10s").also_looked_up());
    let (http, section) = (contract.http().unwrap(), contract.downstream.as_ref().unwrap());
    let (poll, lookup) = (poll_of(section), lookup_of(section).unwrap());
    let accepted = send(&downstream, http.render(&context(None), &|_| None)).await;
    assert_eq!((http.accepted.as_slice(), accepted.text("job_id").as_str()), (&[202][..], "J-1"));
    let poll_status = async |job: &str| {
        send(&downstream, poll.call.render(&context(Some(job)), &|_| None)).await.status
    };
    let undecided = poll_status("J-1").await;
    assert!(!poll.applied.contains(&undecided) && !poll.refused.contains(&undecided));
    downstream.jobs().finish("J-1").await;
    assert!(poll.applied.contains(&poll_status("J-1").await));
    let found = send(&downstream, lookup.call.render(&context(None), &|_| None)).await;
    assert_eq!(lookup.found, [found.status]);
    assert_eq!(downstream.effects_of(KEY).await, 1);

    let other = read(&blind(&downstream.url).jobs("200ms", "10s"));
    let other = other.http().unwrap().render(&context(None), &|_| None);
    let job = send(&downstream, other).await.text("job_id");
    downstream.jobs().break_off(&job).await;
    assert!(poll.refused.contains(&poll_status(&job).await));
}

fn lookup_of(section: &Section) -> Option<&LookupRequest> {
    section.lookup.as_ref().map(|lookup| lookup.http.as_ref().unwrap())
}

fn poll_of(section: &Section) -> &PollRequest {
    section.poll.as_ref().unwrap().http.as_ref().unwrap()
}

fn context(job: Option<&str>) -> RenderContext<'_> {
    static ARGUMENTS: std::sync::LazyLock<Json> = std::sync::LazyLock::new(|| {
        Json::from_value(&serde_json::json!({"queue_id": "q 1", "subject": "s"}))
    });
    RenderContext {
        arguments: &ARGUMENTS,
        idempotency_key: Some(KEY),
        operation_id: "id-1",
        tenant: "acme",
        environment: "test",
        job,
        receipt: None,
    }
}

/// Sends what a contract asks for.
async fn send<E: std::fmt::Debug>(
    downstream: &Downstream,
    request: Result<RenderedRequest, E>,
) -> Answer {
    let request = request.unwrap();
    let path = request.url.strip_prefix(&downstream.url).unwrap();
    let headers: Vec<String> = request
        .headers
        .iter()
        .filter(|(name, _)| name != "Content-Type")
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let body = String::from_utf8(request.body.unwrap_or_default()).unwrap();
    downstream.ask(request.method.as_str(), path, &headers, &body).await
}
