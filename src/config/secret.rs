//! Secrets: the deployment's own, and those that contracts refer to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::domain::contract::template::SecretRef;

/// Below this a secret can be guessed, and with it every key towards a downstream.
const MIN_SECRET_BYTES: usize = 16;

/// Fits the record's column many times over and stays readable in a list.
const MAX_ID_BYTES: usize = 32;

/// What keys towards downstreams are derived with. A record keeps the id of the secret that its
/// key was derived with, so that the current one can change at any time.
#[derive(Clone, PartialEq, Eq)]
pub struct DownstreamSecrets {
    current: (String, String),
    older: BTreeMap<String, String>,
}

impl DownstreamSecrets {
    /// Reads `id:secret` entries that are separated by white space; the first is the current one.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut entries = text.split_whitespace().map(entry);
        let current = entries.next().ok_or("is empty; write id:secret")??;
        let mut older = BTreeMap::new();
        for next in entries {
            let (id, secret) = next?;
            if id == current.0 || older.insert(id.clone(), secret).is_some() {
                return Err(format!("names id {id} twice; give each secret an id of its own"));
            }
        }
        Ok(Self { current, older })
    }

    /// The id of the secret that new keys are derived with.
    #[must_use]
    pub fn current_id(&self) -> &str {
        &self.current.0
    }

    /// The secret that new keys are derived with.
    #[must_use]
    pub fn current(&self) -> &[u8] {
        self.current.1.as_bytes()
    }

    /// The secret of that id, if it is still set.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&[u8]> {
        if id == self.current.0 {
            return Some(self.current());
        }
        self.older.get(id).map(String::as_bytes)
    }

    /// The ids, the current one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.current_id()).chain(self.older.keys().map(String::as_str))
    }
}

fn entry(text: &str) -> Result<(String, String), String> {
    let (id, secret) = text.split_once(':').ok_or("has no id; write id:secret, such as 2026a:…")?;
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if !(1..=MAX_ID_BYTES).contains(&id.len()) || !id.bytes().all(named) {
        return Err("has an id that is not 1 to 32 letters, digits, '_', '.' or '-'".to_owned());
    }
    if secret.len() < MIN_SECRET_BYTES {
        return Err(format!(
            "has a secret under {MIN_SECRET_BYTES} bytes for id {id}; take one from a random generator"
        ));
    }
    Ok((id.to_owned(), secret.to_owned()))
}

impl fmt::Debug for DownstreamSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// The path of a value that is exactly `${file:/path}`.
pub(super) fn file_reference(value: &str) -> Option<&Path> {
    Some(Path::new(value.trim().strip_prefix("${file:")?.strip_suffix('}')?))
}

/// Finds the text of a secret that a contract refers to; `None` when it is not there. One line end
/// after a file's text is not part of the secret.
#[must_use]
pub fn contract_secret(reference: &SecretRef) -> Option<String> {
    match reference {
        #[allow(clippy::disallowed_methods, reason = "config is where the environment is read")]
        SecretRef::Env(name) => std::env::var(name).ok(),
        SecretRef::File(path) => {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.strip_suffix('\n').map_or(&*text, |t| t.trim_end_matches('\r')).to_owned())
        }
    }
}
