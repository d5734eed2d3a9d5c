//! `oncebox contract check`

mod sheet;

use std::path::PathBuf;

use clap::Args;

use super::{read, some};
use crate::operator::Context;
use crate::operator::failure::Failure;

/// Fill in the review worksheet of contract files, or review one operation's trace
///
/// For each contract: ten questions with what it answers to each, red flags, notes and errors, the
/// three questions of a queue contract, and one verdict: automate, automate with approval, or keep
/// manual. A red flag is a gap that a reviewer should have answered first. docs/reviewing-a-tool.md
/// explains the worksheet.
///
/// Exit code 1 when a file cannot be read as a contract, has an error, or is to be kept manual and
/// has no approval section that covers every request: such a tool is not served. Red flags alone
/// leave it 0; with --json, programs may be stricter.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox contract check contracts/*.yaml\n  oncebox contract check contracts --json"
)]
pub(in crate::operator) struct CheckFlags {
    /// Contract files, or directories of them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(context: &Context, flags: &CheckFlags) -> Result<(), Failure> {
    let found = read(context, &flags.files);
    some(&found)?;
    let (contracts, mut bad) = found;
    for loaded in &contracts {
        let sheet = loaded.contract.worksheet(context.config.worker.margin);
        bad += usize::from(!sheet.passes());
        context.output.either(&sheet::object(loaded, &sheet), &sheet::page(loaded, &sheet))?;
    }
    if bad > 0 { Err(Failure::Told) } else { Ok(()) }
}
