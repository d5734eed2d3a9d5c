//! Gathers what the sources say under the names of the settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::nearest::nearest;
use super::secret::file_reference;
use super::settings::{SETTINGS, by_key};
use super::{Sources, Value};

const PREFIX: &str = "ONCEBOX_";

/// Whether a name in the environment is meant for oncebox.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX) || SETTINGS.iter().any(|setting| setting.environment == name)
}

/// A value and who said it.
pub(super) struct Found {
    pub(super) value: Value,
    /// Its name at the place where it was set, for messages.
    pub(super) named: String,
    /// Where that was.
    pub(super) source: String,
}

/// What is known of the settings so far, and what is wrong with them.
pub(super) struct Reader<'a> {
    pub(super) sources: &'a Sources,
    pub(super) found: BTreeMap<&'static str, Found>,
    pub(super) problems: Vec<String>,
    /// Settings whose values could not be read.
    pub(super) bad: BTreeSet<&'static str>,
}

impl Reader<'_> {
    pub(super) fn gather(&mut self) {
        if let Some((path, text)) = &self.sources.file {
            self.gather_file(path, text);
        }
        for (name, value) in &self.sources.environment {
            let setting = SETTINGS.iter().find(|setting| setting.environment == name);
            match setting {
                // Compose files pass on what is not set as an empty text.
                Some(setting) if value.is_empty() && setting.secret => {}
                Some(setting) => {
                    let found = Found {
                        value: Value::Text(value.clone()),
                        named: name.clone(),
                        source: format!("environment {name}"),
                    };
                    self.found.insert(setting.key, found);
                }
                None if name.starts_with(PREFIX) => {
                    let known = SETTINGS.iter().map(|setting| setting.environment);
                    self.unknown("environment variable", name, known);
                }
                None => {}
            }
        }
        for (key, value) in &self.sources.flags {
            match by_key(key) {
                Some(setting) => {
                    let (named, source) = (key.clone(), "flag".to_owned());
                    self.found.insert(setting.key, Found { value: value.clone(), named, source });
                }
                None => self.unknown("setting", key, SETTINGS.iter().map(|setting| setting.key)),
            }
        }
    }

    fn gather_file(&mut self, path: &Path, text: &str) {
        let file = path.display();
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                // The library's longer form shows the line, which may hold a secret.
                let error: toml::de::Error = error;
                let line = error.span().map_or(1, |span| {
                    text.get(..span.start).map_or(1, |before| before.lines().count().max(1))
                });
                let message = error.message();
                self.problems.push(format!("{file}: line {line} is no TOML: {message}"));
                return;
            }
        };
        for (name, value) in flat(table) {
            let Some(setting) = by_key(&name) else {
                let known = SETTINGS.iter().map(|setting| setting.key);
                self.unknown(&format!("{file}: setting"), &name, known);
                continue;
            };
            match written(value) {
                Some(value) => {
                    let found =
                        Found { value, named: format!("{file}: {name}"), source: file.to_string() };
                    self.found.insert(setting.key, found);
                }
                None => self.problems.push(format!(
                    "{file}: {name} must be a text, a whole number, true, false, or a list of texts"
                )),
            }
        }
    }

    fn unknown(&mut self, what: &str, name: &str, known: impl Iterator<Item = &'static str>) {
        let hint = match nearest(name, known) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "`oncebox config` lists the names that there are".to_owned(),
        };
        self.problems.push(format!("{what} {name} is unknown; {hint}"));
    }

    /// Puts a file's text in the place of a secret that refers to it.
    pub(super) fn resolve_files(&mut self) {
        let read = self.sources.read_secret_file;
        for setting in SETTINGS.iter().filter(|setting| setting.secret) {
            let Some(found) = self.found.get_mut(setting.key) else { continue };
            let Value::Text(text) = &found.value else { continue };
            let Some(path) = file_reference(text) else { continue };
            match read(path) {
                Ok(text) => {
                    found.source = format!("{}, file {}", found.source, path.display());
                    found.value = Value::Text(text.trim_end().to_owned());
                }
                Err(error) => {
                    let (named, path) = (&found.named, path.display());
                    self.problems
                        .push(format!("{named} refers to {path}, which cannot be read: {error}"));
                    self.found.remove(setting.key);
                    self.bad.insert(setting.key);
                }
            }
        }
    }
}

/// The settings of a table and the tables in it, under dotted names.
fn flat(table: toml::Table) -> Vec<(String, toml::Value)> {
    let mut all = Vec::new();
    for (name, value) in table {
        match value {
            toml::Value::Table(inner) => {
                let inner = flat(inner).into_iter();
                all.extend(inner.map(|(rest, value)| (format!("{name}.{rest}"), value)));
            }
            other => all.push((name, other)),
        }
    }
    all
}

fn written(value: toml::Value) -> Option<Value> {
    match value {
        toml::Value::String(text) => Some(Value::Text(text)),
        toml::Value::Integer(number) => Some(Value::Text(number.to_string())),
        toml::Value::Boolean(flag) => Some(Value::Text(flag.to_string())),
        toml::Value::Array(items) => {
            let texts = items.into_iter().map(|item| match item {
                toml::Value::String(text) => Some(text),
                _ => None,
            });
            texts.collect::<Option<Vec<_>>>().map(Value::List)
        }
        _ => None,
    }
}
