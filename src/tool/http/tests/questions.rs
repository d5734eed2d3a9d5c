//! Questions: what each way in which one can end shows, and what it never shows.

use std::net::SocketAddr;
use std::sync::Arc;

use super::super::{HttpQuestions, HttpTool};
use super::kit::{call, effect, plain_client};
use super::server::{Server, Step, answer, say};
use crate::domain::attempt::{Effect, Learned, Receipt, Response, Unconfirmed};
use crate::domain::contract::{Contract, DEFAULT_MARGIN};
use crate::domain::evidence::{Blank, Checked, Evidence};
use crate::tool::{Authorizers, Call, Outside, ServedTool, ToolKind};

const OK: &str = "200 OK";
const TICKET: &str = r#"{"ticket_id":"T-1","status":"open","more":1}"#;

/// Statuses by which a server says that it could not, or would not now, answer.
const FAILING: [&str; 9] = [
    "408 Slow",
    "425 Early",
    "429 Later",
    "451 No",
    "500 Oops",
    "502 Gateway",
    "503 Busy",
    "504 Gateway",
    "599 Odd",
];

pub(super) fn contract(sections: &str) -> Contract {
    let text = format!(
        "
name: tickets.create
version: '1'
purpose: Create a ticket.
use_when: [a ticket is needed]
do_not_use_when: [there is one]
operation_key:
  created_by: the step
  reused_by: its retries
  new_key_when: a second ticket is wanted
  scope: [tenant, environment, workflow_id, step_id]
effect_class: key_based
arguments: {{type: object, required: [subject], properties: {{subject: {{type: string}}}}}}
fingerprint: {{fields: [/subject]}}
owner: {{reconciliation: support}}
{sections}"
    );
    crate::contract_file::read(&text, DEFAULT_MARGIN).unwrap()
}

/// How long an answer is waited for: where none comes, the test waits as long.
pub(super) fn patience(steps: &[Step]) -> &'static str {
    if steps.iter().any(|step| matches!(step, Step::Wait)) { "150ms" } else { "10s" }
}

/// Every question there is, asked of `addr`.
fn asking(addr: SocketAddr, patience: &str) -> String {
    format!(
        "
downstream:
  http: {{method: POST, url: 'http://{addr}/', applied: [200], accepted: [202], receipt: /ticket_id, job: /job}}
  lookup:
    http:
      method: GET
      url: 'http://{addr}/tickets?key={{idempotency_key}}'
      headers: {{Authorization: 'Bearer ${{env:TOKEN}}'}}
      timeout: {patience}
      found: 200
      absent: [404]
      receipt: /ticket_id
      response: [/status]
  poll:
    http:
      method: GET
      url: 'http://{addr}/jobs/{{job}}'
      timeout: {patience}
      refused: [410, 422]
    every: 5s
    give_up: 1h
preconditions:
  http: {{method: POST, url: 'http://{addr}/queues', body: {{subject: '{{/subject}}'}}, timeout: {patience}}}
postcondition:
  http: {{method: GET, url: 'http://{addr}/tickets/{{receipt}}', timeout: {patience}}}
  fail: [404]
"
    )
}

fn questions(addr: SocketAddr, patience: &str) -> HttpQuestions {
    let secrets = |_: &_| Some("s3cret".to_owned());
    HttpQuestions::of(&contract(&asking(addr, patience)), plain_client(), &secrets)
}

fn with_job() -> Call {
    Call { job: Some("J/1".to_owned()), ..call() }
}

/// A server that plays `steps` after each question.
async fn playing(steps: &[Step]) -> (Arc<Server>, HttpQuestions) {
    let server = Server::start(vec![[&[Step::Request], steps].concat()]).await;
    let questions = questions(server.addr, patience(steps));
    (server, questions)
}

async fn lookup(steps: &[Step], expected: Evidence) {
    let (server, questions) = playing(steps).await;
    assert_eq!(questions.lookup(&call()).await, Some(expected), "{steps:?}");
    assert_eq!(server.received().len(), 1, "one connection, whatever was answered");
}

async fn poll(steps: &[Step], expected: Evidence) {
    let (_server, questions) = playing(steps).await;
    assert_eq!(questions.poll(&with_job()).await, Some(expected), "{steps:?}");
}

