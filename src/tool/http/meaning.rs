//! What a status means under a contract.

use hyper::StatusCode;

use crate::domain::contract::HttpRequest;

/// What a status means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Applied,
    Accepted,
    Already,
    Refused,
    NotNow,
    Denied,
    Redirect,
    Unlisted,
}

impl Meaning {
    /// The contract's lists speak first; then the statuses that mean the same everywhere.
    pub(super) fn of(status: StatusCode, http: &HttpRequest) -> Self {
        let code = status.as_u16();
        let lists = [
            (&http.applied, Self::Applied),
            (&http.accepted, Self::Accepted),
            (&http.already, Self::Already),
            (&http.refused, Self::Refused),
            (&http.not_now, Self::NotNow),
        ];
        let listed = lists.into_iter().find(|(list, _)| list.contains(&code));
        match (listed, code) {
            (Some((_, meaning)), _) => meaning,
            (None, 401 | 403) => Self::Denied,
            (None, 300..=399) => Self::Redirect,
            (None, _) => Self::Unlisted,
        }
    }

    /// Whether the answer would settle something, if it is read to its end. What cannot be told
    /// from the status does not get clearer by the body.
    pub(super) fn is_definite(self) -> bool {
        match self {
            Self::Applied
            | Self::Accepted
            | Self::Already
            | Self::Refused
            | Self::NotNow
            | Self::Denied => true,
            Self::Redirect | Self::Unlisted => false,
        }
    }
}
