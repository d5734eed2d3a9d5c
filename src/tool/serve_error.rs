//! Why a tool is not served.

use thiserror::Error;

use super::permission::UnknownAuthorizer;
use crate::domain::contract::{ToolName, ToolVersion, Unsupported};

/// Why a tool is not served. The others are not concerned.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The same version twice.
    #[error("{tool} {version} is there twice; give one of them another version")]
    Twice {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
    },
    /// The contract relies on sections that this release does not carry out.
    #[error("{tool} {version} relies on what this release does not carry out: {}", sentences(.sections))]
    Unsupported {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
        /// The sections.
        sections: Vec<Unsupported>,
    },
    /// The effect adds or is irreversible, nothing can find out about it, and not every request waits
    /// for an approval ([`kept_manual`](crate::domain::contract::Contract::kept_manual)).
    #[error("{tool} {version} is not served: {why}")]
    KeptManual {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
        /// Why, and what to do.
        why: String,
    },
    /// The contract lets an authorizer decide that this process does not have.
    #[error(
        "{tool} {version} cannot be served here: {missing}; register it or serve the tool elsewhere"
    )]
    NoAuthorizer {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
        /// The authorizer.
        missing: UnknownAuthorizer,
    },
    /// The contract describes another kind of tool.
    #[error("{tool} {version} cannot be served so: {problem}")]
    OtherKind {
        /// The tool.
        tool: ToolName,
        /// Its version.
        version: ToolVersion,
        /// What does not fit.
        problem: &'static str,
    },
}

fn sentences(sections: &[Unsupported]) -> String {
    let sentences =
        sections.iter().map(|section| format!("{}: {}", section.pointer.brief(), section.sentence));
    sentences.collect::<Vec<_>>().join("; ")
}
