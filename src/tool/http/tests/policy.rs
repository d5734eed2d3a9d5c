//! Permission: only a whole and clear yes is one.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::kit::{call, plain_client};
use super::questions::{contract, patience};
use super::server::{Server, Step, answer, say};
use crate::domain::contract::template::SecretRef;
use crate::domain::evidence::Allowance;
use crate::domain::json::{Json, JsonLimits, parse};
use crate::tool::{Action, Authorizer, Authorizers, Permission, Question, UnknownAuthorizer};

const OK: &str = "200 OK";

/// An authorizer with one answer; `None` panics.
struct Fixed(Option<Allowance>);

#[async_trait]
impl Authorizer for Fixed {
    async fn allow(&self, _: &Question<'_>) -> Allowance {
        self.0.expect("no answer")
    }
}

fn permission(authorization: &str, code: Option<Allowance>) -> Permission {
    let mut authorizers = Authorizers::default();
    authorizers.add("staff", Arc::new(Fixed(code)));
    let contract = contract(&format!("authorization: {authorization}\n"));
    let secrets = |_: &SecretRef| Some("s3cret".to_owned());
    Permission::of(&contract, &plain_client(), &secrets, &authorizers).unwrap()
}

fn service(addr: SocketAddr, patience: &str) -> String {
    format!(
        "http: {{url: 'http://{addr}/v1/data/tickets/allow', headers: {{Authorization: 'Bearer ${{env:T}}', content-type: text/plain}}, timeout: {patience}}}"
    )
}

async fn decide(steps: &[Step], expected: Allowance) {
    let server = Server::start(vec![[&[Step::Request], steps].concat()]).await;
    let permission = permission(&format!("{{{}}}", service(server.addr, patience(steps))), None);
    let call = call();
    assert_eq!(permission.allow(&Question::of_send(&call)).await, expected, "{steps:?}");
}

