//! What is submitted: one JSON object, the same fields at every door.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::SubmitError;
use crate::domain::json::{Json, JsonLimits, parse};
use crate::domain::operation::Timestamp;

/// Longest `metadata`, in bytes of JSON text.
const MAX_METADATA_BYTES: usize = 64 * 1024;

/// Longest `actor` and `ordering_key`, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// The first moment that is too far away for `not_before`: 9000-01-01T00:00:00Z, in microseconds. The
/// SQL door has the same bound: a row with a time that no program here can read would stop its reader.
const TOO_FAR_AWAY: Timestamp = Timestamp(221_845_392_000_000_000);

/// One operation to publish.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Submission {
    /// The tenant.
    pub tenant: String,
    /// The environment.
    pub environment: String,
    /// The workflow's durable identity.
    pub workflow_id: String,
    /// The step's identity inside the workflow.
    pub step_id: String,
    /// The tool.
    pub tool: String,
    /// The contract version; none: the record's, else the tool's current one.
    pub tool_version: Option<String>,
    /// The arguments as JSON text; numbers are kept as they stand here.
    pub arguments: String,
    /// What is not part of the request, as JSON text: never compared.
    pub metadata: Option<String>,
    /// Who submits.
    pub actor: Option<String>,
    /// Effects with one ordering key happen one at a time, in commit order.
    pub ordering_key: Option<String>,
    /// No effect before this time. Not together with `ordering_key`.
    pub not_before: Option<Timestamp>,
    /// The older key that this operation is knowingly not the twin of.
    pub distinct_from: Option<String>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// Shows no arguments and no key.
impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("tenant", &self.tenant)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

impl Submission {
    /// Reads a submission from its JSON object.
    ///
    /// # Errors
    /// [`SubmitError::Invalid`] names the place and what to do.
    pub fn from_json(text: &[u8]) -> Result<Self, SubmitError> {
        // The arguments may have their full size and the object something round them.
        let limits = JsonLimits {
            max_bytes: JsonLimits::default().max_bytes + 2 * MAX_METADATA_BYTES,
            ..JsonLimits::default()
        };
        let document =
            parse(text, &limits).map_err(|error| SubmitError::Invalid(error.to_string()))?;
        let Some(members) = document.as_object() else {
            return Err(SubmitError::Invalid("a submission is a JSON object".to_owned()));
        };
        let mut submission = Self::default();
        let mut arguments = None;
        for (name, value) in members {
            match name.as_str() {
                "tenant" => submission.tenant = text_of(name, value)?,
                "environment" => submission.environment = text_of(name, value)?,
                "workflow_id" => submission.workflow_id = text_of(name, value)?,
                "step_id" => submission.step_id = text_of(name, value)?,
                "tool" => submission.tool = text_of(name, value)?,
                "tool_version" => submission.tool_version = optional(name, value)?,
                "arguments" => arguments = Some(value.to_text()),
                "metadata" => submission.metadata = (!value.is_null()).then(|| value.to_text()),
                "actor" => submission.actor = optional(name, value)?,
                "ordering_key" => submission.ordering_key = optional(name, value)?,
                "not_before" => {
                    submission.not_before =
                        optional(name, value)?.map(|at| moment(&at)).transpose()?
                }
                "distinct_from" => submission.distinct_from = optional(name, value)?,
                "traceparent" => submission.traceparent = optional(name, value)?,
                unknown => return Err(not_a_member(unknown)),
            }
        }
        submission.arguments =
            arguments.ok_or_else(|| SubmitError::Invalid("/arguments: missing".to_owned()))?;
        Ok(submission)
    }

    /// Checks what is neither key nor arguments.
    pub(super) fn check(&self) -> Result<(), SubmitError> {
        let refuse = |what: &str| Err(SubmitError::Invalid(what.to_owned()));
        if self.tool.contains('\0') || self.tool_version.as_ref().is_some_and(|v| v.contains('\0'))
        {
            return refuse("/tool, /tool_version: no NUL; name a registered tool and version");
        }
        if self.ordering_key.is_some() && self.not_before.is_some() {
            return refuse("/not_before: not together with ordering_key; leave one of them out");
        }
        if self.not_before.is_some_and(|at| at >= TOO_FAR_AWAY) {
            return refuse("/not_before: must be before the year 9000");
        }
        if self
            .ordering_key
            .as_ref()
            .is_some_and(|key| key.is_empty() || key.len() > MAX_NAME_BYTES || key.contains('\0'))
        {
            return refuse("/ordering_key: 1 to 200 bytes, no NUL");
        }
        if self
            .actor
            .as_ref()
            .is_some_and(|actor| actor.len() > MAX_NAME_BYTES || actor.contains('\0'))
        {
            return refuse("/actor: at most 200 bytes, no NUL");
        }
        if self.distinct_from.as_ref().is_some_and(|key| key.len() > 1400 || key.contains('\0')) {
            return refuse("/distinct_from: an operation key");
        }
        if self.traceparent.as_ref().is_some_and(|trace| !is_traceparent(trace)) {
            return refuse("/traceparent: not of the W3C form 00-<32 hex>-<16 hex>-<2 hex>");
        }
        if let Some(metadata) = &self.metadata {
            let limits = JsonLimits { max_bytes: MAX_METADATA_BYTES, ..JsonLimits::default() };
            parse(metadata.as_bytes(), &limits)
                .map_err(|error| SubmitError::Invalid(format!("/metadata: {error}")))?;
        }
        Ok(())
    }
}

/// Names a member that looks like a field's name, as a mistyped one does. Any other text is its sender's
/// content, which no error repeats.
fn not_a_member(name: &str) -> SubmitError {
    let field = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    let place = if field { name } else { "" };
    SubmitError::Invalid(format!(
        "/{place}: there is a member that a submission does not have; the members are tenant, environment, workflow_id, step_id, tool, tool_version, arguments, metadata, actor, ordering_key, not_before, distinct_from, traceparent"
    ))
}

fn text_of(name: &str, value: &Json) -> Result<String, SubmitError> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| SubmitError::Invalid(format!("/{name}: must be a string")))
}

fn optional(name: &str, value: &Json) -> Result<Option<String>, SubmitError> {
    if value.is_null() { Ok(None) } else { text_of(name, value).map(Some) }
}

fn moment(text: &str) -> Result<Timestamp, SubmitError> {
    let refused = |_| SubmitError::Invalid("/not_before: must be an RFC 3339 time".to_owned());
    let at = OffsetDateTime::parse(text, &Rfc3339).map_err(refused)?;
    Ok(Timestamp(i64::try_from(at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX)))
}

fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2]) && parts.iter().all(|part| hex(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_a_submission_does_not_have_is_named() {
        let check = |text: &str, place: &str| {
            let error = Submission::from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        };
        check(r#"{"workflow": "run_1", "arguments": {}}"#, "/workflow: ");
        // Not the name of any field: it may be anything.
        check(r#"{"sk-live-51H": 1}"#, "/: ");
    }
}
