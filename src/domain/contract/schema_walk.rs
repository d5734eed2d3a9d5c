//! Looking into an arguments schema for a place, without being a validator.

use serde_json::Value;

use crate::domain::pointer::Pointer;

/// Keywords behind which a place may hide. Where one stands, nothing is said about absence.
const OPENERS: [&str; 14] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "then",
    "else",
    "not",
    "patternProperties",
    "dependentSchemas",
    "prefixItems",
    "contains",
    "unevaluatedProperties",
];

/// What a schema says about a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared<'a> {
    /// It is declared, by this subschema.
    As(&'a Value),
    /// It may be: a reference or a combination stands in the way.
    CannotTell,
    /// No valid document has it, or only by chance.
    No,
}

/// Looks for a place.
pub(super) fn declared<'a>(schema: &'a Value, pointer: &Pointer) -> Declared<'a> {
    let mut at = schema;
    for token in pointer.tokens() {
        at = match step(at, token) {
            Declared::As(inner) => inner,
            told @ (Declared::CannotTell | Declared::No) => return told,
        };
    }
    Declared::As(at)
}

fn step<'a>(schema: &'a Value, token: &str) -> Declared<'a> {
    let is_index = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    let property = schema.get("properties").and_then(|properties| properties.get(token));
    let item = schema.get("items").filter(|items| is_index && items.is_object());
    match property.or(item) {
        Some(inner) => Declared::As(inner),
        None if OPENERS.iter().any(|opener| schema.get(opener).is_some()) => Declared::CannotTell,
        None if schema.get("additionalProperties").is_some_and(Value::is_object) => {
            Declared::CannotTell
        }
        None => Declared::No,
    }
}

/// Whether the schema makes every step of the way to a place required.
pub(super) fn is_required(schema: &Value, pointer: &Pointer) -> bool {
    let mut at = schema;
    pointer.tokens().iter().all(|token| {
        let names = at.get("required").and_then(Value::as_array);
        let required =
            names.is_some_and(|names| names.iter().any(|name| name.as_str() == Some(token)));
        match step(at, token) {
            Declared::As(inner) => {
                at = inner;
                required
            }
            Declared::CannotTell | Declared::No => false,
        }
    })
}

/// Whether `format` stands anywhere. As a keyword its value is a text; a property of that name has
/// a schema.
pub(super) fn uses_format(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members.get("format").is_some_and(Value::is_string) || members.values().any(uses_format)
        }
        Value::Array(items) => items.iter().any(uses_format),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The names of the properties at the top.
pub(super) fn property_names(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_or_honestly_not_told() {
        let schema = serde_json::json!({
            "type": "object",
            "required": ["a", "list"],
            "properties": {
                "a": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
                "open": {"$ref": "#/$defs/x"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"c": {}}}},
            },
        });
        let check = |text: &str, found: &str, required: bool| {
            let pointer = Pointer::parse(text).unwrap();
            let told = match declared(&schema, &pointer) {
                Declared::As(_) => "declared",
                Declared::CannotTell => "cannot tell",
                Declared::No => "no",
            };
            assert_eq!((told, is_required(&schema, &pointer)), (found, required), "{text}");
        };
        check("", "declared", true);
        check("/a", "declared", true);
        check("/a/b", "declared", true);
        check("/a/x", "no", false);
        check("/x", "no", false);
        check("/open/y", "cannot tell", false);
        check("/map/any", "cannot tell", false);
        check("/list/0/c", "declared", false);
        check("/list/0/d", "no", false);
        check("/list/x", "no", false);
    }
}
