//! After the first byte: what each answer, or its absence, proves.

use std::time::Duration;

use super::kit::{effect, http, open, plain_client, send, send_with};
use super::server::{Server, Step, answer, say};
use crate::domain::attempt::{Ambiguity, Effect, Job, Learned, Receipt, Response};
use crate::domain::contract::HttpRequest;
use crate::domain::pointer::Pointer;

const OK: &str = "200 OK";

/// One request on one connection, answered by `steps`.
async fn learned_with(http: &HttpRequest, steps: &[Step]) -> Learned {
    let script = [&[Step::Request], steps].concat();
    let server = Server::start(vec![script]).await;
    let learned = send_with(&plain_client(), server.addr, http, open()).await;
    server.ended(1).await;
    assert_eq!(server.received().len(), 1, "one connection, whatever was answered");
    assert_eq!(server.received()[0].matches("POST ").count(), 1, "one request");
    learned
}

async fn check(steps: &[Step], expected: Learned) {
    assert_eq!(learned_with(&http(), steps).await, expected, "{steps:?}");
}

async fn ambiguous(steps: &[Step], why: Ambiguity) {
    check(steps, Learned::Ambiguous(why)).await;
}

#[tokio::test]
async fn a_listed_status_means_what_the_contract_says() {
    let ticket = |body: &str| answer("201 Created", "", body);
    let done = |receipt: &str, response: &str| Learned::Applied(effect(receipt, response));
    let full = r#"{"ticket_id":"T-1","detail":{"status":"open","more":1}}"#;
    check(&[ticket(full)], done("T-1", r#"{"/ticket_id":"T-1","/detail/status":"open"}"#)).await;
    let number = r#"{"ticket_id":12345678901234567890.10}"#;
    let kept = r#"{"/ticket_id":12345678901234567890.10}"#;
    check(&[ticket(number)], done("12345678901234567890.10", kept)).await;

    check(&[answer("422 No", "", "")], Learned::Refused).await;
    check(&[answer("400 No", "", "<html>")], Learned::Refused).await;
    check(&[answer("401 Who", "", "")], Learned::Denied).await;
    check(&[answer("403 No", "", "{}")], Learned::Denied).await;
    let later = Learned::NotNow { retry_after: Some(Duration::from_secs(17)) };
    check(&[answer("429 Later", "Retry-After: 17\r\n", "")], later).await;
    let later = Learned::NotNow { retry_after: None };
    check(&[answer("429 Later", "Retry-After: soon\r\n", "")], later).await;
}

#[tokio::test]
async fn already_done_has_a_receipt_with_or_without_a_body() {
    let page = answer("404 Not Found", "", "<p>gone");
    let effect_of_page =
        Effect { receipt: Receipt::new("already:404").unwrap(), response: Response::Dropped };
    check(&[page], Learned::Already(effect_of_page)).await;
    let named = answer("404 Not Found", "", r#"{"ticket_id":"T-1"}"#);
    check(&[named], Learned::Already(effect("T-1", r#"{"/ticket_id":"T-1"}"#))).await;
}

#[tokio::test]
async fn applied_without_its_receipt_is_ambiguous() {
    let long = format!(r#"{{"ticket_id":"{}"}}"#, "x".repeat(1025));
    for body in [
        "{}",
        "[]",
        r#"{"ticket_id":null}"#,
        r#"{"ticket_id":true}"#,
        r#"{"ticket_id":{}}"#,
        r#"{"ticket_id":""}"#,
        &long,
    ] {
        ambiguous(&[answer(OK, "", body)], Ambiguity::NoReceipt).await;
    }
    for body in ["", "T-1", r#"{"ticket_id":"T-1""#, r#"{"ticket_id":"T-1","ticket_id":"T-2"}"#] {
        ambiguous(&[answer(OK, "", body)], Ambiguity::Unreadable).await;
    }
    let zipped = answer(OK, "Content-Encoding: gzip\r\n", r#"{"ticket_id":"T-1"}"#);
    ambiguous(&[zipped], Ambiguity::Unreadable).await;
}

/// A provider that took the work says under which name; without one nobody could follow it.
#[tokio::test]
async fn an_accepting_answer_is_worth_its_job() {
    let place = Some(Pointer::parse("/job/id").unwrap());
    let provider = HttpRequest { accepted: vec![202], job: place, ..http() };
    let check = async |body: &str, expected: Learned| {
        let learned = learned_with(&provider, &[answer("202 Accepted", "", body)]).await;
        assert_eq!(learned, expected, "{body}");
    };
    let job = |id: &str| Learned::Accepted(Job::new(id).unwrap());
    check(r#"{"job":{"id":"J-1"}}"#, job("J-1")).await;
    check(r#"{"job":{"id":9007199254740993}}"#, job("9007199254740993")).await;
    let long = format!(r#"{{"job":{{"id":"{}"}}}}"#, "x".repeat(1025));
    for body in ["{}", r#"{"job":"J-1"}"#, r#"{"job":{"id":""}}"#, r#"{"job":{"id":null}}"#, &long]
    {
        check(body, Learned::Ambiguous(Ambiguity::NoJob)).await;
    }
    for body in ["", "J-1", r#"{"job":{"id":"J-1"}"#] {
        check(body, Learned::Ambiguous(Ambiguity::Unreadable)).await;
    }
    let nameless = HttpRequest { job: None, ..provider.clone() };
    let learned = learned_with(&nameless, &[answer("202 Accepted", "", "{}")]).await;
    assert_eq!(learned, Learned::Ambiguous(Ambiguity::NoJob));
}

/// A read, or a PUT that answers with nothing: the effect goes by our own id, from every attempt.
#[tokio::test]
async fn an_effect_without_a_reference_goes_by_the_operations_id() {
    let nameless = HttpRequest { receipt: None, response: Vec::new(), ..http() };
    let receipt = Receipt::new("operation:00000000-0000-0000-0000-000000000007").unwrap();
    let expected = Effect { receipt, response: Response::None };
    let done = learned_with(&nameless, &[answer(OK, "", "not JSON")]).await;
    assert_eq!(done, Learned::Applied(expected.clone()));
    let before = learned_with(&nameless, &[answer("404 Not Found", "", "")]).await;
    assert_eq!(before, Learned::Already(expected.clone()));

    let reading = HttpRequest { response: vec![Pointer::root()], ..nameless };
    let done = learned_with(&reading, &[answer(OK, "", "[1.0]")]).await;
    let response = Response::Kept(r#"{"":[1.0]}"#.to_owned());
    assert_eq!(done, Learned::Applied(Effect { response, ..expected.clone() }));
    let big = format!("\"{}\"", "x".repeat(64 * 1024));
    let done = learned_with(&reading, &[answer(OK, "", &big)]).await;
    assert_eq!(done, Learned::Applied(Effect { response: Response::Dropped, ..expected }));
}

#[tokio::test]
async fn a_status_in_no_list_is_ambiguous_and_a_redirect_is_not_followed() {
    for status in ["202 Accepted", "204 No Content", "500 Oops", "503 Busy", "410 Gone"] {
        ambiguous(&[answer(status, "", "")], Ambiguity::UnlistedStatus).await;
    }
    let elsewhere = Server::start(vec![vec![Step::Request]]).await;
    for status in ["301 Moved", "302 Found", "303 See", "307 Moved", "308 Moved", "304 Same"] {
        let location = format!("Location: http://{}/\r\n", elsewhere.addr);
        ambiguous(&[answer(status, &location, "")], Ambiguity::Redirect).await;
    }
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn interim_answers_are_not_the_answer() {
    let interim = say("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    check(&[interim, answer("422 No", "", "")], Learned::Refused).await;
}

#[tokio::test]
async fn no_answer_is_ambiguous() {
    ambiguous(&[Step::Close], Ambiguity::Broken).await;
    ambiguous(&[Step::Reset], Ambiguity::Broken).await;
    ambiguous(&[say("HTTP/1.1 200 OK\r\nContent-Le"), Step::Close], Ambiguity::Broken).await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_ambiguous() {
    ambiguous(&[say("SSH-2.0-OpenSSH_9.6\r\n\r\n")], Ambiguity::Unreadable).await;
    ambiguous(&[say("HTTP/1.1 200 OK\r\nbad header\r\n\r\n")], Ambiguity::Unreadable).await;
    let two_lengths = say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ");
    ambiguous(&[two_lengths], Ambiguity::Unreadable).await;
    let flood = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1024 * 1024));
    ambiguous(&[say(flood)], Ambiguity::Unreadable).await;
}

/// Cut short, an answer proves nothing: neither that it was done nor that it was refused.
#[tokio::test]
async fn half_an_answer_is_ambiguous_whatever_its_status() {
    for status in ["200 OK", "404 Not Found", "422 No", "429 Later", "403 No"] {
        for end in [Step::Close, Step::Reset] {
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 50\r\n\r\n");
            let half = [say(head), say("{\"ticket_id\":\"T-1\"}"), end];
            ambiguous(&half, Ambiguity::Unreadable).await;
        }
    }
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n13\r\n{\"ticket_id\":\"T-1\"}\r\n";
    ambiguous(&[say(chunked), Step::Close], Ambiguity::Unreadable).await;
    check(&[say(format!("{chunked}0\r\n\r\n"))], super::kit::applied()).await;
}

#[tokio::test]
async fn an_oversized_answer_is_ambiguous() {
    let big = format!("{{\"ticket_id\":\"T-1\",\"x\":\"{}\"}}", "y".repeat(256 * 1024));
    ambiguous(&[answer(OK, "", &big)], Ambiguity::Unreadable).await;
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{big}");
    ambiguous(&[say(endless)], Ambiguity::Unreadable).await;
    let fits = format!("{{\"ticket_id\":\"T-1\",\"x\":\"{}\"}}", "y".repeat(255 * 1024));
    check(&[answer(OK, "", &fits)], super::kit::applied()).await;
}

#[tokio::test]
async fn a_time_out_is_neither_success_nor_failure() {
    let hasty = HttpRequest { timeout: Duration::from_millis(150), ..http() };
    let slow = Learned::Ambiguous(Ambiguity::TimedOut);
    assert_eq!(learned_with(&hasty, &[]).await, slow, "silence");
    let half = say("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"ticket_id\":");
    assert_eq!(learned_with(&hasty, &[half]).await, slow, "half a body");
}

/// What came unasked after one answer is not the answer to the next request.
#[tokio::test]
async fn a_second_answer_is_not_taken_for_the_next_requests() {
    let one = |id: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n{{\"ticket_id\":\"{id}\"}}")
    };
    let twice = say(format!("{}{}", one("T-1"), one("T-9")));
    let scripts = vec![vec![Step::Request, twice], vec![Step::Request, say(one("T-1"))]];
    let server = Server::start(scripts).await;
    let client = plain_client();
    for _ in 0..2 {
        assert_eq!(send(&client, server.addr, open()).await, super::kit::applied());
    }
    assert_eq!(server.received().len(), 2);
}
