//! The arguments' schema, and the places in it that other sections name.

use serde_json::Value;

use crate::domain::contract::schema_walk::{Declared, declared};
use crate::domain::contract::template::Placeholder;
use crate::domain::contract::{Contract, HttpCall};
use crate::domain::pointer::Pointer;

use super::Found;

const NOT_DECLARED: &str = "is no place that the arguments' schema declares";

pub(super) fn check(contract: &Contract, found: &mut Found) {
    found.when(
        contract.arguments.get("type").and_then(Value::as_str) != Some("object"),
        &["arguments", "type"],
        "must be object: arguments are named",
    );
    fingerprint(contract, found);
    material(contract, found);
    for (place, pointer) in named(contract) {
        if declared(&contract.arguments, pointer) == Declared::No {
            let place: Vec<&str> = place.iter().map(String::as_str).collect();
            found.when(true, &place, format!("{} {NOT_DECLARED}", pointer.brief()));
        }
    }
}

fn fingerprint(contract: &Contract, found: &mut Found) {
    let rule = &contract.fingerprint;
    found.when(
        rule.fields.is_empty(),
        &["fingerprint", "fields"],
        "names no field: every request under a key would be the same",
    );
    for idle in rule.idle_text() {
        found.when(
            declared(&contract.arguments, idle) != Declared::No,
            &["fingerprint", "text", &idle.to_string()],
            "applies to nothing, because no fingerprint field holds this place",
        );
    }
}

/// What is sent can change the effect, so it is part of what makes two requests the same. There is
/// no list of exceptions: what must not be compared goes into the submission's `metadata`, which
/// is never sent.
fn material(contract: &Contract, found: &mut Found) {
    let places = contract.fingerprint.places();
    let sent = contract.http().map(|http| http.argument_pointers()).unwrap_or_default();
    for pointer in sent {
        let compared = places.iter().any(|place| pointer.within(place).is_some());
        found.when(
            !compared && !places.is_empty() && declared(&contract.arguments, pointer) != Declared::No,
            &["fingerprint", "fields"],
            format!(
                "{} is sent to the downstream but not compared: a changed value would pass as the same request; add it",
                pointer.brief()
            ),
        );
    }
}

/// Every pointer into the arguments, with the place in the contract that names it.
fn named(contract: &Contract) -> Vec<(Vec<String>, &Pointer)> {
    let way = |tokens: &[&str]| tokens.iter().map(ToString::to_string).collect::<Vec<_>>();
    let rule = &contract.fingerprint;
    let mut named: Vec<(Vec<String>, &Pointer)> = Vec::new();
    for (index, field) in rule.fields.iter().enumerate() {
        named.push((way(&["fingerprint", "fields", &index.to_string()]), field));
    }
    for place in rule.defaults.keys() {
        named.push((way(&["fingerprint", "defaults", &place.to_string()]), place));
    }
    for place in rule.text.keys() {
        named.push((way(&["fingerprint", "text", &place.to_string()]), place));
    }
    for place in contract.approval.iter().flat_map(|approval| approval.when.keys()) {
        named.push((way(&["approval", "when", &place.to_string()]), place));
    }
    for pointer in contract.http().map(|http| http.argument_pointers()).unwrap_or_default() {
        named.push((way(&["downstream", "http"]), pointer));
    }
    for (tokens, call) in calls(contract) {
        named.extend(
            call.placeholders()
                .into_iter()
                .filter_map(Placeholder::argument)
                .map(|pointer| (way(tokens), pointer)),
        );
    }
    named
}

/// The requests that ask.
fn calls(contract: &Contract) -> impl Iterator<Item = (&'static [&'static str], &HttpCall)> {
    const LOOKUP: &[&str] = &["downstream", "lookup", "http"];
    const POLL: &[&str] = &["downstream", "poll", "http"];
    const PRECONDITIONS: &[&str] = &["preconditions", "http"];
    const POSTCONDITION: &[&str] = &["postcondition", "http"];
    let downstream = contract.downstream.as_ref();
    [
        downstream.and_then(|d| d.lookup.as_ref()).map(|lookup| (LOOKUP, &lookup.http)),
        downstream.and_then(|d| d.poll.as_ref()).map(|poll| (POLL, &poll.http)),
        contract.preconditions.as_ref().map(|check| (PRECONDITIONS, &check.http)),
        contract.postcondition.as_ref().map(|check| (POSTCONDITION, &check.http)),
    ]
    .into_iter()
    .flatten()
}
