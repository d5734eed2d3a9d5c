//! `oncebox contract describe`

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::read;
use crate::domain::contract::Contract;
use crate::domain::contract::describe::{Format, describe};
use crate::operator::Context;
use crate::operator::failure::Failure;

/// Print what people and models need to know about tools, and the tool operation_status
///
/// The form is always that of --format; --json changes nothing.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox contract describe contracts/tickets.create.yaml\n  oncebox contract describe contracts --format mcp\n  oncebox contract describe --format schema"
)]
pub(in crate::operator) struct DescribeFlags {
    /// Contract files, or directories of them; not needed for the format schema
    #[arg(required_unless_present = "format", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// For people, for a model's API, for MCP, or the JSON Schema of contract files
    #[arg(long, default_value = "markdown", value_parser = PossibleValuesParser::new(Format::ALL.map(Format::as_str)).map(|word| format(&word)))]
    format: Format,
}

fn format(word: &str) -> Format {
    Format::ALL.into_iter().find(|format| format.as_str() == word).unwrap_or(Format::Markdown)
}

pub(super) fn run(context: &Context, flags: &DescribeFlags) -> Result<(), Failure> {
    if flags.files.is_empty() && flags.format != Format::Schema {
        return Err(Failure::usage(
            "contract describe needs a FILE; only the format schema does not",
        ));
    }
    let (contracts, bad) = read(context, &flags.files);
    if bad > 0 {
        return Err(Failure::Told);
    }
    let contracts: Vec<&Contract> = contracts.iter().map(|loaded| &loaded.contract).collect();
    let text = describe(&contracts, flags.format)
        .map_err(|error| Failure::failed(format!("cannot be described together: {error}")))?;
    Ok(context.output.line(text.trim_end_matches('\n'))?)
}
