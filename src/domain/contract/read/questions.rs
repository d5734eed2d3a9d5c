//! The sections that ask: look-ups, polls, checks, and who says whether the actor may.

use std::time::Duration;

use crate::domain::contract::{
    AbsentRule, Authorization, Check, Lookup, LookupRequest, Poll, PollRequest,
};
use crate::domain::pointer::Pointer;

use super::http::{self, CALL_FIELDS};
use super::place::Place;

/// Answers of a check that a service gives about the target's state: it is not there, not in that
/// state, gone, not that version, not to be processed.
const FAILING: [u16; 5] = [404, 409, 410, 412, 422];

/// Answers by which a check holds.
const PASSING: [u16; 2] = [200, 204];

pub(super) fn lookup(place: &Place<'_>) -> Option<Lookup> {
    place.object(&["http", "authoritative", "visible_after", "absent"])?;
    let http = place.get("http").maybe(lookup_request);
    let authoritative = place.get("authoritative").or(false, Place::flag);
    let visible_after = place.get("visible_after").or(Duration::ZERO, Place::duration);
    let when_absent = place.get("absent").or(AbsentRule::Operator, |place| {
        place.word(&[("resend", AbsentRule::Resend), ("operator", AbsentRule::Operator)])
    });
    Some(Lookup {
        http: http?,
        authoritative: authoritative?,
        visible_after: visible_after?,
        when_absent: when_absent?,
    })
}

fn lookup_request(place: &Place<'_>) -> Option<LookupRequest> {
    const OWN: [&str; 4] = ["found", "absent", "receipt", "response"];
    place.object(&[CALL_FIELDS.as_slice(), &OWN].concat())?;
    let call = http::asking_for_more(place);
    let found = place.get("found").one_or_more_statuses();
    let absent = place.get("absent").one_or_more_statuses();
    let receipt = place.get("receipt").json_pointer();
    let response = place.get("response").or(Vec::new(), |list| list.list(Place::json_pointer));
    Some(LookupRequest {
        call: call?,
        found: found?,
        absent: absent?,
        receipt: receipt?,
        response: response?,
    })
}

/// `receipt` is where the effect's own answer holds the reference.
pub(super) fn poll(place: &Place<'_>, receipt: Option<&Pointer>) -> Option<Poll> {
    place.object(&["http", "every", "give_up"])?;
    let http = place.get("http").maybe(|place| poll_request(place, receipt));
    let every = place.get("every").duration();
    let give_up = place.get("give_up").duration();
    Some(Poll { http: http?, every: every?, give_up: give_up? })
}

fn poll_request(place: &Place<'_>, usual: Option<&Pointer>) -> Option<PollRequest> {
    const OWN: [&str; 4] = ["applied", "refused", "receipt", "response"];
    place.object(&[CALL_FIELDS.as_slice(), &OWN].concat())?;
    let call = http::asking_for_more(place);
    let applied = place.get("applied").or(vec![200], Place::statuses);
    let refused = place.get("refused").or(Vec::new(), Place::statuses);
    let receipt = place.get("receipt").maybe(Place::json_pointer);
    let response = place.get("response").or(Vec::new(), |list| list.list(Place::json_pointer));
    Some(PollRequest {
        call: call?,
        applied: applied?,
        refused: refused?,
        receipt: receipt?.or_else(|| usual.cloned()),
        response: response?,
    })
}

/// A list that is not there holds the usual statuses that the other list does not name.
pub(super) fn check(place: &Place<'_>) -> Option<Check> {
    place.object(&["http", "pass", "fail"])?;
    let call = http::call(&place.get("http"));
    let pass = place.get("pass").maybe(Place::statuses);
    let fail = place.get("fail").maybe(Place::statuses);
    let (pass, fail) = (pass?, fail?);
    let usual = |statuses: &[u16], other: Option<&Vec<u16>>| {
        let free = |status: &&u16| !other.is_some_and(|other| other.contains(status));
        statuses.iter().filter(free).copied().collect::<Vec<u16>>()
    };
    Some(Check {
        http: call?,
        pass: pass.clone().unwrap_or_else(|| usual(&PASSING, fail.as_ref())),
        fail: fail.unwrap_or_else(|| usual(&FAILING, pass.as_ref())),
    })
}

pub(super) fn authorization(place: &Place<'_>) -> Option<Authorization> {
    place.object(&["grants", "http", "code"])?;
    let grants = place.get("grants").or(false, |place| {
        place.flag()?.then_some(true).or_else(|| {
            place.complain("must be true, or left out: nobody is allowed by not being asked")
        })
    });
    let http = place.get("http").maybe(http::policy);
    let code = place.get("code").maybe(Place::text);
    let read = Authorization { grants: grants?, http: http?, code: code? };
    if !read.grants && read.http.is_none() && read.code.is_none() {
        return place.complain(
            "must name who decides: grants: true, http: {url: ...} or code: NAME; leave the section out for nobody",
        );
    }
    Some(read)
}
