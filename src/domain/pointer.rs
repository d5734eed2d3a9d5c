//! JSON Pointers (RFC 6901): the name of one place in a document.
//!
//! The text form only; the URI fragment form of the RFC is deliberately absent.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// How many characters of a pointer an error text shows: enough to find the place by eye, short
/// enough that a hostile member name cannot flood a log line.
const BRIEF_CHARS: usize = 120;

/// The name of one place in a JSON document. The empty pointer names the whole document.
///
/// Pointers order by their tokens, so a place always comes before the places inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(Vec<String>);

/// Why a text is no JSON Pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PointerError {
    /// A pointer that is not empty begins with a slash.
    #[error("a JSON Pointer is empty or begins with '/'")]
    NoSlash,
    /// `~` stands only in `~0` (for `~`) and `~1` (for `/`).
    #[error("in a JSON Pointer '~' must be written ~0 and '/' inside a name ~1")]
    Escape,
    /// U+0000 can stand in no document that oncebox accepts, so no place has that name.
    #[error("a JSON Pointer cannot hold U+0000")]
    Nul,
}

impl Pointer {
    /// The whole document.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Reads the text form, as it stands in contracts.
    ///
    /// # Errors
    /// When the text is not a pointer by RFC 6901, section 3, or holds U+0000.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Ok(Self::root());
        }
        let tokens = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
        tokens.split('/').map(unescape).collect::<Result<_, _>>().map(Self)
    }

    /// The unescaped reference tokens, outermost first.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// Whether this is the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The place `token` inside this one.
    #[must_use]
    pub fn child(&self, token: impl Into<String>) -> Self {
        let mut tokens = self.0.clone();
        tokens.push(token.into());
        Self(tokens)
    }

    /// The way from `outer` to this place; empty when they are the same, `None` when this place
    /// is not inside `outer`.
    #[must_use]
    pub fn within(&self, outer: &Self) -> Option<&[String]> {
        self.0.strip_prefix(outer.0.as_slice())
    }

    /// The place for one line of an error text: cut to a sane length, nothing in it that could
    /// break the line or reorder it on a terminal.
    #[must_use]
    pub fn brief(&self) -> String {
        if self.is_root() {
            return "the top level".to_owned();
        }
        let text = self.to_string();
        let mut brief = String::new();
        for character in text.chars().take(BRIEF_CHARS) {
            if is_harmless(character) {
                brief.push(character);
            } else {
                brief.extend(character.escape_unicode());
            }
        }
        if text.chars().nth(BRIEF_CHARS).is_some() {
            brief.push('…');
        }
        brief
    }
}

impl From<Vec<String>> for Pointer {
    /// From unescaped tokens, outermost first.
    fn from(tokens: Vec<String>) -> Self {
        Self(tokens)
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        Self::parse(text)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.0 {
            f.write_char('/')?;
            for character in token.chars() {
                match character {
                    '~' => f.write_str("~0")?,
                    '/' => f.write_str("~1")?,
                    other => f.write_char(other)?,
                }
            }
        }
        Ok(())
    }
}

impl Serialize for Pointer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

fn unescape(token: &str) -> Result<String, PointerError> {
    let mut plain = String::with_capacity(token.len());
    let mut characters = token.chars();
    while let Some(character) = characters.next() {
        match character {
            '~' => plain.push(match characters.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some(_) | None => return Err(PointerError::Escape),
            }),
            '\0' => return Err(PointerError::Nul),
            other => plain.push(other),
        }
    }
    Ok(plain)
}

/// Line breaks and controls would forge log lines, the bidirectional marks would show a name in
/// another order than it has.
fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6901, section 5, and the ways a pointer goes wrong.
    #[test]
    fn texts_are_read_by_the_rfc() {
        let check = |text: &str, expected: Result<&[&str], PointerError>| {
            let read = Pointer::parse(text);
            let tokens = expected.map(|t| t.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(
                read.as_ref().map(|p| p.tokens().to_vec()).map_err(|e| *e),
                tokens,
                "{text:?}"
            );
            if let Ok(pointer) = read {
                assert_eq!(pointer.to_string(), text);
            }
        };
        check("", Ok(&[]));
        check("/", Ok(&[""]));
        check("/foo/0", Ok(&["foo", "0"]));
        check("/a~1b", Ok(&["a/b"]));
        check("/m~0n", Ok(&["m~n"]));
        check("/~01", Ok(&["~1"]));
        check("/c%d//k\"l", Ok(&["c%d", "", "k\"l"]));
        check("/ /é", Ok(&[" ", "é"]));
        check("foo", Err(PointerError::NoSlash));
        check("#/foo", Err(PointerError::NoSlash));
        check("/a~", Err(PointerError::Escape));
        check("/a~2", Err(PointerError::Escape));
        check("/a\0", Err(PointerError::Nul));
    }

    #[test]
    fn a_place_knows_what_lies_inside_it() {
        let check = |inner: &str, outer: &str, way: Option<&[&str]>| {
            let (inner, outer) = (Pointer::parse(inner).unwrap(), Pointer::parse(outer).unwrap());
            assert_eq!(
                inner.within(&outer).map(|w| w.iter().map(String::as_str).collect()),
                way.map(<[_]>::to_vec)
            );
        };
        check("/a/b", "/a", Some(&["b"]));
        check("/a/b", "", Some(&["a", "b"]));
        check("/a", "/a", Some(&[]));
        check("/ab", "/a", None);
        check("/a", "/a/b", None);
    }

    #[test]
    fn error_texts_show_one_short_line() {
        let check =
            |token: &str, shown: &str| assert_eq!(Pointer::root().child(token).brief(), shown);
        check("line\nbreak", "/line\\u{a}break");
        check("\u{202e}evil", "/\\u{202e}evil");
        check("\u{1b}[31m", "/\\u{1b}[31m");
        check("größe", "/größe");
        check(&"x".repeat(5000), &format!("/{}…", "x".repeat(BRIEF_CHARS - 1)));
        assert_eq!(Pointer::root().brief(), "the top level");
    }

    #[test]
    fn serde_reads_and_writes_the_text() {
        let pointer: Pointer = serde_json::from_str("\"/a~1b/0\"").unwrap();
        assert_eq!(pointer, Pointer::from(vec!["a/b".to_owned(), "0".to_owned()]));
        assert_eq!(serde_json::to_string(&pointer).unwrap(), "\"/a~1b/0\"");
        assert!(serde_json::from_str::<Pointer>("\"a\"").is_err());
    }
}
