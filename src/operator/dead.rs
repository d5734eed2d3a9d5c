//! `oncebox dead`: messages that were parked, byte for byte, and what may be done with them.

mod discard;
mod look;
mod requeue;

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::Context;
use super::arguments::letter_id;
use super::failure::{Failure, seen_enough};
use look::{ListFlags, ShowFlags};
use requeue::RequeueFlags;

/// Looks at parked messages, and deals with them.
#[derive(Debug, Subcommand)]
pub(super) enum DeadVerb {
    List(ListFlags),
    Show(ShowFlags),
    Requeue(RequeueFlags),
    Discard(DiscardFlags),
}

/// Close a letter without publishing anything; its bytes are kept
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox dead discard 0190a6f0-0000-7000-8000-000000000000 --by ann --reason 'a test message'"
)]
pub(super) struct DiscardFlags {
    /// The letter's id, as `dead list` prints it
    #[arg(value_parser = letter_id)]
    letter: Uuid,

    #[command(flatten)]
    decided: Decided,
}

/// Who decided, and why.
#[derive(Args, Debug)]
struct Decided {
    /// Who decided; kept with the letter
    #[arg(long, value_name = "NAME", default_value = "operator")]
    by: String,

    /// Why; kept with the letter
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Decided {
    fn text(&self, what: &str) -> String {
        let why = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        // The column takes 400 characters and no NUL.
        format!("{what} by {}{why}", self.by).replace('\0', "").chars().take(300).collect()
    }
}

pub(super) async fn run(context: &Context, verb: DeadVerb) -> Result<(), Failure> {
    match verb {
        DeadVerb::List(flags) => seen_enough(look::list(context, &flags).await),
        DeadVerb::Show(flags) => seen_enough(look::show(context, &flags).await),
        DeadVerb::Requeue(flags) => requeue::run(context, &flags).await,
        DeadVerb::Discard(flags) => discard::run(context, &flags).await,
    }
}

/// There is no such letter.
fn missing() -> Failure {
    Failure::failed("there is no such dead letter; `oncebox dead list` shows what there is")
}

/// Somebody has dealt with it.
fn closed(resolution: &str) -> Failure {
    Failure::failed(format!("this letter is closed already ({resolution}); nothing was changed"))
}
