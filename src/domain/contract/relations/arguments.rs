//! The arguments' schema, and the places in it that other sections name.

use serde_json::Value;

use crate::domain::contract::Contract;
use crate::domain::contract::schema_walk::{Declared, declared, is_required};
use crate::domain::contract::template::Placeholder;
use crate::domain::pointer::Pointer;

use super::Found;
use super::questions::asked;

const NOT_DECLARED: &str = "is no place that the arguments' schema declares";

pub(super) fn check(contract: &Contract, found: &mut Found) {
    found.when(
        contract.arguments.get("type").and_then(Value::as_str) != Some("object"),
        &["arguments", "type"],
        "must be object: arguments are named",
    );
    fingerprint(contract, found);
    material(contract, found);
    questions(contract, found);
    approvals(contract, found);
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

/// A question never loses a part: without it, it would ask something else and be believed.
fn questions(contract: &Contract, found: &mut Found) {
    for asked in asked(contract) {
        for pointer in asked.placeholders.into_iter().filter_map(Placeholder::argument) {
            let is_declared = matches!(declared(&contract.arguments, pointer), Declared::As(_));
            found.when(
                is_declared && !is_required(&contract.arguments, pointer),
                asked.place,
                format!(
                    "asks with {}, which the arguments' schema does not require: without it nothing could be asked",
                    pointer.brief()
                ),
            );
        }
    }
}

fn approvals(contract: &Contract, found: &mut Found) {
    for (pointer, values) in contract.approval.iter().flat_map(|approval| &approval.when) {
        found.when(
            values.is_empty(),
            &["approval", "when", &pointer.to_string()],
            "names no value: no request would ever need the approval",
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
    for asked in asked(contract) {
        let pointers = asked.placeholders.into_iter().filter_map(Placeholder::argument);
        named.extend(pointers.map(|pointer| (way(asked.place), pointer)));
    }
    named
}
