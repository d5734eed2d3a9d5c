//! Were these the parameters? The digest of what is material in a request.
//!
//! The hashed text is one canonical object with the members `tool`, `tool_version`, `tenant` and
//! one member for each material place, named by its JSON Pointer (empty, or beginning with a
//! slash, so that it can never be one of the first three). What is absent has no member: absent
//! and `null` differ.
//!
//! Absent on purpose: the operation key, trace ids, retry counters, times, the model, the
//! approval. A retry carries other ones and is still the same request.

mod material;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::canonical::{CANON_VERSION, NumberRule, canonical};
use super::json::Json;
use super::pointer::Pointer;

/// A change that makes two texts the same request. None applies unless the contract names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextRule {
    /// Without tab, line feed, carriage return and space at both ends; no other white space.
    Trim,
    /// A-Z as a-z; no other letter.
    Lowercase,
    /// Unicode normalisation form C.
    Nfc,
}

/// What is material in a tool's arguments, and when two values are the same. A contract fixes it
/// for a tool version, for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FingerprintRule {
    /// The places that are compared. The root compares everything.
    pub fields: Vec<Pointer>,
    /// What the omission of a place means. A default is as material as a field: a contract that
    /// says what its omission means compares that place, inside a field or not.
    ///
    /// A default inside a field fills in a member of an object that is there; it never makes the
    /// object: `{}` and `{"a": {"b": 1}}` are the same under `fields: [/a/b], defaults: {/a/b: 1}`,
    /// but not under `fields: [/a]`, unless `/a` has a default too. It never adds to an array.
    /// Defaults apply from the outside in, so that an object that is itself a default counts as if
    /// it had been sent.
    pub defaults: BTreeMap<Pointer, Json>,
    /// Changes at places in or at the material ones, in the order given; they apply to defaults
    /// too, and leave alone what is no string.
    pub text: BTreeMap<Pointer, Vec<TextRule>>,
    /// When two numbers are the same.
    pub numbers: NumberRule,
}

/// The digest of a request: `sha256:<canon version>:<64 hexadecimal digits>`. Safe to log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(String);

/// A text that is no fingerprint of a canon version this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a fingerprint is sha256:<canon version>:<64 lower-case hexadecimal digits>, of a canon version up to {CANON_VERSION}"
)]
pub struct FingerprintError;

/// A request's fingerprint, and what tells an operator where two requests differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Material {
    /// The digest of the whole.
    pub fingerprint: Fingerprint,
    /// For each material place that is there, by its pointer's text, the SHA-256 of place and
    /// value. A value that is easy to guess can be guessed from it: for operators only.
    pub digests: BTreeMap<String, String>,
}

/// Computes what identifies a request. `arguments` are the validated arguments as sent.
#[must_use]
pub fn material(
    tool: &str,
    tool_version: &str,
    tenant: &str,
    arguments: &Json,
    rule: &FingerprintRule,
) -> Material {
    let values = material::values(arguments, rule);
    let digests = values
        .iter()
        .map(|(place, value)| (place.clone(), place_digest(place, value, rule)))
        .collect();
    let identity = [("tool", tool), ("tool_version", tool_version), ("tenant", tenant)];
    let mut members: Vec<(String, Json)> = Vec::new();
    members.extend(identity.map(|(name, text)| (name.to_owned(), Json::String(text.to_owned()))));
    members.extend(values);
    let digest = hex_digest(&canonical(&Json::Object(members), rule.numbers));
    Material { fingerprint: Fingerprint(format!("sha256:{CANON_VERSION}:{digest}")), digests }
}

/// What makes two operations twins: the same tenant, environment, tool and material arguments,
/// whatever their keys and versions. `digests` are [`Material::digests`].
#[must_use]
pub fn twin_digest(
    tenant: &str,
    environment: &str,
    tool: &str,
    digests: &BTreeMap<String, String>,
) -> String {
    let text = |text: &str| Json::String(text.to_owned());
    let places = digests.iter().map(|(place, digest)| (place.clone(), text(digest))).collect();
    let identity = [("tenant", tenant), ("environment", environment), ("tool", tool)];
    let mut members: Vec<(String, Json)> =
        identity.map(|(name, value)| (name.to_owned(), text(value))).into();
    members.push(("material".to_owned(), Json::Object(places)));
    let digest = hex_digest(&canonical(&Json::Object(members), NumberRule::Exact));
    format!("sha256:{CANON_VERSION}:{digest}")
}

/// The pointers whose values differ, or are there on one side only; in order.
#[must_use]
pub fn differing(
    stored: &BTreeMap<String, String>,
    incoming: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut places: Vec<&String> = stored.keys().chain(incoming.keys()).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().filter(|place| stored.get(*place) != incoming.get(*place)).cloned().collect()
}

impl FingerprintRule {
    /// The material places: the fields, and the places with a default outside every field.
    #[must_use]
    pub fn places(&self) -> Vec<&Pointer> {
        let outside =
            |place: &&Pointer| !self.fields.iter().any(|field| place.within(field).is_some());
        let mut places: Vec<&Pointer> =
            self.fields.iter().chain(self.defaults.keys().filter(outside)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The value that a request has at `place`, material or not: sent, or meant by its omission.
    /// `None`: none.
    #[must_use]
    pub fn value_at(&self, arguments: &Json, place: &Pointer) -> Option<Json> {
        material::value_at(arguments, place, self)
    }

    /// `value` in the form in which [`FingerprintRule::value_at`] gives it.
    #[must_use]
    pub fn same_text(&self, value: &Json, place: &Pointer) -> Json {
        material::same_text(value.clone(), place, self)
    }

    /// Text rules that can never apply, because their place is not material: a mistake in a
    /// contract.
    #[must_use]
    pub fn idle_text(&self) -> Vec<&Pointer> {
        let places = self.places();
        self.text
            .keys()
            .filter(|text| !places.iter().any(|place| text.within(place).is_some()))
            .collect()
    }
}

impl Fingerprint {
    /// Reads a stored fingerprint.
    ///
    /// # Errors
    /// When the text has another form, or a canon version that this program does not know: it was
    /// written by a newer one, and nothing can be said about equality.
    pub fn parse(text: &str) -> Result<Self, FingerprintError> {
        let (version, digest) = text
            .strip_prefix("sha256:")
            .and_then(|rest| rest.split_once(':'))
            .ok_or(FingerprintError)?;
        let known = (1..=CANON_VERSION).any(|known| known.to_string() == version);
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if known && digest.len() == 64 && digest.bytes().all(is_hex) {
            Ok(Self(text.to_owned()))
        } else {
            Err(FingerprintError)
        }
    }

    /// The stored text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The place is inside the hashed text, so that equal values at two places have two digests.
fn place_digest(place: &str, value: &Json, rule: &FingerprintRule) -> String {
    hex_digest(&canonical(&Json::Object(vec![(place.to_owned(), value.clone())]), rule.numbers))
}

fn hex_digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
