//! Requests that ask: whole, or not at all.

use std::time::Duration;

use super::*;
use crate::domain::contract::{HttpCall, Method, Policy};
use crate::domain::json::{JsonLimits, parse};

fn json(text: &str) -> Json {
    parse(text.as_bytes(), &JsonLimits::default()).unwrap()
}

/// Without its filter a question asks about everything, and another's effect would be found.
#[test]
fn a_question_is_asked_whole_or_not_at_all() {
    let asked = |url: &str, arguments: &str, job: Option<&str>, receipt: Option<&str>| {
        let arguments = json(arguments);
        let (headers, body) =
            (Vec::new(), Some(BodyTemplate::parse(&json(r#"{"o":"{/o}"}"#)).unwrap()));
        let url = UrlTemplate::parse(url).unwrap();
        let timeout = Duration::from_secs(1);
        let call = HttpCall { method: Method::Post, url, headers, body, timeout };
        let context = RenderContext {
            arguments: &arguments,
            idempotency_key: Some("key"),
            operation_id: "id",
            tenant: "acme",
            environment: "prod",
            job,
            receipt,
        };
        call.render(&context, &|_| None).map(|rendered| rendered.url)
    };
    let full = r#"{"o":null,"q":"a"}"#;
    let url = "http://h/j/{job}?q={/q}&r={receipt}";
    assert_eq!(asked(url, full, Some("J"), Some("R")).unwrap(), "http://h/j/J?q=a&r=R");
    for (arguments, job, receipt) in [
        (full, None, Some("R")),
        (full, Some("J"), None),
        (r#"{"o":1}"#, Some("J"), Some("R")),
        (r#"{"o":1,"q":""}"#, Some("J"), Some("R")),
        (r#"{"o":1,"q":null}"#, Some("J"), Some("R")),
        (r#"{"q":"a"}"#, Some("J"), Some("R")),
    ] {
        assert!(asked(url, arguments, job, receipt).is_err(), "{arguments} {job:?} {receipt:?}");
    }
}

#[test]
fn a_policys_request_is_whole_too_and_its_body_is_ours() {
    let header = |value: &str| TextTemplate::header(value).unwrap();
    let policy = Policy {
        url: UrlTemplate::parse("http://h/{tenant}?q={/q}").unwrap(),
        headers: vec![("content-type".to_owned(), header("x")), ("A".to_owned(), header("b"))],
        timeout: Duration::from_secs(1),
    };
    let render = |arguments: &str| {
        let arguments = json(arguments);
        let context = RenderContext {
            arguments: &arguments,
            idempotency_key: None,
            operation_id: "id",
            tenant: "acme",
            environment: "prod",
            job: None,
            receipt: None,
        };
        policy.render("{}".to_owned(), &context, &|_| None)
    };
    let rendered = render(r#"{"q":"a b"}"#).unwrap();
    assert_eq!((rendered.method, rendered.url.as_str()), (Method::Post, "http://h/acme?q=a%20b"));
    assert_eq!(rendered.body.as_deref(), Some(&b"{}"[..]));
    let headers = [("A", "b"), ("Content-Type", "application/json")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(rendered.headers, headers);
    assert!(render("{}").is_err() && render(r#"{"q":""}"#).is_err());
}
