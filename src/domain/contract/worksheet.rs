//! The review worksheet: ten questions, what this contract answers to each, and one decision.
//!
//! Where the answer is the contract's, the evidence names the place in the file; where it is a
//! mechanism of oncebox, what is the same for every tool, it names where that is written and which
//! test breaks it. A red flag is a gap in the design, not proof of a second effect.
//!
//! Absent on purpose: anything that a contract cannot show. Whether the service really honours the
//! key, or really finds an effect, is seen in a trace ([`crate::domain::trace_review`]).

mod answers;
mod evidence;
mod gaps;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::domain::pointer::Pointer;

use super::{Contract, Finding, Judgement, Severity};

pub use answers::Answer;

/// A question of the worksheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// What happens in the world.
    Effect,
    /// What tells two actions apart.
    Identity,
    /// What makes two requests one.
    Sameness,
    /// Where only one can claim it.
    Claim,
    /// What a later caller gets.
    Replay,
    /// What waiting means.
    InFlight,
    /// What not knowing means.
    Unknown,
    /// Who may, at the moment of the send.
    Permission,
    /// When a duplicate is no longer recognised.
    Expiry,
    /// Who has tried to break it.
    Tests,
}

/// How the contract answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// Answered.
    Ok,
    /// Answered, with something to know.
    Note,
    /// A gap, or something that keeps the tool from being served.
    RedFlag,
}

/// Where a piece of evidence comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A place of this contract.
    Contract(Pointer),
    /// oncebox itself, the same for every tool: files of its repository.
    Oncebox {
        /// Where it is written down.
        documented: &'static str,
        /// What would fail without it.
        tested: &'static str,
    },
}

/// Something that answers a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The answer, or a part of it.
    pub text: String,
    /// Whose.
    pub origin: Origin,
}

/// One row of the worksheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The question.
    pub question: Question,
    /// How well it is answered: the worst of the findings.
    pub mark: Mark,
    /// What answers it.
    pub evidence: Vec<Evidence>,
    /// What is missing, wrong, or good to know; the heaviest first.
    pub findings: Vec<Finding>,
}

/// The worksheet of one contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worksheet {
    /// The ten questions in their order.
    pub rows: Vec<Row>,
    /// The three questions of a queue contract.
    pub answers: [Answer; 3],
    /// The decision.
    pub judgement: Judgement,
}

impl Worksheet {
    /// Every finding, the heaviest first.
    #[must_use]
    pub fn findings(&self) -> Vec<(Question, &Finding)> {
        let of = |row: &'_ Row| row.question;
        let mut all: Vec<(Question, &Finding)> = self
            .rows
            .iter()
            .flat_map(|row| row.findings.iter().map(move |finding| (of(row), finding)))
            .collect();
        all.sort_by_key(|(_, finding)| finding.severity);
        all
    }

    /// How many findings weigh this much.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings().iter().filter(|(_, finding)| finding.severity == severity).count()
    }

    /// Whether the tool would be served as it stands: no error, and approvals of every request where
    /// nothing finds out about an effect that adds or is irreversible.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.count(Severity::Error) == 0 && !self.judgement.is_unserved()
    }
}

impl Contract {
    /// Fills in the worksheet. `margin` is what the deployment's leases and windows carry.
    #[must_use]
    pub fn worksheet(&self, margin: Duration) -> Worksheet {
        let judgement = self.verdict();
        let mut findings = self.review(margin);
        gaps::collect(self, &judgement, margin, &mut findings);
        // What happens between effect and acknowledgement has an answer of its own.
        findings.retain(|finding| !finding.pointer.is_root());
        findings.sort_by_key(|finding| finding.severity);
        let rows = Question::ALL.map(|question| {
            let asks = |finding: &&Finding| Question::of(&finding.pointer) == question;
            let findings: Vec<Finding> = findings.iter().filter(asks).cloned().collect();
            let mark = findings.first().map_or(Mark::Ok, |worst| Mark::of_severity(worst.severity));
            Row { question, mark, evidence: evidence::of(self, question, margin), findings }
        });
        Worksheet { rows: rows.into(), answers: answers::of(self), judgement }
    }

    /// Whom an unknown outcome goes to.
    fn person(&self) -> &str {
        self.owner.as_ref().map_or("an operator", |owner| owner.reconciliation.as_str())
    }
}

impl Mark {
    /// What a finding of this weight makes of its row.
    #[must_use]
    pub fn of_severity(severity: Severity) -> Self {
        match severity {
            Severity::Error | Severity::RedFlag => Self::RedFlag,
            Severity::Note => Self::Note,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::RedFlag => "red flag",
        }
    }
}

impl Question {
    /// The questions in their order.
    pub const ALL: [Self; 10] = [
        Self::Effect,
        Self::Identity,
        Self::Sameness,
        Self::Claim,
        Self::Replay,
        Self::InFlight,
        Self::Unknown,
        Self::Permission,
        Self::Expiry,
        Self::Tests,
    ];

    /// The stable id, and the question.
    #[must_use]
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Effect => ("effect", "What business effect occurs?"),
            Self::Identity => ("identity", "What identifies the action?"),
            Self::Sameness => ("sameness", "Which fields define sameness?"),
            Self::Claim => ("claim", "Where is the claim unique?"),
            Self::Replay => ("replay", "What is stored for replay?"),
            Self::InFlight => ("in_flight", "What means in flight?"),
            Self::Unknown => ("unknown", "What means unknown?"),
            Self::Permission => ("permission", "How is permission rechecked?"),
            Self::Expiry => ("expiry", "When can the key expire?"),
            Self::Tests => ("tests", "How is the claim tested?"),
        }
    }

    /// The question that a place of a contract answers.
    #[must_use]
    pub fn of(place: &Pointer) -> Self {
        let tokens: Vec<&str> = place.tokens().iter().map(String::as_str).collect();
        match tokens.as_slice() {
            ["operation_key" | "twins", ..] | ["arguments", "properties", ..] => Self::Identity,
            ["fingerprint" | "arguments", ..] => Self::Sameness,
            ["concurrency", ..] => Self::Claim,
            ["downstream", "http", "receipt" | "response", ..] | ["sensitive", ..] => Self::Replay,
            ["downstream", "http", "accepted" | "job" | "timeout", ..]
            | ["downstream", "poll", ..]
            | ["lease" | "retry" | "results" | "webhook", ..] => Self::InFlight,
            ["downstream", "http", "applied" | "already" | "refused" | "not_now", ..]
            | ["downstream", "idempotency" | "lookup", ..]
            | ["effect_class" | "stale_write" | "owner", ..] => Self::Unknown,
            ["downstream", "http", "headers", ..]
            | ["authorization" | "approval" | "preconditions" | "postcondition", ..] => {
                Self::Permission
            }
            ["retention", ..] => Self::Expiry,
            ["tests", ..] => Self::Tests,
            _ => Self::Effect,
        }
    }
}
