//! The sections that make requests.

use std::time::Duration;

use crate::domain::contract::template::{BodyTemplate, TextTemplate, UrlTemplate};
use crate::domain::contract::{Downstream, HttpCall, HttpRequest, Idempotency, Method, Policy};
use crate::domain::pointer::Pointer;

use super::place::Place;
use super::questions;

/// The time-out of a request whose contract names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Fields that belong to the connection or to the client, not to a contract. Setting one of them
/// could smuggle a second request or send this one to another host.
const RESERVED_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

pub(super) const CALL_FIELDS: [&str; 5] = ["method", "url", "headers", "body", "timeout"];

/// What a request that asks may be: the others are defined to change something (RFC 9110, section
/// 9.2.1), and POST is how searches with a body are asked.
const ASKING: [Method; 3] = [Method::Get, Method::Head, Method::Post];

/// What a request may be whose answer's body is read.
const ASKING_FOR_MORE: [Method; 2] = [Method::Get, Method::Post];

pub(super) fn downstream(place: &Place<'_>) -> Option<Downstream> {
    place.object(&["http", "idempotency", "lookup", "poll"])?;
    let http = place.get("http").maybe(request);
    let idempotency = place.get("idempotency").maybe(idempotency);
    let receipt = http.as_ref().and_then(|http| http.as_ref()?.receipt.clone());
    let lookup = place.get("lookup").maybe(questions::lookup);
    let poll = place.get("poll").maybe(|place| questions::poll(place, receipt.as_ref()));
    Some(Downstream { http: http?, idempotency: idempotency?, lookup: lookup?, poll: poll? })
}

fn request(place: &Place<'_>) -> Option<HttpRequest> {
    const OWN: [&str; 8] =
        ["applied", "accepted", "already", "refused", "not_now", "receipt", "response", "job"];
    place.object(&[CALL_FIELDS.as_slice(), &OWN].concat())?;
    let call = parts(place, &Method::ALL);
    let statuses = |name| place.get(name).or(Vec::new(), Place::statuses);
    let applied = place.get("applied").statuses();
    let accepted = statuses("accepted");
    let already = statuses("already");
    let refused = statuses("refused");
    let not_now = statuses("not_now");
    let receipt = place.get("receipt").maybe(Place::json_pointer);
    let response = place.get("response").or(Vec::new(), |list| list.list(Place::json_pointer));
    let job = place.get("job").maybe(Place::json_pointer);
    let HttpCall { method, url, headers, body, timeout } = call?;
    Some(HttpRequest {
        method,
        url,
        headers,
        body,
        timeout,
        applied: applied?,
        accepted: accepted?,
        already: already?,
        refused: refused?,
        not_now: not_now?,
        receipt: receipt?,
        response: response?,
        job: job?,
    })
}

/// A request that asks, without members of its own.
pub(super) fn call(place: &Place<'_>) -> Option<HttpCall> {
    place.object(&CALL_FIELDS)?;
    parts(place, &ASKING)
}

/// The parts of a request that asks for more than a status.
pub(super) fn asking_for_more(place: &Place<'_>) -> Option<HttpCall> {
    parts(place, &ASKING_FOR_MORE)
}

/// A policy service. The method and the body are ours.
pub(super) fn policy(place: &Place<'_>) -> Option<Policy> {
    place.object(&["url", "headers", "timeout"])?;
    let url = url(&place.get("url"));
    let headers = place.get("headers").or(Vec::new(), headers);
    let timeout = place.get("timeout").or(DEFAULT_TIMEOUT, Place::duration);
    Some(Policy { url: url?, headers: headers?, timeout: timeout? })
}

fn parts(place: &Place<'_>, methods: &[Method]) -> Option<HttpCall> {
    let words: Vec<(&str, Method)> = methods.iter().map(|m| (m.as_str(), *m)).collect();
    let method = place.get("method").word(&words);
    let url = url(&place.get("url"));
    let headers = place.get("headers").or(Vec::new(), headers);
    let body = place.get("body").maybe(body);
    let timeout = place.get("timeout").or(DEFAULT_TIMEOUT, Place::duration);
    Some(HttpCall { method: method?, url: url?, headers: headers?, body: body?, timeout: timeout? })
}

fn url(place: &Place<'_>) -> Option<UrlTemplate> {
    let text = place.text()?;
    UrlTemplate::parse(&text).map_or_else(|error| place.complain(error.to_string()), Some)
}

fn headers(place: &Place<'_>) -> Option<Vec<(String, TextTemplate)>> {
    let mut seen: Vec<String> = Vec::new();
    place.each_member(|name, value| {
        let plain = name.to_ascii_lowercase();
        if !is_header_name(name) {
            return value.complain("is no header name (RFC 9110, section 5.6.2)");
        }
        if RESERVED_HEADERS.contains(&plain.as_str()) {
            return value.complain("is set by the client and the connection, never by a contract");
        }
        if seen.contains(&plain) {
            return value.complain("stands twice; header names do not differ by case");
        }
        seen.push(plain);
        let text = value.text()?;
        let template = TextTemplate::header(&text);
        template.map_or_else(
            |error| value.complain(error.to_string()),
            |template| Some((name.to_owned(), template)),
        )
    })
}

fn is_header_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

fn body(place: &Place<'_>) -> Option<BodyTemplate> {
    let faults = match BodyTemplate::parse(place.json()?) {
        Ok(body) => return Some(body),
        Err(faults) => faults,
    };
    for (inside, fault) in faults {
        let tokens = [place.pointer().tokens(), inside.tokens()].concat();
        place.complain_at(Pointer::from(tokens), fault.to_string());
    }
    None
}

fn idempotency(place: &Place<'_>) -> Option<Idempotency> {
    place.object(&["window"])?;
    Some(Idempotency { window: place.get("window").duration()? })
}
