//! Contract files: YAML in, checked contracts out, every problem at once.
//!
//! A file is read exactly (module `yaml`), then by the contract's own reader, its relations and the
//! JSON Schema of the form; the last is a second net under the reader, whose messages are better.
//! The text is kept whole, for the registry.
//!
//! Absent on purpose: the registry, secrets, and a verdict on whether this release can serve the
//! tool ([`Contract::unsupported`]).

mod arguments;
mod checked;
mod messages;
mod yaml;

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use thiserror::Error;

use crate::domain::contract::{CONTRACT_SCHEMA, Contract, Problem};
use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

pub use arguments::{ArgumentProblem, ArgumentsCheck, MAX_PROBLEMS, SchemaError};
pub use checked::{CheckedContract, Examined};

/// Longest contract, in bytes: some hundred times what a long one needs, and small enough that the
/// registry keeps every version whole.
pub const MAX_CONTRACT_BYTES: usize = 256 * 1024;

/// A contract with the text that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedContract {
    /// The contract.
    pub contract: Contract,
    /// The file's text, byte for byte.
    pub text: String,
    /// The file.
    pub path: PathBuf,
}

/// What a directory holds: a bad file keeps its own tool out, not the others.
#[derive(Debug, Default)]
pub struct LoadedDir {
    /// The good contracts, in the order of the file names.
    pub contracts: Vec<LoadedContract>,
    /// Why the other files are left out.
    pub errors: Vec<ContractFileError>,
}

/// Why a contract's text was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContractTextError {
    /// Longer than [`MAX_CONTRACT_BYTES`].
    #[error("a contract has at most {MAX_CONTRACT_BYTES} bytes")]
    TooLarge,
    /// Not UTF-8.
    #[error("a contract is UTF-8 text")]
    NotUtf8,
    /// Not the YAML that contracts are written in.
    #[error("line {line}: {message}")]
    Yaml {
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// Everything that is wrong with the contract; never empty.
    #[error("{}", joined(.0))]
    Problems(Vec<Problem>),
}

/// Why a contract file was refused. `Display` has one line a problem, `FILE: /pointer: message`.
#[derive(Debug)]
pub struct ContractFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub cause: ContractFileCause,
}

