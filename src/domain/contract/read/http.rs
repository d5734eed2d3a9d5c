//! The sections that make requests.

use std::time::Duration;

use crate::domain::contract::template::{BodyTemplate, TextTemplate, UrlTemplate};
use crate::domain::contract::{
    AbsentRule, Downstream, HttpCall, HttpRequest, Idempotency, Lookup, Method, Poll,
};
use crate::domain::pointer::Pointer;

use super::place::Place;

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

const CALL_FIELDS: [&str; 5] = ["method", "url", "headers", "body", "timeout"];

pub(super) fn downstream(place: &Place<'_>) -> Option<Downstream> {
    place.object(&["http", "idempotency", "lookup", "poll"])?;
    let http = place.get("http").maybe(request);
    let idempotency = place.get("idempotency").maybe(idempotency);
    let lookup = place.get("lookup").maybe(lookup);
    let poll = place.get("poll").maybe(poll);
    Some(Downstream { http: http?, idempotency: idempotency?, lookup: lookup?, poll: poll? })
}

fn request(place: &Place<'_>) -> Option<HttpRequest> {
    const OWN: [&str; 8] =
        ["applied", "accepted", "already", "refused", "not_now", "receipt", "response", "job"];
    place.object(&[CALL_FIELDS.as_slice(), &OWN].concat())?;
    let call = parts(place);
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
    parts(place)
}

fn parts(place: &Place<'_>) -> Option<HttpCall> {
    let method = place.get("method").word(&Method::ALL.map(|method| (method.as_str(), method)));
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

fn lookup(place: &Place<'_>) -> Option<Lookup> {
    place.object(&["http", "authoritative", "visible_after", "absent"])?;
    let http = place.get("http");
    http.object(&[CALL_FIELDS.as_slice(), &["found", "absent", "receipt"]].concat())?;
    let call = parts(&http);
    let found = http.get("found").status();
    let absent = http.get("absent").status();
    let receipt = http.get("receipt").json_pointer();
    let authoritative = place.get("authoritative").or(false, Place::flag);
    let visible_after = place.get("visible_after").or(Duration::ZERO, Place::duration);
    let when_absent = place.get("absent").or(AbsentRule::Operator, |place| {
        place.word(&[("resend", AbsentRule::Resend), ("operator", AbsentRule::Operator)])
    });
    Some(Lookup {
        http: call?,
        found: found?,
        absent: absent?,
        receipt: receipt?,
        authoritative: authoritative?,
        visible_after: visible_after?,
        when_absent: when_absent?,
    })
}

fn poll(place: &Place<'_>) -> Option<Poll> {
    place.object(&["http", "every", "give_up"])?;
    let http = place.get("http");
    http.object(&[CALL_FIELDS.as_slice(), &["applied", "refused", "receipt"]].concat())?;
    let call = parts(&http);
    let applied = http.get("applied").or(vec![200], Place::statuses);
    let refused = http.get("refused").or(Vec::new(), Place::statuses);
    let receipt = http.get("receipt").maybe(Place::json_pointer);
    let every = place.get("every").duration();
    let give_up = place.get("give_up").duration();
    Some(Poll {
        http: call?,
        every: every?,
        give_up: give_up?,
        applied: applied?,
        refused: refused?,
        receipt: receipt?,
    })
}
