//! The whole tool, from a contract's templates to the bytes.

use super::super::HttpTool;
use super::kit::{applied, call, http, open, plain_client, untouched};
use super::server::{Server, Step, answer};
use crate::domain::attempt::{Learned, NotSent};
use crate::domain::contract::HttpRequest;
use crate::domain::contract::template::{BodyTemplate, SecretRef, TextTemplate, UrlTemplate};
use crate::domain::json::Json;
use crate::tool::Tool as _;

fn request(url: &str, headers: &[(&str, &str)], body: Json) -> HttpRequest {
    let headers = headers.iter();
    HttpRequest {
        url: UrlTemplate::parse(url).unwrap(),
        headers: headers
            .map(|&(name, text)| (name.to_owned(), TextTemplate::header(text).unwrap()))
            .collect(),
        body: Some(BodyTemplate::parse(&body).unwrap()),
        ..http()
    }
}

fn subject(pointer: &str) -> Json {
    Json::Object(vec![("subject".to_owned(), Json::String(format!("{{{pointer}}}")))])
}

const HEADERS: [(&str, &str); 2] =
    [("Idempotency-Key", "{idempotency_key}"), ("Authorization", "Bearer ${env:TOKEN}")];

#[tokio::test]
async fn a_contracts_request_goes_out_as_it_says() {
    let script = vec![Step::Request, answer("200 OK", "", "{\"ticket_id\":\"T-1\"}")];
    let server = Server::start(vec![script]).await;
    let http = request(&format!("http://{}/tickets", server.addr), &HEADERS, subject("/subject"));
    let secrets = |name: &SecretRef| (name.to_string() == "${env:TOKEN}").then(|| "s3cret".into());
    let tool = HttpTool::new(plain_client(), &http, false, &secrets);
    assert_eq!(tool.missing_secrets(), Vec::<&SecretRef>::new());
    assert!(!format!("{tool:?}").contains("s3cret"));

    assert_eq!(tool.call(&call(), open()).await.into_learned(), applied());
    let sent = server.received().remove(0);
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines().map(str::to_ascii_lowercase);
    assert_eq!(lines.next().unwrap(), "post /tickets http/1.1");
    let mut headers: Vec<String> = lines.collect();
    headers.sort_unstable();
    let mut expected = vec![
        format!("host: {}", server.addr),
        format!("user-agent: oncebox/{}", env!("CARGO_PKG_VERSION")),
        format!("traceparent: {}", call().traceparent.unwrap()),
        "accept-encoding: identity".to_owned(),
        "authorization: bearer s3cret".to_owned(),
        "content-length: 17".to_owned(),
        "content-type: application/json".to_owned(),
        "idempotency-key: key-1".to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(headers, expected);
    assert_eq!(body, "{\"subject\":\"hot\"}");
}

#[tokio::test]
async fn a_request_that_cannot_be_built_is_not_sent() {
    let unset = |_: &SecretRef| None;
    let here = "http://127.0.0.1:9/";
    let needs_a_secret = request(here, &HEADERS, subject("/subject"));
    let tool = HttpTool::new(plain_client(), &needs_a_secret, false, &unset);
    assert_eq!(tool.missing_secrets(), [&SecretRef::Env("TOKEN".to_owned())]);
    let learned = tool.call(&call(), untouched()).await.into_learned();
    assert_eq!(learned, Learned::NotSent(NotSent::SecretMissing));

    let needs_an_argument = request("http://127.0.0.1:9/{/queue}", &[], subject("/subject"));
    let tool = HttpTool::new(plain_client(), &needs_an_argument, false, &unset);
    let learned = tool.call(&call(), untouched()).await.into_learned();
    assert_eq!(learned, Learned::NotSent(NotSent::Unbuildable));

    let splits = request(here, &[("Transfer-Encoding", "chunked")], subject("/subject"));
    let tool = HttpTool::new(plain_client(), &splits, false, &unset);
    let learned = tool.call(&call(), untouched()).await.into_learned();
    assert_eq!(learned, Learned::NotSent(NotSent::Unbuildable));
}
