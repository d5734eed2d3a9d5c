//! A contract from its document: every word understood, every problem named.
//!
//! The reader knows the whole form, so that contracts which come from no file, such as those of
//! tools written in Rust, are held to it too.

mod http;
mod place;
mod questions;
mod small;

use std::cell::RefCell;

use crate::domain::canonical::NumberRule;
use crate::domain::fingerprint::{FingerprintRule, TextRule};
use crate::domain::json::Json;

use super::{
    Concurrency, Contract, EffectClass, Problem, Retention, RetryRule, ToolName, ToolVersion,
    Twins, sections,
};
use place::Place;

/// Every field of a contract, in the file's order.
const FIELDS: [&str; 25] = [
    "name",
    "version",
    "purpose",
    "use_when",
    "do_not_use_when",
    "operation_key",
    "effect_class",
    "stale_write",
    "repeat_side_effects",
    "arguments",
    "fingerprint",
    "downstream",
    "authorization",
    "approval",
    "preconditions",
    "postcondition",
    "retry",
    "lease",
    "concurrency",
    "twins",
    "results",
    "sensitive",
    "webhook",
    "retention",
    "owner",
];

/// The sections that a version fixes for ever.
const MATERIAL: [&str; 5] =
    ["arguments", "fingerprint", "downstream", "effect_class", "stale_write"];

impl Contract {
    /// Reads a contract from its document. The relations between its parts are another step:
    /// [`Contract::problems`].
    ///
    /// # Errors
    /// Everything in the document that has no meaning, in its order.
    pub fn from_json(document: &Json) -> Result<Self, Vec<Problem>> {
        let problems = RefCell::new(Vec::new());
        let contract = contract(&Place::root(document, &problems), document);
        let problems = problems.into_inner();
        match contract {
            Some(contract) if problems.is_empty() => Ok(contract),
            Some(_) | None => Err(problems),
        }
    }
}

fn contract(top: &Place<'_>, document: &Json) -> Option<Contract> {
    top.object(&FIELDS)?;
    // Each part is read before any `?`, or the first bad one would hide the others.
    let tool = parsed(&top.get("name"), ToolName::parse);
    let version = parsed(&top.get("version"), ToolVersion::parse);
    let purpose = top.get("purpose").text();
    let use_when = top.get("use_when").or(Vec::new(), Place::texts);
    let do_not_use_when = top.get("do_not_use_when").or(Vec::new(), Place::texts);
    let operation_key = small::operation_key(&top.get("operation_key"));
    let effect_class = effect_class(&top.get("effect_class"));
    let stale_write = top.get("stale_write").or(false, |place| place.word(&[("harmless", true)]));
    let repeat_side_effects = top.get("repeat_side_effects").maybe(side_effects);
    let arguments = top.get("arguments").json().map(Json::to_value);
    let fingerprint = fingerprint(&top.get("fingerprint"));
    let downstream = top.get("downstream").maybe(http::downstream);
    let authorization = top.get("authorization").maybe(questions::authorization);
    let approval = top.get("approval").maybe(small::approval);
    let preconditions = top.get("preconditions").maybe(questions::check);
    let postcondition = top.get("postcondition").maybe(questions::check);
    let retry = top.get("retry").or(RetryRule::default(), small::retry);
    let lease = top.get("lease").or(sections::DEFAULT_LEASE, Place::duration);
    let concurrency = top.get("concurrency").or(Concurrency::default(), small::concurrency);
    let twins = effect_class.and_then(|class| {
        let default = Twins::default_of(class);
        top.get("twins").or(default, |place| small::twins(place, default))
    });
    let results = top.get("results").or(false, Place::flag);
    let sensitive = top.get("sensitive").or(false, Place::flag);
    let webhook = top.get("webhook").maybe(small::webhook);
    let retention = top.get("retention").or(Retention::default(), small::retention);
    let owner = top.get("owner").maybe(small::owner);
    Some(Contract {
        tool: tool?,
        version: version?,
        purpose: purpose?,
        use_when: use_when?,
        do_not_use_when: do_not_use_when?,
        operation_key: operation_key?,
        effect_class: effect_class?,
        stale_write_harmless: stale_write?,
        repeat_side_effects: repeat_side_effects?,
        arguments: arguments?,
        fingerprint: fingerprint?,
        downstream: downstream?,
        authorization: authorization?,
        approval: approval?,
        preconditions: preconditions?,
        postcondition: postcondition?,
        retry: retry?,
        lease: lease?,
        concurrency: concurrency?,
        twins: twins?,
        results: results?,
        sensitive: sensitive?,
        webhook: webhook?,
        retention: retention?,
        owner: owner?,
        material: material(document),
    })
}

/// The material sections as they are written.
fn material(document: &Json) -> Json {
    let section = |name: &str| Some((name.to_owned(), document.member(name)?.clone()));
    Json::Object(MATERIAL.into_iter().filter_map(section).collect())
}

fn parsed<T, E: std::fmt::Display>(
    place: &Place<'_>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    parse(&place.text()?).map_or_else(|error| place.complain(error.to_string()), Some)
}

fn effect_class(place: &Place<'_>) -> Option<EffectClass> {
    place.word(&EffectClass::ALL.map(|class| (class.as_str(), class)))
}

/// `none`, or a list.
fn side_effects(place: &Place<'_>) -> Option<Vec<String>> {
    match place.json()? {
        Json::String(word) if word == "none" => Some(Vec::new()),
        Json::Array(_) => place.texts(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
            place.complain("must be none, or a list such as [webhook, audit, mail]")
        }
    }
}

fn fingerprint(place: &Place<'_>) -> Option<FingerprintRule> {
    place.object(&["fields", "defaults", "text", "numbers"])?;
    let fields = place.get("fields").list(Place::json_pointer);
    let defaults = place.get("defaults").or(Vec::new(), |defaults| {
        defaults
            .each_member(|name, value| Some((small::pointer(name, value)?, value.json()?.clone())))
    });
    let text = place.get("text").or(Vec::new(), |text| {
        text.each_member(|name, rules| Some((small::pointer(name, rules)?, rules.list(text_rule)?)))
    });
    let numbers = place.get("numbers").or(NumberRule::Exact, |place| {
        place.word(&[("exact", NumberRule::Exact), ("numeric", NumberRule::Numeric)])
    });
    Some(FingerprintRule {
        fields: fields?,
        defaults: defaults?.into_iter().collect(),
        text: text?.into_iter().collect(),
        numbers: numbers?,
    })
}

fn text_rule(place: &Place<'_>) -> Option<TextRule> {
    place.word(&[
        ("trim", TextRule::Trim),
        ("lowercase", TextRule::Lowercase),
        ("nfc", TextRule::Nfc),
    ])
}
