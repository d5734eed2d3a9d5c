//! JSON as it was sent: every number keeps its text, every object keeps the order of its members.
//!
//! [`parse`] is the only way in for text from outside. It refuses what two readers could
//! understand in two ways (a name twice, half a surrogate pair) and what PostgreSQL cannot hold
//! (U+0000), so that whoever acts on a document acts on what was fingerprinted. A general reader
//! cannot take its place: it keeps one of two equal names and says nothing.
//!
//! Absent on purpose: numbers as machine numbers, and `serde::Deserialize` for [`Json`], which
//! would be a second door without these checks.

mod read;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use super::pointer::Pointer;
pub use read::parse;

/// A JSON document, or a part of one.
///
/// `Debug` prints the whole payload: for tests; never log it. Equality minds the order of members
/// and the text of numbers; sameness of requests is [`super::fingerprint`]'s business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, by its text.
    Number(Number),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: members in source order, names unique.
    Object(Vec<(String, Json)>),
}

/// A number by the text that was sent; never a machine number, so that 1e400 and the seventeenth
/// digit survive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Number(String);

/// Bounds on a document from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Longest accepted text, in bytes.
    pub max_bytes: usize,
    /// Deepest accepted nesting of arrays and objects; `[]` has depth 1. Above
    /// [`JsonLimits::DEEPEST`] it counts as that.
    pub max_depth: usize,
}

impl JsonLimits {
    /// No setting may allow more: reading recurses, and a test reads this depth on a quarter of the
    /// stack that a thread of the runtime gets.
    pub const DEEPEST: usize = 256;
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { max_bytes: 1024 * 1024, max_depth: 64 }
    }
}

/// Why a document was refused, and where. Shows names of members, never their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The place; for a problem inside a member's name, the object.
    pub pointer: Pointer,
    /// The byte at which reading stopped.
    pub offset: usize,
    /// What is wrong there.
    pub problem: JsonProblem,
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JsonProblem {
    /// The text is longer than the limit; nothing of it was read.
    #[error("the document is larger than {limit} bytes; send a smaller one")]
    TooLarge {
        /// [`JsonLimits::max_bytes`]
        limit: usize,
    },
    /// Arrays and objects are nested deeper than the limit.
    #[error("nesting is deeper than {limit}; send a flatter document")]
    TooDeep {
        /// [`JsonLimits::max_depth`]
        limit: usize,
    },
    /// The text begins with U+FEFF (RFC 8259, section 8.1, forbids sending it).
    #[error("the document begins with a byte order mark; send plain UTF-8 without it")]
    ByteOrderMark,
    /// Bytes that are not UTF-8.
    #[error("bytes that are not UTF-8; send UTF-8")]
    InvalidUtf8,
    /// Two members of one object have the same name after unescaping.
    #[error("this member name stands twice in its object; send it once")]
    DuplicateName,
    /// A `\u` escape names half a surrogate pair.
    #[error("a \\u escape holds half a surrogate pair; send whole characters")]
    LoneSurrogate,
    /// U+0000 in a string or a name.
    #[error("U+0000 cannot be stored; remove it")]
    Nul,
    /// Something follows the document.
    #[error("something follows the end of the document; send one document")]
    TrailingData,
    /// Not JSON by RFC 8259.
    #[error("not JSON: expected {expected}")]
    Syntax {
        /// What the grammar allows at this byte.
        expected: &'static str,
    },
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "JSON refused at {} (byte {}): {}",
            self.pointer.brief(),
            self.offset,
            self.problem
        )
    }
}

impl std::error::Error for JsonError {}

impl Number {
    /// A number from its JSON text; `None` when the text is no JSON number.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (read::number_length(text.as_bytes()) == Ok(text.len())).then(|| Self(text.to_owned()))
    }

    /// The text as it was sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<i64> for Number {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

impl Json {
    /// The value at a place; `None` when nothing is there. `null` is something.
    #[must_use]
    pub fn at(&self, pointer: &Pointer) -> Option<&Self> {
        self.at_tokens(pointer.tokens())
    }

    /// [`Json::at`] by unescaped tokens.
    #[must_use]
    pub fn at_tokens(&self, tokens: &[String]) -> Option<&Self> {
        tokens.iter().try_fold(self, |place, token| match place {
            Self::Object(_) => place.member(token),
            Self::Array(items) => items.get(array_index(token)?),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => None,
        })
    }

    /// [`Json::at_tokens`], to change what is there.
    #[must_use]
    pub fn at_tokens_mut(&mut self, tokens: &[String]) -> Option<&mut Self> {
        tokens.iter().try_fold(self, |place, token| match place {
            Self::Object(members) => {
                members.iter_mut().find(|(name, _)| name == token).map(|(_, value)| value)
            }
            Self::Array(items) => items.get_mut(array_index(token)?),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => None,
        })
    }

    /// The member `name` of an object.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Self> {
        self.as_object()?.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The number of a number.
    #[must_use]
    pub fn as_number(&self) -> Option<&Number> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// The truth of a boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(truth) = self { Some(*truth) } else { None }
    }

    /// The items of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    /// The members of an object, in source order.
    #[must_use]
    pub fn as_object(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The document as compact JSON text: source order, numbers as sent, no needless escapes.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Self::Number(number) => out.push_str(number.as_str()),
            Self::String(text) => write_string(out, text),
            Self::Array(items) => write_list(out, ['[', ']'], items, |out, item| item.write(out)),
            Self::Object(members) => write_list(out, ['{', '}'], members, |out, (name, value)| {
                write_string(out, name);
                out.push(':');
                value.write(out);
            }),
        }
    }

    /// The same document for code that needs `serde_json`, such as a schema validator. Numbers
    /// keep their text; the order of members is lost.
    ///
    /// Do not pass the result through serde again (`serde_json::to_value`, `from_value`): with
    /// arbitrary precision an object whose only member has `serde_json`'s private name would come
    /// out as a number.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            // Parsing would rewrite exponents (1e5 to 1e+5); the grammar was checked by `Number`.
            Self::Number(number) => {
                Value::Number(serde_json::Number::from_string_unchecked(number.0.clone()))
            }
            Self::String(text) => Value::String(text.clone()),
            Self::Array(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Object(members) => Value::Object(
                members.iter().map(|(name, value)| (name.clone(), value.to_value())).collect(),
            ),
        }
    }

    /// A document from a value made in code. For text from outside use [`parse`]: here a name
    /// that stood twice is already lost.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => Self::Number(Number(number.to_string())),
            Value::String(text) => Self::String(text.clone()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from_value).collect()),
            Value::Object(members) => Self::Object(
                members
                    .iter()
                    .map(|(name, value)| (name.clone(), Self::from_value(value)))
                    .collect(),
            ),
        }
    }
}

/// An array index by RFC 6901, section 4: digits, no leading zero. `-` names no existing item.
fn array_index(token: &str) -> Option<usize> {
    let plain = token.bytes().all(|byte| byte.is_ascii_digit())
        && (token == "0" || !token.starts_with('0'));
    if plain { token.parse().ok() } else { None }
}

/// Writes what stands between two brackets, with commas.
pub(super) fn write_list<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(close);
}

/// Writes a string with the fewest escapes that JSON allows. RFC 8785, section 3.2.2.2, asks for
/// exactly these, so the canonical form uses it too; changing it would change every fingerprint.
pub(super) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => out.push(other),
        }
    }
    out.push('"');
}
