//! The material values of a request: found or defaulted, then made the same where the contract
//! says that they are.

use super::{FingerprintRule, TextRule};
use crate::domain::canonical::nfc;
use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

/// Every material place that has a value, by its pointer's text.
pub(super) fn values(arguments: &Json, rule: &FingerprintRule) -> Vec<(String, Json)> {
    let mut values: Vec<(&Pointer, Option<Json>)> = Vec::new();
    for place in rule.places() {
        // Outer places come first. One place inside another has its part of that one's value, so
        // that the two can never see different defaults.
        let outer =
            values.iter().find_map(|(outer, value)| Some((place.within(outer)?, value.as_ref())));
        let value = match outer {
            Some((way, value)) => value.and_then(|value| value.at_tokens(way)).cloned(),
            None => outermost(arguments, place, rule),
        };
        values.push((place, value));
    }
    values.into_iter().filter_map(|(place, value)| Some((place.to_string(), value?))).collect()
}

/// The value that a request has at any place, sent or meant by its omission, made the same where the
/// contract says so.
pub(super) fn value_at(arguments: &Json, place: &Pointer, rule: &FingerprintRule) -> Option<Json> {
    outermost(arguments, place, rule).or_else(|| {
        // The innermost default that holds it, of a place that was not sent.
        let within = |(outer, default): (&Pointer, &Json)| {
            let way = place.within(outer).filter(|_| arguments.at(outer).is_none())?;
            default.at_tokens(way).map(|value| same_text(value.clone(), place, rule))
        };
        rule.defaults.iter().rev().find_map(within)
    })
}

/// `value` as it is compared at `place`.
pub(super) fn same_text(mut value: Json, place: &Pointer, rule: &FingerprintRule) -> Json {
    for (inner, rules) in &rule.text {
        if let Some(text) = inner.within(place).and_then(|way| value.at_tokens_mut(way)) {
            normalise(text, rules);
        }
    }
    value
}

fn outermost(arguments: &Json, place: &Pointer, rule: &FingerprintRule) -> Option<Json> {
    let mut value = arguments.at(place).or_else(|| rule.defaults.get(place))?.clone();
    // Outer places first here too: a default object is there before its members are filled in.
    for (inner, default) in &rule.defaults {
        if let Some(way) = inner.within(place) {
            fill_in(&mut value, way, default);
        }
    }
    Some(same_text(value, place, rule))
}

/// Adds an omitted member to an object that is there.
fn fill_in(value: &mut Json, way: &[String], default: &Json) {
    let Some((name, to_object)) = way.split_last() else { return };
    if let Some(Json::Object(members)) = value.at_tokens_mut(to_object)
        && !members.iter().any(|(present, _)| present == name)
    {
        members.push((name.clone(), default.clone()));
    }
}

fn normalise(value: &mut Json, rules: &[TextRule]) {
    let Json::String(text) = value else { return };
    for rule in rules {
        *text = match rule {
            TextRule::Trim => text.trim_matches(['\t', '\n', '\r', ' ']).to_owned(),
            TextRule::Lowercase => text.to_ascii_lowercase(),
            TextRule::Nfc => nfc(text),
        };
    }
}
