//! From an answer to what was learned.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use uuid::Uuid;

use super::meaning::Meaning;
use crate::domain::attempt::{Ambiguity, Job, Receipt, Response};
use crate::domain::contract::HttpRequest;
use crate::domain::json::{self, Json, JsonLimits};
use crate::domain::pointer::Pointer;
use crate::tool::{Attempted, Sending};

/// Largest answer that is read. Four times what may be kept of it.
pub(super) const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// Longest wait that is believed. Shorter than the default `retry.give_up` (72 h), so that a
/// mistaken header cannot use it up alone.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// An answer, read to its end if whoever waits for it wanted that.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Empty unless it was wanted.
    pub(super) body: Bytes,
}

impl Answer {
    /// What this answer to the operation's request proves.
    pub(super) fn judge(&self, operation: Uuid, http: &HttpRequest, sending: Sending) -> Attempted {
        let kept = || self.response(&http.response);
        match Meaning::of(self.status, http) {
            Meaning::Applied => match self.receipt(operation, http.receipt.as_ref()) {
                Ok(receipt) => sending.applied(receipt, kept()),
                Err(why) => sending.ambiguous(why),
            },
            Meaning::Accepted => match self.job(http) {
                Ok(job) => sending.accepted(job),
                Err(why) => sending.ambiguous(why),
            },
            Meaning::Already => match self.already_receipt(operation, http) {
                Some(receipt) => sending.already(receipt, kept()),
                None => sending.ambiguous(Ambiguity::NoReceipt),
            },
            Meaning::Refused => sending.refused(),
            Meaning::NotNow => sending.not_now(retry_after(&self.headers)),
            Meaning::Denied => sending.denied(),
            Meaning::Redirect => sending.ambiguous(Ambiguity::Redirect),
            Meaning::Unlisted => sending.ambiguous(Ambiguity::UnlistedStatus),
        }
    }

    /// The downstream's reference. Where the contract names none (a read, a PUT with an empty
    /// answer), the effect is known by our own operation id: the same text from every attempt, so
    /// that two proofs of one effect never look like two effects.
    pub(super) fn receipt(
        &self,
        operation: Uuid,
        place: Option<&Pointer>,
    ) -> Result<Receipt, Ambiguity> {
        let Some(place) = place else {
            return Receipt::new(format!("operation:{operation}")).ok_or(Ambiguity::NoReceipt);
        };
        let body = self.json().ok_or(Ambiguity::Unreadable)?;
        Receipt::new(reference(&body, place)).ok_or(Ambiguity::NoReceipt)
    }

    /// The provider's name for the job that an accepting answer speaks of.
    fn job(&self, http: &HttpRequest) -> Result<Job, Ambiguity> {
        let place = http.job.as_ref().ok_or(Ambiguity::NoJob)?;
        let body = self.json().ok_or(Ambiguity::Unreadable)?;
        Job::new(reference(&body, place)).ok_or(Ambiguity::NoJob)
    }

    /// *Already done* is often said without naming what was done, as by a 404 to a delete.
    fn already_receipt(&self, operation: Uuid, http: &HttpRequest) -> Option<Receipt> {
        let named = self.receipt(operation, http.receipt.as_ref()).ok();
        named.or_else(|| Receipt::new(format!("already:{}", self.status.as_u16())))
    }

    /// The contract's places as one object whose names are the pointers' texts, so that two
    /// places never share a name. A place that is not in the answer is left out.
    pub(super) fn response(&self, places: &[Pointer]) -> Response {
        if places.is_empty() {
            return Response::None;
        }
        let Some(body) = self.json() else { return Response::Dropped };
        let found = places
            .iter()
            .filter_map(|place| body.at(place).map(|value| (place.to_string(), value.clone())));
        Response::keep(Json::Object(found.collect()).to_text())
    }

    /// The body by the strict reader. We asked for no encoding, so one that comes is not read.
    pub(super) fn json(&self) -> Option<Json> {
        let encodings = self.headers.get_all(header::CONTENT_ENCODING);
        let plain =
            encodings.iter().all(|named| named.as_bytes().eq_ignore_ascii_case(b"identity"));
        let limits = JsonLimits { max_bytes: MAX_ANSWER_BYTES, ..JsonLimits::default() };
        if plain { json::parse(&self.body, &limits).ok() } else { None }
    }
}

/// The text that names something at a place; empty when nothing there is a name.
fn reference<'a>(body: &'a Json, place: &Pointer) -> &'a str {
    match body.at(place) {
        Some(Json::String(text)) => text,
        Some(Json::Number(number)) => number.as_str(),
        Some(Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_)) | None => "",
    }
}

/// `Retry-After` (RFC 9110, section 10.2.3), as seconds or as a date. A date is counted from the
/// answer's own `Date`, so that no two clocks are compared; without one it is ignored, as is
/// anything that cannot be read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are still a number: a very long wait.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let sent = http_date(headers.get(header::DATE)?.to_str().ok()?)?;
        // A moment that has passed asks for no wait at all.
        Duration::try_from(http_date(text)? - sent).unwrap_or(Duration::ZERO)
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// The one form of date that senders may still make (IMF-fixdate, a subset of RFC 2822's).
fn http_date(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text.trim(), &Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_from_seconds_or_dates_and_garbage_is_ignored() {
        let check = |after: &'static str, date: Option<&'static str>, seconds: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, after.parse().unwrap());
            date.map(|date| headers.insert(header::DATE, date.parse().unwrap()));
            assert_eq!(retry_after(&headers), seconds.map(Duration::from_secs), "{after}");
        };
        let noon = Some("Wed, 21 Oct 2015 12:00:00 GMT");
        check("7", None, Some(7));
        check(" 0 ", noon, Some(0));
        check("86401", None, Some(86_400));
        check("99999999999999999999999", None, Some(86_400));
        check("Wed, 21 Oct 2015 12:01:30 GMT", noon, Some(90));
        check("Wed, 21 Oct 2015 11:59:59 GMT", noon, Some(0));
        check("Wed, 21 Oct 2015 12:01:30 GMT", None, None);
        check("Wed, 21 Oct 2015 12:01:30 GMT", Some("noon"), None);
        for garbage in ["", "soon", "-5", "1.5", "+3", "10s", "\u{e9}"] {
            check(garbage, noon, None);
        }
    }
}
