//! The material values of a request: found or defaulted, then made the same where the contract
//! says that they are.

use super::{FingerprintRule, TextRule};
use crate::domain::canonical::nfc;
use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

/// Every material place that has a value, by its pointer's text.
pub(super) fn values(arguments: &Json, rule: &FingerprintRule) -> Vec<(String, Json)> {
    let value = |place: &Pointer| Some((place.to_string(), value_at(arguments, place, rule)?));
    rule.places().into_iter().filter_map(value).collect()
}

fn value_at(arguments: &Json, place: &Pointer, rule: &FingerprintRule) -> Option<Json> {
    let mut value = sent_or_default(arguments, place, rule)?.clone();
    // Pointers order from the outside in: a default object is there before its members are.
    for (inner, default) in &rule.defaults {
        if let Some(way) = inner.within(place) {
            fill_in(&mut value, way, default);
        }
    }
    for (inner, rules) in &rule.text {
        if let Some(text) = inner.within(place).and_then(|way| value.at_tokens_mut(way)) {
            normalise(text, rules);
        }
    }
    Some(value)
}

/// What was sent, else the place's default, else its part of the default of the nearest omitted
/// place around it.
fn sent_or_default<'a>(
    arguments: &'a Json,
    place: &Pointer,
    rule: &'a FingerprintRule,
) -> Option<&'a Json> {
    let defaulted = || {
        (0..=place.tokens().len()).rev().find_map(|length| {
            let (outer, way) = place.tokens().split_at_checked(length)?;
            let omitted = arguments.at_tokens(outer).is_none();
            rule.defaults.get(&Pointer::from(outer.to_vec())).filter(|_| omitted)?.at_tokens(way)
        })
    };
    arguments.at(place).or_else(defaulted)
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