async fn check(steps: &[Step], before: Checked, after: Checked) {
    let (_server, questions) = playing(steps).await;
    assert_eq!(questions.precondition(&call()).await, before, "{steps:?}");
    let (_server, questions) = playing(steps).await;
    let receipt = Receipt::new("T-1").unwrap();
    assert_eq!(questions.postcondition(&call(), &receipt).await, after, "{steps:?}");
}

/// Ways to end in which nobody has said anything, with what a look-up and a poll make of them.
fn silences() -> Vec<(Vec<Step>, Blank)> {
    let big = format!("{{\"ticket_id\":\"T-1\",\"x\":\"{}\"}}", "y".repeat(256 * 1024));
    let half = |status: &str| say(format!("HTTP/1.1 {status}\r\ncontent-length: 50\r\n\r\n{{"));
    vec![
        (vec![Step::Wait], Blank::Unreachable),
        (vec![Step::Close], Blank::Unreachable),
        (vec![Step::Reset], Blank::Unreachable),
        (vec![say("HTTP/1.1 200 OK\r\nContent-Le"), Step::Close], Blank::Unreachable),
        (vec![half("404 Not Found"), Step::Wait], Blank::Unreachable),
        (vec![half("404 Not Found"), Step::Close], Blank::Unclear),
        (vec![half("200 OK"), Step::Reset], Blank::Unclear),
        (vec![half("410 Gone"), Step::Close], Blank::Unclear),
        (vec![say("SSH-2.0-OpenSSH_9.6\r\n\r\n")], Blank::Unclear),
        (vec![answer(OK, "", &big)], Blank::Unclear),
    ]
}

