//! What the wire layer needs to know of a contract.

use std::time::Duration;

use hyper::StatusCode;

use crate::domain::pointer::Pointer;

/// A contract's `downstream.http`, as far as it speaks of the answer.
#[derive(Debug, Clone)]
pub struct HttpCallSpec {
    /// From the first byte sent to the last byte of the answer; also bounds the write.
    pub timeout: Duration,
    /// Statuses that mean *done*.
    pub applied: Vec<u16>,
    /// Statuses that mean *done before*.
    pub already: Vec<u16>,
    /// Statuses that mean *no, and nothing was done*.
    pub refused: Vec<u16>,
    /// Statuses that mean *nothing was done, for now*.
    pub not_now: Vec<u16>,
    /// Where the receipt stands in the answer. `None` where the effect has no reference of its
    /// own, as when reading.
    pub receipt: Option<Pointer>,
    /// The places to keep for replays.
    pub response: Vec<Pointer>,
    /// A blind tool: every call gets a connection of its own.
    pub fresh_connection: bool,
}

/// What a status means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Applied,
    Already,
    Refused,
    NotNow,
    Denied,
    Redirect,
    Unlisted,
}

impl HttpCallSpec {
    /// The contract's lists speak first; then the statuses that mean the same everywhere.
    pub(super) fn meaning(&self, status: StatusCode) -> Meaning {
        let code = status.as_u16();
        let lists = [
            (&self.applied, Meaning::Applied),
            (&self.already, Meaning::Already),
            (&self.refused, Meaning::Refused),
            (&self.not_now, Meaning::NotNow),
        ];
        let listed = lists.into_iter().find(|(list, _)| list.contains(&code));
        match (listed, code) {
            (Some((_, meaning)), _) => meaning,
            (None, 401 | 403) => Meaning::Denied,
            (None, 300..=399) => Meaning::Redirect,
            (None, _) => Meaning::Unlisted,
        }
    }
}

impl Meaning {
    /// Whether the answer would settle something, if it is read to its end. What cannot be told
    /// from the status does not get clearer by the body.
    pub(super) fn is_definite(self) -> bool {
        match self {
            Self::Applied | Self::Already | Self::Refused | Self::NotNow | Self::Denied => true,
            Self::Redirect | Self::Unlisted => false,
        }
    }
}
