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
        let sections: [(&[&str], bool, &'static str); 2] = [
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
