//! `oncebox contract check`

mod sheet;
mod trace;

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
/// With --trace, one real operation instead: its record and its transitions are read from the
/// database, each is marked as proposed, validated, claimed, sent, committed, acknowledged, replayed
/// or reconciled, and what does not fit together is flagged: applied without a receipt, a second
/// send without proof, an applied operation undone, transitions that are missing.
///
/// Exit code 1 when a file cannot be read as a contract or no worker would serve it: it has an error,
/// or its effect adds or is irreversible, cannot be found out about, and not every request waits for
/// an approval. Verdicts and red flags of a worksheet alone leave it 0; with --json, programs may be
/// stricter. A red flag of a trace is 1.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox contract check contracts/*.yaml\n  oncebox contract check contracts --json\n  oncebox contract check --trace acme:production:run_827:record_issue"
)]
pub(in crate::operator) struct CheckFlags {
    /// Contract files, or directories of them
    #[arg(required_unless_present = "trace", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// An operation's id, or its key tenant:environment:workflow_id:step_id: review its trace
    #[arg(long, value_name = "KEY", conflicts_with = "files")]
    trace: Option<String>,
}

impl CheckFlags {
    /// Files are read without a database.
    pub(super) fn needs_database(&self) -> bool {
        self.trace.is_some()
    }
}

pub(super) async fn run(context: &Context, flags: &CheckFlags) -> Result<(), Failure> {
    if let Some(operation) = &flags.trace {
        return trace::run(context, operation).await;
    }
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
