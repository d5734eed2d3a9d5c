//! The table of what happened, the verdict, and where to look further.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::Fault;
use crate::books::{Books, Record};
use crate::deployment::{Control, Deployment};
use crate::stories::Story;
use crate::submitting::Sent;
use crate::verdict::Check;

/// Columns of the first table: every status that an operation can end with.
const STATUSES: [&str; 5] = ["applied", "unknown", "failed_permanent", "rejected", "pending"];

/// How much of what broke a promise is shown.
const SHOWN: usize = 5;

/// Prints everything.
pub(crate) fn print(
    deployment: &Deployment,
    books: &Books,
    sent: &Sent,
    stories: &[Story],
    checks: &[Check],
    took: Duration,
) -> Result<(), Fault> {
    let mut text = String::from("\n");
    outcomes(&mut text, &books.records)?;
    text.push('\n');
    for (what, count) in counts(books, sent) {
        writeln!(text, "  {what:<62}{count:>9}")?;
    }
    writeln!(text, "\n  endings with a name")?;
    for story in stories {
        writeln!(text, "  {}", story.what)?;
        for line in &story.lines {
            writeln!(text, "      {line}")?;
        }
    }
    text.push('\n');
    for check in checks {
        let mark = if check.held() { '✓' } else { '✗' };
        writeln!(text, "  {mark} {}", check.promise)?;
        for broken in check.broken.iter().take(SHOWN) {
            writeln!(text, "      {broken}")?;
        }
        if check.broken.len() > SHOWN {
            writeln!(text, "      and {} more", check.broken.len() - SHOWN)?;
        }
    }
    let held = checks.iter().all(Check::held);
    let verdict = if held { "every promise held" } else { "A PROMISE WAS BROKEN" };
    writeln!(text, "\nverdict: {verdict} ({} s)\n", took.as_secs())?;
    further(&mut text, deployment)?;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

fn outcomes(text: &mut String, records: &[Record]) -> std::fmt::Result {
    let tools: BTreeSet<&str> = records.iter().map(|record| record.tool.as_str()).collect();
    write!(text, "  {:<16}", "operations")?;
    for status in STATUSES {
        write!(text, "{status:>width$}", width = width(status))?;
    }
    writeln!(text, "{:>8}", "all")?;
    for tool in tools {
        let of_tool: Vec<&Record> = records.iter().filter(|record| record.tool == tool).collect();
        write!(text, "  {tool:<16}")?;
        for status in STATUSES {
            let count = of_tool.iter().filter(|record| record.status == status).count();
            write!(text, "{count:>width$}", width = width(status))?;
        }
        writeln!(text, "{:>8}", of_tool.len())?;
    }
    Ok(())
}

fn width(title: &str) -> usize {
    title.len().max(5) + 3
}

/// What happened, in numbers.
fn counts(books: &Books, sent: &Sent) -> Vec<(&'static str, u64)> {
    let size = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let transitions = |name| books.transitions.get(name).copied().unwrap_or(0).unsigned_abs();
    let most = books.effects.by_key.values().copied().max().unwrap_or(0);
    let publishers = [Some(&sent.rust), sent.python.as_ref()].into_iter().flatten();
    let (mut again, mut rolled_back) = (size(sent.second.len()), 0);
    for (first, second) in publishers {
        again += second.committed;
        rolled_back += first.rolled_back + second.rolled_back;
    }
    let refused = sent.changed.iter().filter(|envelope| envelope.status == "rejected").count();
    let many = books.records.iter().filter(|record| record.attempts > 1).count();
    let happened: BTreeMap<&str, ()> =
        books.journal.iter().map(|entry| (entry.key.as_str(), ())).collect();
    let unknown = books.records.iter().filter(|record| record.status == "unknown");
    let (made, not_made): (Vec<&Record>, Vec<&Record>) =
        unknown.partition(|record| happened.contains_key(record.at_service()));
    vec![
        ("effects, counted by the service", books.effects.total),
        ("effects, by the service's journal on disk", size(books.journal.len())),
        ("most effects of one key", most),
        ("calls that the service got for them", books.effects.requests),
        ("operations that needed more than one attempt", size(many)),
        ("retries scheduled", transitions("retry_scheduled")),
        ("claims lost with their worker", transitions("lease_lost")),
        ("repeated submissions absorbed", again),
        ("changed requests under a used key refused", size(refused)),
        ("transactions rolled back, with their operation", rolled_back),
        ("unknown, though the effect was made: only the service knows", size(made.len())),
        ("unknown, and no effect was made: only the service knows", size(not_made.len())),
        ("dead letters", books.dead_letters.unsigned_abs()),
    ]
}

fn further(text: &mut String, deployment: &Deployment) -> std::fmt::Result {
    let run = short(&deployment.run);
    let oncebox = short(&deployment.program());
    writeln!(text, "input, answers, logs and the service's journal: {run}")?;
    if !matches!(deployment.control, Control::Given) {
        return writeln!(
            text,
            "to look at the records themselves: `make up`, export what it prints, and `make demo` again: it\n\
             leaves them there and says how to reach them, with {oncebox} ops list --status unknown"
        );
    }
    writeln!(text, "the records stay until the next demo; to look at them:")?;
    // Not the URL: it may hold a password.
    let (_, database) = deployment.database.rsplit_once('/').unwrap_or_default();
    writeln!(text, "  export DATABASE_URL=${{DATABASE_URL%/*}}/{database}")?;
    for verb in
        ["ops list --status unknown", "ops show KEY", "ops resolve --help", "dead list", "--help"]
    {
        writeln!(text, "  {oncebox} {verb}")?;
    }
    Ok(())
}

/// The path as a person in this directory would write it.
fn short(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let below = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
    below.unwrap_or(path).display().to_string()
}
