//! What a reviewer would ask about a contract that can be read.
//!
//! A red flag is a gap in the design, not proof of a second effect. Errors are relations that do
//! not hold and sections that this release does not carry out: such a tool is not served.

mod flags;
mod notes;

use std::time::Duration;

use crate::domain::pointer::Pointer;

use super::Contract;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The tool is not served.
    Error,
    /// A gap that a reviewer should have answered before the tool is automated.
    RedFlag,
    /// Good to know.
    Note,
}

/// One thing to know about a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// Where.
    pub pointer: Pointer,
    /// What, in a sentence.
    pub message: String,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::RedFlag => "red flag",
            Self::Note => "note",
        }
    }
}

impl Contract {
    /// Everything to know about the contract, the heaviest first. `margin` is what the
    /// deployment's leases and windows carry.
    #[must_use]
    pub fn review(&self, margin: Duration) -> Vec<Finding> {
        let problems = self.problems(margin).into_iter().map(|problem| Finding {
            severity: Severity::Error,
            pointer: problem.pointer,
            message: problem.message,
        });
        let unsupported = self.unsupported().into_iter().map(|section| Finding {
            severity: Severity::Error,
            pointer: section.pointer,
            message: format!("{}; the tool is not served", section.sentence),
        });
        let mut findings: Vec<Finding> = problems.chain(unsupported).collect();
        let mut listed = Listed(&mut findings);
        notes::collect(self, &mut listed);
        flags::collect(self, &mut listed);
        findings.sort_by_key(|finding| finding.severity);
        findings
    }
}

/// Findings as they are found.
struct Listed<'a>(&'a mut Vec<Finding>);

impl Listed<'_> {
    fn flag(&mut self, raised: bool, place: &[&str], message: impl Into<String>) {
        if raised {
            self.push(Severity::RedFlag, place, message.into());
        }
    }

    fn note(&mut self, known: bool, place: &[&str], message: impl Into<String>) {
        if known {
            self.push(Severity::Note, place, message.into());
        }
    }

    fn push(&mut self, severity: Severity, place: &[&str], message: String) {
        let tokens: Vec<String> = place.iter().map(ToString::to_string).collect();
        self.0.push(Finding { severity, pointer: Pointer::from(tokens), message });
    }
}
