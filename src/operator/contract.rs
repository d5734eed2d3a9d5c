//! `oncebox contract`

mod activate;
mod check;
mod describe;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Context;
use super::failure::{Failure, say, seen_enough};
use crate::config::Needs;
use crate::contract_file::{LoadedContract, load_all};
use check::CheckFlags;
use describe::DescribeFlags;

/// Checks, describes and activates contract files.
#[derive(Debug, Subcommand)]
pub(super) enum ContractVerb {
    Check(CheckFlags),
    Describe(DescribeFlags),
    /// Register contract files, and make their versions current
    ///
    /// Submissions that name no version get the current one. A registered version never changes:
    /// a file whose material part differs from it is refused, and needs a new version.
    #[command(after_help = "Example:\n  oncebox contract activate contracts/tickets.create.yaml")]
    Activate(Files),
}

/// Contract files.
#[derive(Args, Debug)]
pub(super) struct Files {
    /// Contract files, or directories of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl ContractVerb {
    pub(super) fn needs(&self) -> Needs {
        let database = match self {
            Self::Check(flags) => flags.needs_database(),
            Self::Describe(_) => false,
            Self::Activate(_) => true,
        };
        Needs { database, ..Needs::default() }
    }
}

pub(super) async fn run(context: &Context, verb: ContractVerb) -> Result<(), Failure> {
    match verb {
        ContractVerb::Check(flags) => check::run(context, &flags).await,
        ContractVerb::Describe(flags) => seen_enough(describe::run(context, &flags)),
        ContractVerb::Activate(files) => activate::run(context, &files.files).await,
    }
}

/// Reads the files; what is wrong goes to stderr, one line a problem.
fn read(context: &Context, files: &[PathBuf]) -> (Vec<LoadedContract>, usize) {
    let (contracts, errors) = load_all(files, context.config.worker.margin);
    errors.iter().flat_map(|error| error.lines()).for_each(|line| say(&line));
    (contracts, errors.len())
}

/// Refuses files in which nothing was found: an empty directory must not look like a success.
fn some(read: &(Vec<LoadedContract>, usize)) -> Result<(), Failure> {
    if read.0.is_empty() && read.1 == 0 {
        return Err(Failure::usage(
            "there is no contract file in what was named; name .yaml or .yml files, or directories of them",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_is_a_usage_error() {
        let refused = some(&(Vec::new(), 0)).unwrap_err();
        assert_eq!(refused.code(), 2);
        // What was wrong has been said.
        assert!(some(&(Vec::new(), 1)).is_ok());
    }
}