#[tokio::test]
async fn only_a_whole_and_clear_yes_allows() {
    use Allowance::{Allowed, Denied, Unreachable};
    decide(&[answer(OK, "", r#"{"result":true}"#)], Allowed).await;
    decide(&[answer(OK, "", r#"{"decision_id":"d","result":true}"#)], Allowed).await;
    for body in [r#"{"result":false}"#, "{}", r#"{"warning":{"code":"api_usage_warning"}}"#] {
        decide(&[answer(OK, "", body)], Denied).await;
    }
    for body in [
        r#"{"result":"true"}"#,
        r#"{"result":1}"#,
        r#"{"result":null}"#,
        r#"{"result":{"allow":true}}"#,
        r#"{"result":[true]}"#,
        r#"{"result":true,"result":false}"#,
        r#"{"result":true"#,
        "true",
        "[]",
        "null",
        "",
        "<html>",
    ] {
        decide(&[answer(OK, "", body)], Unreachable).await;
    }
    let yes = r#"{"result":true}"#;
    for status in [
        "201 Created",
        "202 Accepted",
        "204 None",
        "301 Moved",
        "307 Moved",
        "400 Bad",
        "401 Who",
        "403 No",
        "404 Not Found",
        "429 Later",
        "500 Oops",
        "503 Busy",
    ] {
        decide(&[answer(status, "", yes)], Unreachable).await;
    }
    let half = say("HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"result\":true}");
    for steps in [
        vec![Step::Wait],
        vec![Step::Close],
        vec![Step::Reset],
        vec![half.clone(), Step::Wait],
        vec![half, Step::Close],
        vec![say("not HTTP\r\n\r\n")],
        vec![answer(OK, "Content-Encoding: gzip\r\n", yes)],
    ] {
        decide(&steps, Unreachable).await;
    }
}

#[tokio::test]
async fn a_policy_is_asked_with_the_whole_question_and_every_digit() {
    let script = vec![[Step::Request, answer(OK, "", r#"{"result":true}"#)]; 2].concat();
    let server = Server::start(vec![script]).await;
    let permission = permission(&format!("{{{}}}", service(server.addr, "10s")), None);
    let arguments = parse(br#"{"subject":"hot","n":9007199254740993.0}"#, &JsonLimits::default());
    let mut call = call();
    call.arguments = Arc::new(arguments.unwrap());
    call.actor = Some("ann".to_owned());
    assert_eq!(permission.allow(&Question::of_send(&call)).await, Allowance::Allowed);
    let read = Question { action: Action::Read, actor: None, ..Question::of_send(&call) };
    assert_eq!(permission.allow(&read).await, Allowance::Allowed);
    assert!(!format!("{permission:?} {read:?}").contains("s3cret"));
    assert!(!format!("{read:?}").contains("hot"));

    let [sent] = &server.received()[..] else { panic!("one connection") };
    let body = |action: &str, actor: &str| {
        format!(
            r#"{{"input":{{"action":"{action}","actor":{actor},"tenant":"acme","environment":"test","tool":"tickets.create","tool_version":"1","operation_id":"00000000-0000-0000-0000-000000000007","arguments":{{"subject":"hot","n":9007199254740993.0}}}}}}"#
        )
    };
    for part in [
        "POST /v1/data/tickets/allow HTTP/1.1\r\n",
        "Bearer s3cret\r\n",
        "application/json\r\n",
        &body("send", "\"ann\""),
        &body("read", "null"),
    ] {
        assert!(sent.contains(part), "{part:?} is missing in {sent}");
    }
    assert!(!sent.contains("text/plain"), "the body is ours, and so is its type");
}

#[tokio::test]
async fn without_its_secret_a_policy_is_not_asked() {
    let server = Server::start(vec![]).await;
    let contract = contract(&format!("authorization: {{{}}}\n", service(server.addr, "10s")));
    let none = Authorizers::default();
    let permission = Permission::of(&contract, &plain_client(), &|_| None, &none).unwrap();
    assert_eq!(permission.missing_secrets(), [&SecretRef::Env("T".to_owned())]);
    let call = call();
    assert_eq!(permission.allow(&Question::of_send(&call)).await, Allowance::Unreachable);
    assert!(server.received().is_empty());
}

/// All must allow; a decision against it weighs more than one that could not be had.
#[tokio::test]
async fn everyone_who_is_named_must_allow() {
    use Allowance::{Allowed, Denied, Unreachable};
    let check = async |body: &str, code: Option<Allowance>, expected: Allowance| {
        let server = Server::start(vec![vec![Step::Request, answer(OK, "", body)]]).await;
        let permission =
            permission(&format!("{{{}, code: staff}}", service(server.addr, "10s")), code);
        let call = call();
        assert_eq!(permission.allow(&Question::of_send(&call)).await, expected, "{body} {code:?}");
    };
    let (yes, no, unclear) = (r#"{"result":true}"#, r#"{"result":false}"#, "oops");
    for (body, code, expected) in [
        (yes, Some(Allowed), Allowed),
        (yes, Some(Denied), Denied),
        (yes, Some(Unreachable), Unreachable),
        (yes, None, Unreachable),
        (no, Some(Allowed), Denied),
        (no, Some(Unreachable), Denied),
        (no, None, Denied),
        (unclear, Some(Allowed), Unreachable),
        (unclear, Some(Denied), Denied),
        (unclear, None, Unreachable),
    ] {
        check(body, code, expected).await;
    }
    let call = call();
    let question = Question::of_send(&call);
    assert_eq!(permission("{code: staff}", Some(Allowed)).allow(&question).await, Allowed);
    assert_eq!(permission("{code: staff}", None).allow(&question).await, Unreachable);
    assert_eq!(
        permission("{grants: true}", None).allow(&question).await,
        Allowed,
        "asked elsewhere"
    );
    assert!(!permission("{grants: true}", None).asks());
}

#[test]
fn an_authorizer_that_is_not_there_allows_nobody() {
    let contract = contract("authorization: {code: stuff}\n");
    let none = Authorizers::default();
    let missing = Permission::of(&contract, &plain_client(), &|_| None, &none).err();
    assert_eq!(missing, Some(UnknownAuthorizer("stuff".to_owned())));
}

#[test]
fn a_question_names_what_is_asked() {
    let call = call();
    let question = Question::of_send(&call);
    assert_eq!((question.action.as_str(), Action::Read.as_str()), ("send", "read"));
    assert!(matches!(question.arguments, Json::Object(_)));
}
