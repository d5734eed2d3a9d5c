//! Sections that this release reads but does not carry out.

use crate::domain::pointer::Pointer;

use super::Contract;

/// A section that a contract relies on and this release does not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The section.
    pub pointer: Pointer,
    /// What would be missing, in a sentence.
    pub sentence: &'static str,
}

impl Contract {
    /// The sections that this release does not carry out although the contract relies on them. A
    /// tool with any must not be served: its effects would lack what the contract promises.
    #[must_use]
    pub fn unsupported(&self) -> Vec<Unsupported> {
        let downstream = self.downstream.as_ref();
        let http = self.http();
        let sections: [(&[&str], bool, &'static str); 11] = [
            (
                &["downstream", "lookup"],
                downstream.is_some_and(|d| d.lookup.is_some()),
                "this release looks nothing up: an operation that may have been sent would end unknown although the contract names a way to find out",
            ),
            (
                &["downstream", "poll"],
                downstream.is_some_and(|d| d.poll.is_some()),
                "this release follows no provider jobs",
            ),
            (
                &["downstream", "http", "accepted"],
                http.is_some_and(|http| !http.accepted.is_empty()),
                "this release follows no provider jobs, so an accepting answer could never be settled",
            ),
            (
                &["downstream", "http", "job"],
                http.is_some_and(|http| http.job.is_some()),
                "this release follows no provider jobs",
            ),
            (
                &["authorization"],
                self.authorization.is_some(),
                "this release asks no policy before it sends: every submission would be allowed",
            ),
            (
                &["approval"],
                self.approval.is_some(),
                "this release waits for no approval: requests would be sent without one",
            ),
            (
                &["preconditions"],
                self.preconditions.is_some(),
                "this release asks no preconditions before it sends",
            ),
            (
                &["postcondition"],
                self.postcondition.is_some(),
                "this release asks no postcondition after the effect",
            ),
            (
                &["twins", "hold"],
                self.twins.stated && self.twins.hold,
                "this release holds no twins: the same call under a new key would be sent",
            ),
            (&["sensitive"], self.sensitive, "this release does not encrypt payloads at rest"),
            (
                &["webhook"],
                self.webhook.is_some(),
                "this release takes no provider events, so nothing would be settled by them",
            ),
        ];
        sections
            .into_iter()
            .filter(|(_, used, _)| *used)
            .map(|(tokens, _, sentence)| {
                let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
                Unsupported { pointer: Pointer::from(tokens), sentence }
            })
            .collect()
    }
}