#[tokio::test]
async fn a_look_up_shows_what_the_contract_says_and_no_more() {
    let found = |kept: &str| Evidence::Found(effect("T-1", kept));
    lookup(&[answer(OK, "", TICKET)], found(r#"{"/status":"open"}"#)).await;
    lookup(&[answer(OK, "", r#"{"ticket_id":"T-1"}"#)], found("{}")).await;
    lookup(&[answer("404 Not Found", "", "no such key")], Evidence::Absent).await;
    let blank = |why| Evidence::CannotTell(why);
    for body in ["{}", "[]", r#"{"ticket_id":null}"#, r#"{"ticket_id":""}"#] {
        lookup(&[answer(OK, "", body)], blank(Blank::NoReceipt)).await;
    }
    for body in ["", "T-1", r#"{"ticket_id":"T-1""#] {
        lookup(&[answer(OK, "", body)], blank(Blank::Unclear)).await;
    }
    let zipped = answer(OK, "Content-Encoding: gzip\r\n", TICKET);
    lookup(&[zipped], blank(Blank::Unclear)).await;
    for status in ["401 Who", "403 No"] {
        lookup(&[answer(status, "", TICKET)], blank(Blank::Denied)).await;
    }
    for status in ["201 Created", "202 Accepted", "204 None", "400 Bad", "410 Gone"] {
        lookup(&[answer(status, "", "")], blank(Blank::Unclear)).await;
    }
    for status in FAILING {
        lookup(&[answer(status, "", TICKET)], blank(Blank::Unclear)).await;
    }
    for (steps, why) in silences() {
        lookup(&steps, blank(why)).await;
    }
}

#[tokio::test]
async fn a_job_is_done_failed_or_running_only_when_the_provider_says_so() {
    let blank = |why| Evidence::CannotTell(why);
    let done = Effect { receipt: Receipt::new("T-1").unwrap(), response: Response::None };
    poll(&[answer(OK, "", TICKET)], Evidence::Found(done)).await;
    poll(&[answer(OK, "", r#"{"state":"running"}"#)], blank(Blank::NoReceipt)).await;
    poll(&[answer(OK, "", "<html>")], blank(Blank::Unclear)).await;
    for status in ["410 Gone", "422 No"] {
        poll(&[answer(status, "", "")], Evidence::JobFailed).await;
    }
    for status in ["201 Created", "202 Accepted", "204 None"] {
        poll(&[answer(status, "", "")], Evidence::JobRuns).await;
    }
    for status in ["401 Who", "403 No"] {
        poll(&[answer(status, "", "")], blank(Blank::Denied)).await;
    }
    for status in FAILING.into_iter().chain(["404 Not Found", "303 See"]) {
        poll(&[answer(status, "", TICKET)], blank(Blank::Unclear)).await;
    }
    for (steps, why) in silences() {
        poll(&steps, blank(why)).await;
    }
}

#[tokio::test]
async fn a_condition_holds_or_fails_only_when_the_service_says_so() {
    use Checked::{Fails, Holds, Unreachable};
    for status in ["200 OK", "204 None"] {
        check(&[answer(status, "", "")], Holds, Holds).await;
    }
    check(&[answer("404 Not Found", "", "")], Fails, Fails).await;
    for status in ["409 No", "410 Gone", "412 No", "422 No"] {
        check(&[answer(status, "", "")], Fails, Unreachable).await;
    }
    for status in FAILING.into_iter().chain(["201 Created", "400 Bad", "401 Who", "403 No"]) {
        check(&[answer(status, "", "")], Unreachable, Unreachable).await;
    }
    for (steps, _) in silences() {
        check(&steps, Unreachable, Unreachable).await;
    }
}

#[tokio::test]
async fn no_question_follows_a_redirect() {
    let elsewhere = Server::start(vec![vec![Step::Request, answer(OK, "", TICKET)]]).await;
    for status in ["301 Moved", "302 Found", "303 See", "307 Moved", "308 Moved"] {
        let location = format!("Location: http://{}/\r\n", elsewhere.addr);
        let moved = [answer(status, &location, TICKET)];
        lookup(&moved, Evidence::CannotTell(Blank::Unclear)).await;
        poll(&moved, Evidence::CannotTell(Blank::Unclear)).await;
        check(&moved, Checked::Unreachable, Checked::Unreachable).await;
    }
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let server = Server::start(vec![]).await;
    server.stop_listening().await;
    let questions = questions(server.addr, "10s");
    let nobody = Some(Evidence::CannotTell(Blank::Unreachable));
    assert_eq!(questions.lookup(&call()).await, nobody);
    assert_eq!(questions.poll(&with_job()).await, nobody);
    assert_eq!(questions.precondition(&call()).await, Checked::Unreachable);
}

/// Without its key, its job or its secret a question would ask something else, so it is not asked.
#[tokio::test]
async fn a_question_that_lacks_a_part_is_not_asked() {
    let server = Server::start(vec![vec![Step::Request, answer(OK, "", TICKET)]]).await;
    let unbuildable = Some(Evidence::CannotTell(Blank::Unbuildable));
    let keyless = Call { idempotency_key: String::new(), ..call() };
    assert_eq!(questions(server.addr, "10s").lookup(&keyless).await, unbuildable);
    assert_eq!(questions(server.addr, "10s").poll(&call()).await, unbuildable, "no job");
    let contract = contract(&asking(server.addr, "10s"));
    let poor = HttpQuestions::of(&contract, plain_client(), &|_| None);
    assert_eq!(poor.lookup(&call()).await, unbuildable, "no secret");
    assert_eq!(poor.missing_secrets().len(), 1);
    assert!(server.received().is_empty(), "nothing was even connected");
}

#[tokio::test]
async fn what_the_contract_does_not_ask_over_http_is_not_asked() {
    let quiet = HttpQuestions::of(&contract(""), plain_client(), &|_| None);
    assert_eq!(quiet.lookup(&call()).await, None);
    assert_eq!(quiet.poll(&with_job()).await, None);
    assert_eq!(quiet.precondition(&call()).await, Checked::Holds);
    assert_eq!(quiet.postcondition(&call(), &Receipt::new("T").unwrap()).await, Checked::Holds);
}

#[tokio::test]
async fn questions_go_out_as_the_contract_says_over_one_connection() {
    let script = vec![[Step::Request, answer(OK, "", TICKET)]; 4].concat();
    let server = Server::start(vec![script]).await;
    let questions = questions(server.addr, "10s");
    let call = Call { idempotency_key: "k/&1".to_owned(), ..with_job() };
    let receipt = Receipt::new("T 1").unwrap();
    assert!(matches!(questions.lookup(&call).await, Some(Evidence::Found(_))));
    assert!(matches!(questions.poll(&call).await, Some(Evidence::Found(_))));
    assert_eq!(questions.precondition(&call).await, Checked::Holds);
    assert_eq!(questions.postcondition(&call, &receipt).await, Checked::Holds);
    let [sent] = &server.received()[..] else { panic!("one connection") };
    for part in [
        "GET /tickets?key=k%2F%261 HTTP/1.1\r\n",
        "Bearer s3cret\r\n",
        "GET /jobs/J%2F1 HTTP/1.1\r\n",
        "POST /queues HTTP/1.1\r\n",
        "\r\n\r\n{\"subject\":\"hot\"}",
        "GET /tickets/T%201 HTTP/1.1\r\n",
        &call.traceparent.unwrap(),
    ] {
        assert!(sent.contains(part), "{part:?} is missing in {sent}");
    }
    assert!(!format!("{questions:?}").contains("s3cret"));
}

/// Asking twice does no harm, so a kept connection that died costs no answer; a new one that breaks
/// is an answer of its own kind.
#[tokio::test]
async fn a_dead_kept_connection_is_replaced_once() {
    let dies = vec![Step::Request, answer(OK, "", TICKET), Step::Request, Step::Close];
    let replaced = vec![Step::Request, answer("404 Not Found", "", ""), Step::Request, Step::Close];
    let breaks = vec![Step::Request, Step::Close];
    let server = Server::start(vec![dies, replaced, breaks]).await;
    let questions = questions(server.addr, "10s");
    assert!(matches!(questions.lookup(&call()).await, Some(Evidence::Found(_))));
    assert_eq!(questions.lookup(&call()).await, Some(Evidence::Absent));
    let nobody = Some(Evidence::CannotTell(Blank::Unreachable));
    assert_eq!(questions.lookup(&call()).await, nobody);
    let asked = server.received();
    let asked: Vec<usize> = asked.iter().map(|text| text.matches("GET ").count()).collect();
    assert_eq!(asked, [2, 2, 1]);
}

/// An effect that was answered, found or polled is the same proof, and held against the same
/// postcondition.
#[tokio::test]
async fn a_found_effect_is_confirmed_over_http_too() {
    let check = async |status: &str, expected: Option<Unconfirmed>| {
        let asked = [Step::Request, answer(OK, "", TICKET), Step::Request, answer(status, "", "")];
        let script = [&asked[..], &asked, &asked[2..]].concat();
        let server = Server::start(vec![script]).await;
        let contract = Arc::new(contract(&asking(server.addr, "10s")));
        let secrets = |_: &_| Some("s3cret".to_owned());
        let authorizers = Authorizers::default();
        let client = plain_client();
        let tool = HttpTool::new(Arc::clone(&client), contract.http().unwrap(), false, &secrets);
        let outside = Outside { client, secrets: &secrets, authorizers: &authorizers };
        let kind = ToolKind::Http(Box::new(tool));
        let served = ServedTool::assemble(contract, kind, &outside).unwrap();

        let evidence = |effect: Effect| match expected {
            Some(why) => Evidence::Unconfirmed(effect, why),
            None => Evidence::Found(effect),
        };
        let bare = Effect { receipt: Receipt::new("T-1").unwrap(), response: Response::None };
        let looked_up = served.lookup(&with_job()).await;
        assert_eq!(looked_up, evidence(effect("T-1", r#"{"/status":"open"}"#)), "{status}");
        assert_eq!(served.poll(&with_job()).await, evidence(bare.clone()), "{status}");
        let applied = Learned::Applied(bare.clone());
        let confirmed = expected.map_or(applied.clone(), |why| Learned::Unconfirmed(bare, why));
        assert_eq!(served.confirm(&with_job(), applied).await, confirmed, "{status}");
        assert_eq!(server.received()[0].matches("GET /tickets/T-1 ").count(), 3);
    };
    check("200 OK", None).await;
    check("404 Not Found", Some(Unconfirmed::Failed)).await;
    check("503 Busy", Some(Unconfirmed::Unreachable)).await;
}
