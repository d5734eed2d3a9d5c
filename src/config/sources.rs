//! Where settings come from, and the one place that reads the environment and the file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::ConfigErrors;

/// The file that is read when no other is named and it is there.
const DEFAULT_FILE: &str = "oncebox.toml";

/// The directory of contracts that is used when nothing is set and it is there.
const DEFAULT_CONTRACTS: &str = "contracts";

/// A value as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

/// Everything that settings are made of, as plain data.
pub struct Sources {
    /// `oncebox.toml`, with its text.
    pub file: Option<(PathBuf, String)>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Flags: the setting's name, and its value.
    pub flags: Vec<(String, Value)>,
    /// Contract paths for when nothing names any.
    pub default_contracts: Vec<PathBuf>,
    /// Reads the file that a secret refers to.
    pub read_secret_file: fn(&Path) -> std::io::Result<String>,
}

impl Sources {
    /// No source at all: the defaults.
    #[must_use]
    pub fn none() -> Self {
        Self {
            file: None,
            environment: BTreeMap::new(),
            flags: Vec::new(),
            default_contracts: Vec::new(),
            read_secret_file: |path| std::fs::read_to_string(path),
        }
    }

    /// What this process was started with: `file`, or `oncebox.toml` when it is there; the
    /// environment; `flags`.
    ///
    /// # Errors
    /// When the file cannot be read, or a setting in the environment is no UTF-8.
    pub fn of_process(
        file: Option<&Path>,
        flags: Vec<(String, Value)>,
    ) -> Result<Self, ConfigErrors> {
        let mut problems = Vec::new();
        let mut environment = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            // A name that is no UTF-8 is none of ours.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(environment.insert(name, value)),
                Err(_) if super::gather::is_ours(&name) => {
                    problems.push(format!("{name} is not UTF-8; set it to UTF-8 text"));
                }
                Err(_) => {}
            }
        }
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => Some((path.to_owned(), text)),
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                problems.push(format!(
                    "{} cannot be read ({error}); name a readable file with --config",
                    path.display()
                ));
                None
            }
        };
        if !problems.is_empty() {
            return Err(ConfigErrors(problems));
        }
        let contracts = PathBuf::from(DEFAULT_CONTRACTS);
        let default_contracts = if contracts.is_dir() { vec![contracts] } else { Vec::new() };
        Ok(Self { file: text, environment, flags, default_contracts, ..Self::none() })
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets.
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
