//! What we publish, and how it is put on the wire.

use std::fmt;

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, LongString, ShortString},
};
use serde::Serialize;
use uuid::Uuid;

use super::envelope::{
    CONTENT_TYPE, KEY_HEADER, MAX_BODY_BYTES, OPERATION_TYPE, TENANT_HEADER, TRACE_HEADER,
};

/// The `type` property of every result event.
pub const RESULT_TYPE: &str = "oncebox.result.v1";

/// What one frame needs besides a header's table: frame header and end, class, weight, body size,
/// property flags and the fixed properties we set.
const FRAME_OVERHEAD_BYTES: usize = 256;

/// An operation message on its way out.
#[derive(Clone, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The outbox row's id: the same whenever that row is published again.
    pub message_id: Uuid,
    /// The tool's name, which is the routing key.
    pub tool: String,
    /// The record the message names.
    pub operation_id: Uuid,
    /// The record's tenant.
    pub tenant: String,
    /// The record's operation key.
    pub operation_key: String,
    /// W3C trace context, telemetry only.
    pub traceparent: Option<String>,
}

impl fmt::Debug for OutgoingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingMessage")
            .field("message_id", &self.message_id)
            .field("tool", &self.tool)
            .field("operation_id", &self.operation_id)
            .finish_non_exhaustive()
    }
}

/// A result event on its way out: what an operation came to, for whoever listens.
#[derive(Clone, PartialEq, Eq)]
pub struct OutgoingEvent {
    /// The outbox row's id: the same whenever that row is published again.
    pub message_id: Uuid,
    /// `<tenant>.<tool>.<status>`.
    pub routing_key: String,
    /// The outcome envelope without `response`, as JSON text.
    pub body: String,
    /// The record's tenant.
    pub tenant: String,
    /// The record's operation key.
    pub operation_key: String,
    /// W3C trace context, telemetry only.
    pub traceparent: Option<String>,
}

impl fmt::Debug for OutgoingEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingEvent")
            .field("message_id", &self.message_id)
            .finish_non_exhaustive()
    }
}

/// Why a message can never be put on the wire, however often it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unencodable {
    /// The tool's name or the event's routing key does not fit into an AMQP short string (255 bytes).
    RoutingKeyTooLong,
    /// The headers do not fit into one frame of this connection.
    HeadersTooLarge,
    /// The body is longer than a consumer would read.
    BodyTooLarge,
}

impl Unencodable {
    /// A stable code for `dead_letters` and logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::RoutingKeyTooLong => "routing_key_too_long",
            Self::HeadersTooLarge => "headers_too_large",
            Self::BodyTooLarge => "body_too_large",
        }
    }
}

/// The encoded form of one message.
pub(super) struct Encoded {
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Vec<u8>,
}

#[derive(Serialize)]
struct Body<'a> {
    operation_id: Uuid,
    tenant: &'a str,
    operation_key: &'a str,
}

impl OutgoingMessage {
    /// Encodes the message.
    pub(super) fn encode(&self, frame_max: u32) -> Result<Encoded, Unencodable> {
        let body = Body {
            operation_id: self.operation_id,
            tenant: &self.tenant,
            operation_key: &self.operation_key,
        };
        let body = serde_json::to_vec(&body).map_err(|_never| Unencodable::BodyTooLarge)?;
        let head = Head {
            kind: OPERATION_TYPE,
            routing_key: &self.tool,
            message_id: self.message_id,
            tenant: &self.tenant,
            operation_key: &self.operation_key,
            traceparent: self.traceparent.as_deref(),
        };
        head.with(body, frame_max)
    }
}

impl OutgoingEvent {
    /// Encodes the event.
    pub(super) fn encode(&self, frame_max: u32) -> Result<Encoded, Unencodable> {
        let head = Head {
            kind: RESULT_TYPE,
            routing_key: &self.routing_key,
            message_id: self.message_id,
            tenant: &self.tenant,
            operation_key: &self.operation_key,
            traceparent: self.traceparent.as_deref(),
        };
        head.with(self.body.clone().into_bytes(), frame_max)
    }
}

/// What goes before a body, the same for all that we publish.
struct Head<'a> {
    kind: &'static str,
    routing_key: &'a str,
    message_id: Uuid,
    tenant: &'a str,
    operation_key: &'a str,
    traceparent: Option<&'a str>,
}

impl Head<'_> {
    /// The encoded form, refusing beforehand what the client library or the broker would answer with
    /// the loss of the whole connection.
    fn with(&self, body: Vec<u8>, frame_max: u32) -> Result<Encoded, Unencodable> {
        let routing_key = ShortString::try_new(self.routing_key)
            .map_err(|_too_long| Unencodable::RoutingKeyTooLong)?;
        if body.len() > MAX_BODY_BYTES {
            return Err(Unencodable::BodyTooLarge);
        }
        let mut headers = FieldTable::default();
        let mut header_bytes = 0;
        let mut header = |name: &str, value: &str| {
            header_bytes += name.len() + value.len() + 6;
            headers.insert(name.into(), AMQPValue::LongString(LongString::from(value.as_bytes())));
        };
        header(KEY_HEADER, self.operation_key);
        header(TENANT_HEADER, self.tenant);
        if let Some(traceparent) = self.traceparent {
            header(TRACE_HEADER, traceparent);
        }
        let room = usize::try_from(frame_max).unwrap_or(usize::MAX);
        if header_bytes + FRAME_OVERHEAD_BYTES > room {
            return Err(Unencodable::HeadersTooLarge);
        }
        let properties = BasicProperties::default()
            .with_content_type(CONTENT_TYPE.into())
            .with_delivery_mode(PERSISTENT)
            .with_message_id(self.message_id.to_string().into())
            .with_type(self.kind.into())
            .with_headers(headers);
        Ok(Encoded { routing_key, properties, body })
    }
}

/// AMQP's delivery mode for messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;
