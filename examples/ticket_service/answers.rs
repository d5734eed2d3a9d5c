//! Answers, and what a rule makes of them.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use crate::faults::{Garbage, Rule};
use crate::wire::Script;

pub(crate) type Answer = Response<Full<Bytes>>;

/// The faults that keep the effect from happening.
pub(crate) fn refuse(rule: &Rule, script: &Script) -> Option<Answer> {
    if rule.drop_before_effect || rule.hang {
        script.instead("");
        return Some(plain(StatusCode::OK, ""));
    }
    if let Some(location) = &rule.redirect {
        let mut answer = plain(StatusCode::TEMPORARY_REDIRECT, "elsewhere");
        answer.headers_mut().insert(LOCATION, HeaderValue::from_str(location).ok()?);
        return Some(answer);
    }
    Some(with_status(rule, rule.status?))
}

/// The faults that spoil the answer to an effect that was made.
pub(crate) async fn distort(rule: &Rule, answer: Answer, script: &Script) -> Answer {
    if rule.drop_response {
        script.instead("");
        return answer;
    }
    if let Some(status) = rule.status_after_effect {
        return with_status(rule, status);
    }
    let status = answer.status();
    match rule.garbage {
        Some(Garbage::Body) => return plain(status, "{\"ticket_id\": \"T-"),
        Some(Garbage::Receipt) => return json_answer(status, &json!({"status": "open"})),
        Some(Garbage::Wire) => {
            script.instead(&b"\x16\x03\x01 this is not HTTP\r\n\r\n\x00\xff"[..])
        }
        None => {}
    }
    let Ok(body) =
        answer.clone().into_body().collect().await.map(http_body_util::Collected::to_bytes);
    if rule.truncate {
        let half = body.slice(..body.len() / 2);
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        script.instead([head.as_bytes(), &half].concat());
    }
    match (rule.oversized, serde_json::from_slice::<Value>(&body)) {
        (Some(bytes), Ok(Value::Object(mut members))) => {
            members.insert("padding".to_owned(), "x".repeat(bytes).into());
            json_answer(status, &Value::Object(members))
        }
        _ => answer,
    }
}

fn with_status(rule: &Rule, status: u16) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = match &rule.body {
        Some(body) => json_answer(status, body),
        None => plain(status, "as ordered"),
    };
    if let Some(after) =
        rule.retry_after.as_ref().and_then(|after| HeaderValue::from_str(after).ok())
    {
        answer.headers_mut().insert(RETRY_AFTER, after);
    }
    answer
}

/// Marks an answer as the one that an earlier call got.
pub(crate) fn replayed(mut answer: Answer) -> Answer {
    let replayed = HeaderName::from_static("idempotent-replayed");
    answer.headers_mut().insert(replayed, HeaderValue::from_static("true"));
    answer
}

/// The answer to another request under a used key.
pub(crate) fn mismatch() -> Answer {
    plain(StatusCode::UNPROCESSABLE_ENTITY, "this Idempotency-Key belongs to another request")
}

pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Answer {
    with_type(status, "application/json", body.to_string())
}

pub(crate) fn plain(status: StatusCode, text: &str) -> Answer {
    with_type(status, "text/plain", text.to_owned())
}

fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub(crate) async fn pause(milliseconds: u64) {
    if milliseconds > 0 {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }
}
