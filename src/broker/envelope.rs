//! The wire form of an operation message, apart from its meaning, and how one is read.
//!
//! A message names a record and nothing more. What is decided is decided from the body's three
//! members and the record; headers, message id and counters are telemetry and never decide.

use std::fmt;

use lapin::{
    BasicProperties,
    types::{AMQPValue, ShortString},
};
use uuid::Uuid;

use super::header_text;
use crate::domain::json::{self, Json, JsonLimits, JsonProblem};

/// The `type` property of every operation message.
pub const OPERATION_TYPE: &str = "oncebox.operation.v1";
/// The `content_type` property of every message.
pub const CONTENT_TYPE: &str = "application/json";
/// Header that repeats the operation key for people who look at a queue.
pub const KEY_HEADER: &str = "oncebox-operation-key";
/// Header that repeats the tenant for people who look at a queue.
pub const TENANT_HEADER: &str = "oncebox-tenant";
/// Header that carries the W3C trace context.
pub const TRACE_HEADER: &str = "traceparent";

/// The longest body that can be an envelope: a tenant, an id and the longest operation key with
/// every character escaped stay far below. A result event with the longest receipt does too.
pub(super) const MAX_BODY_BYTES: usize = 16 * 1024;
const MAX_TENANT_BYTES: usize = 63;
/// Tenant, environment and two parts of 200 bytes, each percent-encoded, stay below.
const MAX_KEY_BYTES: usize = 2 * 1024;
/// A message as it came in, before anybody knows whether it can be understood.
#[derive(Clone)]
pub struct IncomingMessage {
    /// The tool whose queue it came from.
    pub tool: String,
    /// The bytes, exactly as received.
    pub body: Vec<u8>,
    /// Whether the broker says that it was delivered before: telemetry only.
    pub redelivered: bool,
    pub(super) routing_key: String,
    pub(super) properties: BasicProperties,
}

impl fmt::Debug for IncomingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingMessage")
            .field("tool", &self.tool)
            .field("body_bytes", &self.body.len())
            .field("redelivered", &self.redelivered)
            .finish_non_exhaustive()
    }
}

impl IncomingMessage {
    /// The message id with control characters escaped: telemetry only.
    #[must_use]
    pub fn message_id(&self) -> Option<String> {
        self.properties.message_id().as_ref().map(|id| header_text::printable(id.as_str()))
    }

    /// The routing key with control characters escaped.
    #[must_use]
    pub fn routing_key(&self) -> String {
        header_text::printable(&self.routing_key)
    }

    /// The trace context, when it is a plain ASCII string of a sane length.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        let headers = self.properties.headers().as_ref()?;
        let AMQPValue::LongString(text) = headers.inner().get(TRACE_HEADER)? else { return None };
        let text = std::str::from_utf8(text.as_bytes()).ok()?;
        (text.len() <= 128 && text.bytes().all(|b| b.is_ascii_graphic())).then_some(text)
    }

    /// Properties and headers as JSON that any `json` or `text` column can store, bounded in size.
    #[must_use]
    pub fn headers_json(&self) -> serde_json::Value {
        header_text::describe(&self.properties)
    }

    /// What the message says, if it can be understood.
    ///
    /// # Errors
    /// [`Unreadable`] when the bytes are no envelope. Keep the bytes in `dead_letters`, then
    /// acknowledge; a redelivery would be the same.
    pub fn envelope(&self) -> Result<Envelope, Unreadable> {
        let text = |value: &Option<ShortString>| value.as_ref().map(|v| v.as_str().to_owned());
        read_envelope(
            text(self.properties.kind()).as_deref(),
            text(self.properties.content_type()).as_deref(),
            &self.body,
        )
    }
}

/// What a message says: which record it means.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The record.
    pub operation_id: Uuid,
    /// Must be the record's tenant, or the message is parked as `identity_mismatch`.
    pub tenant: String,
    /// Must be the record's operation key, or the message is parked as `identity_mismatch`.
    pub operation_key: String,
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope").field("operation_id", &self.operation_id).finish_non_exhaustive()
    }
}

/// The bytes are no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be understood: {reason}")]
pub struct Unreadable {
    /// A stable code for `dead_letters`; never a part of the message.
    pub reason: &'static str,
}

const fn unreadable<T>(reason: &'static str) -> Result<T, Unreadable> {
    Err(Unreadable { reason })
}

/// Reads an envelope strictly. Pure.
///
/// An absent type or content type is accepted, because neither says which record is meant; another
/// one than ours is a format that this version does not know. Unknown members are ignored.
///
/// # Errors
/// [`Unreadable`] with a stable reason code.
pub fn read_envelope(
    kind: Option<&str>,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Envelope, Unreadable> {
    if kind.is_some_and(|kind| kind != OPERATION_TYPE) {
        return unreadable("message_type_unknown");
    }
    if content_type.is_some_and(|given| !is_json(given)) {
        return unreadable("content_type_not_json");
    }
    if body.is_empty() {
        return unreadable("body_empty");
    }
    let members = Members(parse(body)?);
    let operation_id = members.text("operation_id", "operation_id_missing")?;
    let Some(operation_id) = hyphenated_uuid(operation_id) else {
        return unreadable("operation_id_not_uuid");
    };
    let tenant = members.text("tenant", "tenant_missing")?;
    if !is_plain(tenant, MAX_TENANT_BYTES) {
        return unreadable("tenant_invalid");
    }
    let operation_key = members.text("operation_key", "operation_key_missing")?;
    if !is_plain(operation_key, MAX_KEY_BYTES) {
        return unreadable("operation_key_invalid");
    }
    Ok(Envelope {
        operation_id,
        tenant: tenant.to_owned(),
        operation_key: operation_key.to_owned(),
    })
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(CONTENT_TYPE)
}

fn is_plain(text: &str, max_bytes: usize) -> bool {
    !text.is_empty() && text.len() <= max_bytes && !text.chars().any(char::is_control)
}

/// Only the 36-character form, so that one record has one spelling.
fn hyphenated_uuid(text: &str) -> Option<Uuid> {
    if text.len() != 36 {
        return None;
    }
    Uuid::try_parse(text).ok()
}

struct Members(Json);

impl Members {
    fn text(&self, name: &str, missing: &'static str) -> Result<&str, Unreadable> {
        match self.0.member(name) {
            Some(Json::String(text)) => Ok(text),
            Some(_) => unreadable("member_not_a_string"),
            None => unreadable(missing),
        }
    }
}

fn parse(body: &[u8]) -> Result<Json, Unreadable> {
    let limits = JsonLimits { max_bytes: MAX_BODY_BYTES, ..JsonLimits::default() };
    let reason = match json::parse(body, &limits) {
        Ok(object @ Json::Object(_)) => return Ok(object),
        Ok(_) => "body_not_an_object",
        Err(error) => match error.problem {
            JsonProblem::TooLarge { .. } => "body_too_large",
            JsonProblem::TooDeep { .. } => "body_too_deep",
            JsonProblem::ByteOrderMark => "body_has_bom",
            JsonProblem::InvalidUtf8 => "body_not_utf8",
            JsonProblem::DuplicateName => "body_duplicate_member",
            JsonProblem::LoneSurrogate => "body_lone_surrogate",
            JsonProblem::Nul => "body_nul",
            JsonProblem::TrailingData => "body_trailing_data",
            JsonProblem::Syntax { .. } => "body_not_json",
        },
    };
    unreadable(reason)
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
