//! How a tool's effect is made over HTTP, and what the answers prove.

use std::time::Duration;

use crate::domain::pointer::Pointer;

use super::template::{BodyTemplate, TextTemplate, UrlTemplate};

/// The service that makes the effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Downstream {
    /// The request that makes the effect; `None` for a tool written in Rust, whose contract may
    /// still say what its downstream remembers.
    pub http: Option<HttpRequest>,
    /// What the downstream remembers of a key; `None`: it does not deduplicate.
    pub idempotency: Option<Idempotency>,
    /// How to find an effect.
    pub lookup: Option<Lookup>,
    /// How to follow a provider's job.
    pub poll: Option<Poll>,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// PATCH
    Patch,
    /// DELETE
    Delete,
}

/// The request that makes the effect, and what each status proves. A status in no list is
/// ambiguous; 401 and 403 can be in none, they are the deployment's own fault.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The address.
    pub url: UrlTemplate,
    /// Header fields in the file's order, names as written, each name once.
    pub headers: Vec<(String, TextTemplate)>,
    /// The body; `None` for none.
    pub body: Option<BodyTemplate>,
    /// From the first byte to the last byte of the answer.
    pub timeout: Duration,
    /// Done, proved by the receipt.
    pub applied: Vec<u16>,
    /// A provider's job has it.
    pub accepted: Vec<u16>,
    /// Done before; counts on a re-send only.
    pub already: Vec<u16>,
    /// Certainly not done, and never will be.
    pub refused: Vec<u16>,
    /// Certainly not done, for now.
    pub not_now: Vec<u16>,
    /// Where the answer holds the effect's reference.
    pub receipt: Option<Pointer>,
    /// What of the answer is kept for replays.
    pub response: Vec<Pointer>,
    /// Where an accepting answer names the job.
    pub job: Option<Pointer>,
}

/// A request that asks and changes nothing. Asking twice is always allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpCall {
    /// The method.
    pub method: Method,
    /// The address.
    pub url: UrlTemplate,
    /// Header fields.
    pub headers: Vec<(String, TextTemplate)>,
    /// The body; `None` for none.
    pub body: Option<BodyTemplate>,
    /// From the first byte to the last byte of the answer.
    pub timeout: Duration,
}

/// What the downstream remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// How long it remembers a key, from its first use.
    pub window: Duration,
}

/// How to find an effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookup {
    /// The question over HTTP; `None`: the tool's own code answers
    /// ([`Tool::lookup`](crate::tool::Tool::lookup)).
    pub http: Option<LookupRequest>,
    /// Whether "absent" is the truth, and not a cache's or a replica's opinion.
    pub authoritative: bool,
    /// How long an effect may be invisible.
    pub visible_after: Duration,
    /// What to do when it is not there.
    pub when_absent: AbsentRule,
}

/// A look-up over HTTP. A status in neither list tells nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupRequest {
    /// The request.
    pub call: HttpCall,
    /// The statuses that mean: it is there. Believed with the receipt only.
    pub found: Vec<u16>,
    /// The statuses that mean: it is not there.
    pub absent: Vec<u16>,
    /// Where the answer holds the effect's reference.
    pub receipt: Pointer,
    /// What of the answer is kept for replays.
    pub response: Vec<Pointer>,
}

/// What to do when a look-up finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentRule {
    /// Send again.
    Resend,
    /// Ask an operator.
    Operator,
}

/// How to follow a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Poll {
    /// The question over HTTP; `None`: the tool's own code answers
    /// ([`Tool::poll`](crate::tool::Tool::poll)).
    pub http: Option<PollRequest>,
    /// How often.
    pub every: Duration,
    /// How long, from the answer that named the job.
    pub give_up: Duration,
}

/// A poll over HTTP. A success in neither list means that the job has not ended; any other status
/// tells nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct PollRequest {
    /// The request; `{job}` is the job's id.
    pub call: HttpCall,
    /// Statuses by which the job is done. Believed with the receipt only.
    pub applied: Vec<u16>,
    /// Statuses by which it ended without an effect.
    pub refused: Vec<u16>,
    /// Where the answer holds the effect's reference; as in the effect's own answer unless it says
    /// otherwise. `None` for a read: the operation's own id stands for it.
    pub receipt: Option<Pointer>,
    /// What of the answer is kept for replays.
    pub response: Vec<Pointer>,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 6] =
        [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// The method's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Whether a request body has a meaning (RFC 9110, section 9.3).
    #[must_use]
    pub fn may_have_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Head | Self::Delete => false,
        }
    }
}

impl HttpRequest {
    /// The status lists with their names in the file.
    #[must_use]
    pub fn status_lists(&self) -> [(&'static str, &[u16]); 5] {
        [
            ("applied", self.applied.as_slice()),
            ("accepted", self.accepted.as_slice()),
            ("already", self.already.as_slice()),
            ("refused", self.refused.as_slice()),
            ("not_now", self.not_now.as_slice()),
        ]
    }
}
