//! The calls that ask for a ticket.

use std::ops::ControlFlow;

use hyper::StatusCode;

use crate::answers::{Answer, json_answer, plain};
use crate::calls::Call;
use crate::ledger::By;
use crate::service::Service;
use crate::wire::Script;

impl Service {
    /// `GET /tickets?key=K`, `GET /tickets?reference=R` and `GET /tickets/ID`.
    pub(crate) async fn look_up(&self, by: Option<By>, script: &Script) -> Answer {
        let Some(by) = by else {
            return plain(StatusCode::BAD_REQUEST, "expected ?key= or ?reference=");
        };
        let rule = match self.admit(Call::Lookup, by.text(), script).await {
            ControlFlow::Continue(rule) => rule,
            ControlFlow::Break(answer) => return answer,
        };
        let age = self.settings().visible_after;
        let found = self.ledger().ticket(&by, age).map(|effect| effect.answer());
        let answer = match found {
            Some(ticket) => json_answer(StatusCode::OK, &ticket),
            None => plain(StatusCode::NOT_FOUND, "no such ticket"),
        };
        self.spoil(&rule, answer, script).await
    }
}

impl By {
    /// The part of a query that names a ticket.
    pub(crate) fn query(query: &str) -> Option<Self> {
        query.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            match name {
                "key" => percent_decoded(value).map(Self::Key),
                "reference" => percent_decoded(value).map(Self::Reference),
                _ => None,
            }
        })
    }

    /// A receipt as a path segment.
    pub(crate) fn segment(segment: &str) -> Option<Self> {
        percent_decoded(segment).map(Self::Id)
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Key(text) | Self::Reference(text) | Self::Id(text) => text,
        }
    }
}

/// The text of a query value or path segment; `None` when it is no UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}
