use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::domain::json::Json;
use crate::domain::operation::Operation;

/// One attempt at one operation, as a tool sees it. All of it comes from the record, nothing from
/// the message that brought it.
#[derive(Clone)]
pub struct Call {
    /// The record; may stand in URLs and logs.
    pub operation_id: Uuid,
    /// The operation's tenant.
    pub tenant: String,
    /// The operation's environment.
    pub environment: String,
    /// The tool's name.
    pub tool: String,
    /// The record's version of the tool.
    pub tool_version: String,
    /// The validated arguments, with their numbers as they were sent.
    pub arguments: Arc<Json>,
    /// The stored key towards the downstream, the same on every attempt.
    pub idempotency_key: String,
    /// An earlier attempt may have had an effect. Only then does an answer that means *already
    /// done* prove anything.
    pub resend: bool,
    /// Which attempt this is, counted from 1. For telemetry; decides nothing.
    pub attempt: u32,
    /// The submission's W3C trace context, passed on as it is.
    pub traceparent: Option<String>,
    /// On whose behalf: what the submission named. For permissions; a tool need not pass it on.
    pub actor: Option<String>,
    /// The provider's job, where one is known.
    pub job: Option<String>,
    /// The effect's reference, where one is known: the record's `effect_reference`.
    pub receipt: Option<String>,
}

impl Call {
    /// The call that a record asks for. `resend`: an earlier attempt may have had an effect.
    #[must_use]
    pub fn of(record: Operation, arguments: Json, resend: bool) -> Self {
        Self {
            operation_id: record.id,
            tenant: record.tenant,
            environment: record.environment,
            tool: record.tool,
            tool_version: record.tool_version,
            arguments: Arc::new(arguments),
            idempotency_key: record.downstream_key.map(|key| key.key).unwrap_or_default(),
            resend,
            attempt: record.attempts,
            traceparent: record.traceparent,
            actor: record.actor,
            job: record.job.map(|job| job.id.as_str().to_owned()),
            receipt: record.effect_reference,
        }
    }
}

/// Never shows the arguments, the key, the actor, the job or the receipt.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("operation_id", &self.operation_id)
            .field("tenant", &self.tenant)
            .field("environment", &self.environment)
            .field("tool", &self.tool)
            .field("tool_version", &self.tool_version)
            .field("resend", &self.resend)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_call_keeps_what_it_carries_to_itself() {
        let call = Call {
            operation_id: Uuid::nil(),
            tenant: "acme".to_owned(),
            environment: "prod".to_owned(),
            tool: "tickets.create".to_owned(),
            tool_version: "1".to_owned(),
            arguments: Arc::new(Json::String("top secret".to_owned())),
            idempotency_key: "downstream-key".to_owned(),
            resend: false,
            attempt: 1,
            traceparent: None,
            actor: Some("mallory".to_owned()),
            job: Some("job-77".to_owned()),
            receipt: Some("receipt-77".to_owned()),
        };
        let shown = format!("{call:?} {call:#?}");
        assert!(shown.contains("tickets.create"));
        for private in ["top secret", "downstream-key", "mallory", "job-77", "receipt-77"] {
            assert!(!shown.contains(private), "{shown}");
        }
    }
}
