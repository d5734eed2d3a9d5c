//! Names of tools and of their versions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// Longest tool name or version, in bytes: with a prefix it must fit AMQP's 255 bytes of a queue
/// name.
const MAX_BYTES: usize = 64;

/// Names that would collide with oncebox's own exchanges.
const RESERVED: [&str; 3] = ["dead", "results", "operations"];

/// A tool's name: `[a-z0-9_.-]{1,64}`, a letter or digit at both ends, not reserved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(String);

/// A tool's version: 1 to 64 bytes of visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolVersion(String);

/// Why a text names no tool or no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The form of a tool name.
    #[error("a tool name matches [a-z0-9_.-]{{1,64}} and begins and ends with a letter or a digit")]
    Tool,
    /// A name that oncebox itself uses.
    #[error("this tool name is reserved; dead, results and operations are oncebox's own")]
    Reserved,
    /// The form of a version.
    #[error("a tool version is 1 to 64 visible ASCII characters without spaces")]
    Version,
}

impl ToolName {
    /// Reads a tool name.
    ///
    /// # Errors
    /// When the text has another form or is reserved.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [text.bytes().next(), text.bytes().next_back()];
        let formed = text.len() <= MAX_BYTES
            && ends.iter().all(|end| end.is_some_and(plain))
            && text.bytes().all(|byte| plain(byte) || matches!(byte, b'_' | b'.' | b'-'));
        if !formed {
            Err(NameError::Tool)
        } else if RESERVED.contains(&text) {
            Err(NameError::Reserved)
        } else {
            Ok(Self(text.to_owned()))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ToolVersion {
    /// Reads a version.
    ///
    /// # Errors
    /// When the text has another form.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let formed =
            (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if formed { Ok(Self(text.to_owned())) } else { Err(NameError::Version) }
    }

    /// The version.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_form {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    };
}

text_form!(ToolName);
text_form!(ToolVersion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_safe_routing_keys() {
        let check = |text: &str, expected: Result<(), NameError>| {
            assert_eq!(ToolName::parse(text).map(|_| ()), expected, "{text:?}");
        };
        check("tickets.create", Ok(()));
        check("a", Ok(()));
        check("0-1_2.3", Ok(()));
        check(&"a".repeat(64), Ok(()));
        check(&"a".repeat(65), Err(NameError::Tool));
        check("", Err(NameError::Tool));
        check(".a", Err(NameError::Tool));
        check("a-", Err(NameError::Tool));
        check("Tickets", Err(NameError::Tool));
        check("a b", Err(NameError::Tool));
        check("a#", Err(NameError::Tool));
        check("é", Err(NameError::Tool));
        check("dead", Err(NameError::Reserved));
        check("results", Err(NameError::Reserved));
        check("operations", Err(NameError::Reserved));
        check("dead.letters", Ok(()));
    }

    #[test]
    fn versions_are_one_visible_word() {
        let check = |text: &str, good: bool| {
            assert_eq!(ToolVersion::parse(text).is_ok(), good, "{text:?}");
        };
        check("2026-08-19", true);
        check("1.0", true);
        check("~", true);
        check(&"9".repeat(64), true);
        check(&"9".repeat(65), false);
        check("", false);
        check("1 0", false);
        check("1\n", false);
        check("vé", false);
    }
}
