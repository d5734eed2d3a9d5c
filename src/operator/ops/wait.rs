//! `oncebox ops wait`

use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep};

use crate::domain::contract::{DurationError, duration_text, parse_duration};
use crate::domain::lifecycle::State;
use crate::domain::outcome::Envelope;
use crate::operator::Context;
use crate::operator::failure::{Failure, say};
use crate::operator::output::Output;
use crate::operator::progress::Progress;
use crate::operator::record;
use crate::store::{self, Loaded, Which};

/// Time between two looks: first short, for an operation that is nearly done, then sparing.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Wait until operations are decided, and print their outcome envelopes
///
/// Decided is everything but pending; unknown counts, because waiting proves nothing about it. Exit
/// code 0 when all were applied, 1 when one was not or the time ran out.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox ops wait acme:prod:run_827:record_issue --timeout 30s --json"
)]
pub(in crate::operator) struct WaitFlags {
    /// The operations, by id or key
    #[arg(required = true)]
    operations: Vec<String>,

    /// How long to wait, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, DurationError> {
    parse_duration(text)
}

pub(super) async fn run(context: &Context, flags: &WaitFlags) -> Result<(), Failure> {
    let all = flags.operations.iter().map(|text| record::which(text));
    let all = all.collect::<Result<Vec<Which>, Failure>>()?;
    let progress = Progress::new(u64::try_from(all.len()).ok(), "operations");
    let until = Instant::now() + flags.timeout;
    let mut link = context.link();
    let mut pause = FIRST_LOOK;
    let mut good = true;
    for which in &all {
        let (loaded, envelope) = loop {
            let seen = link
                .statement(async |connection| {
                    let Some(loaded) = store::look(connection, which).await? else {
                        return Ok(None);
                    };
                    let envelope = record::envelope(connection, &loaded).await?;
                    Ok(Some((loaded, envelope)))
                })
                .await?;
            let (loaded, envelope) = seen.ok_or_else(record::missing)?;
            let now = Instant::now();
            if !loaded.operation.state.is_pending() || now >= until {
                break (loaded, envelope);
            }
            progress.tick();
            sleep(pause.min(until.saturating_duration_since(now))).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        };
        progress.add(1);
        pause = FIRST_LOOK;
        good &= loaded.operation.state == State::Applied;
        tell(context.output, &loaded, &envelope, flags.timeout)?;
    }
    drop(progress);
    if good { Ok(()) } else { Err(Failure::Told) }
}

fn tell(
    output: Output,
    loaded: &Loaded,
    envelope: &Envelope,
    waited: Duration,
) -> Result<(), Failure> {
    let operation = &loaded.operation;
    if operation.state.is_pending() {
        say(&format!("{} is not decided within {}", operation.id, duration_text(waited)));
    }
    let reason = envelope.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let reference = envelope.effect_reference.as_deref().unwrap_or_default();
    let text = format!("{} {}{reason} {reference}", operation.id, record::state_text(operation));
    Ok(output.either(envelope, text.trim_end())?)
}
