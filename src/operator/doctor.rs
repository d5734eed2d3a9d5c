//! `oncebox doctor`: looks at everything oncebox relies on, changes nothing, says what to fix.

mod broker;
mod database;
mod registry;

use std::collections::BTreeSet;

use serde_json::json;

use super::Context;
use super::failure::Failure;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    /// The first if its condition holds, else the second, and so on; else fine.
    fn first(conditions: &[(Self, bool)]) -> Self {
        conditions.iter().find(|(_, holds)| *holds).map_or(Self::Ok, |(verdict, _)| *verdict)
    }
}

/// What one check saw.
struct Finding {
    check: &'static str,
    verdict: Verdict,
    seen: String,
    /// Empty when nothing is to be done.
    fix: String,
}

/// The findings as they are made.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Notes what was seen; `fix` is kept only where something is to be done.
    fn note(&mut self, check: &'static str, verdict: Verdict, seen: String, fix: &str) {
        let fix = if verdict == Verdict::Ok { String::new() } else { fix.to_owned() };
        self.0.push(Finding { check, verdict, seen, fix });
    }
}

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let mut findings = Findings::default();
    let usable = database::check(context, &mut findings).await;
    let tools: BTreeSet<String> = registry::check(context, usable, &mut findings).await;
    broker::check(context, &tools, &mut findings).await;
    let row = |finding: &Finding| {
        let Finding { check, verdict, seen, fix } = finding;
        let cells = vec![
            verdict.as_str().to_owned(),
            (*check).to_owned(),
            if fix.is_empty() { seen.clone() } else { format!("{seen}; {fix}") },
        ];
        let object =
            json!({ "check": check, "verdict": verdict.as_str(), "seen": seen, "fix": fix });
        (cells, object)
    };
    let rows: Vec<_> = findings.0.iter().map(row).collect();
    context.output.rows(&["verdict", "check", "what was seen, and what to do"], &rows)?;
    let failed = findings.0.iter().any(|finding| finding.verdict == Verdict::Fail);
    if failed { Err(Failure::Told) } else { Ok(()) }
}
