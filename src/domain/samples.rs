//! Documents for property tests: any shape, wild names and strings, numbers of every spelling.

use proptest::prelude::*;

use super::json::{Json, JsonLimits, Number, parse};

/// Reads a text that a test knows to be good.
pub(super) fn json(text: &str) -> Json {
    parse(text.as_bytes(), &JsonLimits::default()).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Characters that sort, escape or normalise in a way of their own, among plain ones.
pub(super) fn text() -> impl Strategy<Value = String> {
    let odd = "\"\\/~%:@ \t\n\r\u{8}\u{c}\u{1}\u{1f}\u{7f}\u{80}eé\u{301}ÅＡ\u{2028}\u{e000}\u{ffff}\u{10000}\u{10ffff}😀";
    let character = prop_oneof![
        proptest::sample::select(odd.chars().collect::<Vec<_>>()),
        proptest::char::range('a', 'c'),
        any::<char>().prop_filter("U+0000 is refused", |c| *c != '\0'),
    ];
    proptest::collection::vec(character, 0..8).prop_map(String::from_iter)
}

pub(super) fn number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,22})?"
}

pub(super) fn document() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        number().prop_map(|text| Json::Number(Number::new(&text).unwrap())),
        text().prop_map(Json::String),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            // The map makes names unique; its order is as good as any other.
            proptest::collection::hash_map(text(), inner, 0..6)
                .prop_map(|m| Json::Object(m.into_iter().collect())),
        ]
    })
}

/// The same document in another spelling: members in another order, white space, escapes.
pub(super) fn respelled(value: &Json, seed: &mut u64) -> String {
    let gap = ["", " ", "\n", "\t\r "][draw(seed, 4)];
    let body = match value {
        Json::String(text) => respelled_string(text, seed),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| respelled(item, seed)).collect();
            format!("[{gap}{}]", items.join(","))
        }
        Json::Object(members) => {
            let mut members: Vec<String> = members
                .iter()
                .map(|(name, value)| {
                    format!("{gap}{}{gap}:{}", respelled_string(name, seed), respelled(value, seed))
                })
                .collect();
            for place in (1..members.len()).rev() {
                members.swap(place, draw(seed, place + 1));
            }
            format!("{{{}{gap}}}", members.join(","))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => value.to_text(),
    };
    format!("{gap}{body}{gap}")
}

fn respelled_string(text: &str, seed: &mut u64) -> String {
    let mut spelled = String::from("\"");
    for character in text.chars() {
        match draw(seed, 3) {
            0 => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    spelled.push_str(&format!("\\u{unit:04X}"));
                }
            }
            _ if matches!(character, '"' | '\\') => spelled.extend(['\\', character]),
            1 if character == '/' => spelled.push_str("\\/"),
            _ if character < ' ' => spelled.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => spelled.push(character),
        }
    }
    spelled + "\""
}

/// A number below `bound` from a small generator (xorshift): a failing case repeats from its seed.
fn draw(seed: &mut u64, bound: usize) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    usize::try_from(*seed % u64::try_from(bound).unwrap()).unwrap()
}