/// What is wrong with a file.
#[derive(Debug, Error)]
pub enum ContractFileCause {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// Its text is no contract.
    #[error(transparent)]
    Text(#[from] ContractTextError),
    /// Another file of the directory has the same tool and version.
    #[error("describes the same tool and version as {}", .0.display())]
    Twice(PathBuf),
}

/// Reads a contract from its text. `margin` is what the deployment's leases and windows carry
/// ([`crate::domain::contract::DEFAULT_MARGIN`]).
///
/// # Errors
/// When the text is no contract that could be served anywhere; everything that is wrong with it.
pub fn read(text: &str, margin: Duration) -> Result<Contract, ContractTextError> {
    if text.len() > MAX_CONTRACT_BYTES {
        return Err(ContractTextError::TooLarge);
    }
    let document = yaml::read(text)?;
    let mut problems = schema_problems(&document);
    let contract = match Contract::from_json(&document) {
        Ok(contract) => {
            let mut related = contract.problems(margin);
            if let Err(error) = ArgumentsCheck::compile(&contract.arguments) {
                related.push(Problem::new(Pointer::root().child("arguments"), error.to_string()));
            }
            problems = merged(related, problems);
            Some(contract)
        }
        Err(read) => {
            problems = merged(read, problems);
            None
        }
    };
    match contract {
        Some(contract) if problems.is_empty() => Ok(contract),
        Some(_) | None => Err(ContractTextError::Problems(problems)),
    }
}

/// Reads a contract file.
///
/// # Errors
/// When the file cannot be read or its text is refused.
pub fn load(path: &Path, margin: Duration) -> Result<LoadedContract, ContractFileError> {
    let refused = |cause| ContractFileError { path: path.to_owned(), cause };
    let text = text_of(path).map_err(refused)?;
    let contract = read(&text, margin).map_err(|error| refused(error.into()))?;
    Ok(LoadedContract { contract, text, path: path.to_owned() })
}

/// Reads every `.yaml` and `.yml` file of a directory, not of those inside it.
///
/// # Errors
/// When the directory itself cannot be read; a bad file is one of [`LoadedDir::errors`].
pub fn load_dir(dir: &Path, margin: Duration) -> Result<LoadedDir, ContractFileError> {
    let unreadable = |error: std::io::Error| ContractFileError {
        path: dir.to_owned(),
        cause: ContractFileCause::Unreadable(error),
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let named = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        if named && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let mut loaded = LoadedDir::default();
    for path in paths {
        match load(&path, margin).and_then(|next| once(&loaded.contracts, next)) {
            Ok(contract) => loaded.contracts.push(contract),
            Err(error) => loaded.errors.push(error),
        }
    }
    Ok(loaded)
}

/// Reads files and directories, in the order given. A bad one keeps only itself out.
#[must_use]
pub fn load_all(
    paths: &[PathBuf],
    margin: Duration,
) -> (Vec<LoadedContract>, Vec<ContractFileError>) {
    let mut all = LoadedDir::default();
    for path in paths {
        let loaded = if path.is_dir() {
            load_dir(path, margin)
        } else {
            load(path, margin).map(|one| LoadedDir { contracts: vec![one], errors: Vec::new() })
        };
        match loaded {
            Ok(dir) => {
                all.errors.extend(dir.errors);
                for next in dir.contracts {
                    match once(&all.contracts, next) {
                        Ok(contract) => all.contracts.push(contract),
                        Err(error) => all.errors.push(error),
                    }
                }
            }
            Err(error) => all.errors.push(error),
        }
    }
    (all.contracts, all.errors)
}

fn text_of(path: &Path) -> Result<String, ContractFileCause> {
    let limit = u64::try_from(MAX_CONTRACT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_CONTRACT_BYTES {
        return Err(ContractTextError::TooLarge.into());
    }
    String::from_utf8(bytes).map_err(|_| ContractTextError::NotUtf8.into())
}

fn once(
    before: &[LoadedContract],
    next: LoadedContract,
) -> Result<LoadedContract, ContractFileError> {
    let same = |other: &&LoadedContract| {
        other.contract.tool == next.contract.tool && other.contract.version == next.contract.version
    };
    match before.iter().find(same) {
        Some(other) => {
            let cause = ContractFileCause::Twice(other.path.clone());
            Err(ContractFileError { path: next.path, cause })
        }
        None => Ok(next),
    }
}

/// What the JSON Schema of the form says. Compiled once: that costs more than all the rest.
fn schema_problems(document: &Json) -> Vec<Problem> {
    static FORM: LazyLock<Result<ArgumentsCheck, String>> = LazyLock::new(|| {
        let schema = serde_json::from_str(CONTRACT_SCHEMA).map_err(|error| error.to_string())?;
        ArgumentsCheck::compile(&schema).map_err(|error| error.to_string())
    });
    let form = match &*FORM {
        Ok(form) => form,
        Err(error) => return vec![Problem::new(Pointer::root(), format!("the form: {error}"))],
    };
    let problems = form.check(document).err().unwrap_or_default();
    problems.into_iter().map(|p| Problem::new(p.pointer, p.message)).collect()
}

/// The reader's problems, and those of the schema at places where the reader saw none.
fn merged(read: Vec<Problem>, schema: Vec<Problem>) -> Vec<Problem> {
    let told = |of_schema: &Problem| {
        let near = |a: &Pointer, b: &Pointer| a.within(b).is_some() || b.within(a).is_some();
        read.iter().any(|of_reader| near(&of_reader.pointer, &of_schema.pointer))
    };
    let untold: Vec<Problem> = schema.into_iter().filter(|problem| !told(problem)).collect();
    let mut all = [read, untold].concat();
    all.sort();
    all.dedup();
    all
}

fn line(problem: &Problem) -> String {
    if problem.pointer.is_root() {
        problem.message.clone()
    } else {
        format!("{}: {}", problem.pointer.brief(), problem.message)
    }
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(line).collect::<Vec<_>>().join("; ")
}

impl ContractFileError {
    /// One line a problem: `FILE: /pointer: message`.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let file = self.path.display();
        match &self.cause {
            ContractFileCause::Text(ContractTextError::Problems(problems)) => {
                problems.iter().map(|problem| format!("{file}: {}", line(problem))).collect()
            }
            ContractFileCause::Unreadable(_)
            | ContractFileCause::Text(_)
            | ContractFileCause::Twice(_) => vec![format!("{file}: {}", self.cause)],
        }
    }
}

impl fmt::Display for ContractFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for ContractFileError {}

#[cfg(test)]
mod tests;
