//! Which business action is this? The key that the application makes from durable workflow state.
//!
//! `tenant:environment:workflow_id:step_id`, with `%` and `:` inside the last two written `%25`
//! and `%3A`, so that ("a:b", "c") and ("a", "b:c") are two keys. Keys are compared byte for byte.
//!
//! A key is shown to people and sent to providers, so it must hold no secret and, unless the
//! deployment allows it, no e-mail address. The same rule stands in SQL for the other door:
//! change [`shape::SECRETS`] and [`shape::EMAIL`] in both.
//!
//! Absent on purpose: `Display`, so that no whole key slips into a log line.

pub mod shape;
#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

/// Longest workflow or step id, in bytes, before escaping. Escaped threefold at worst, both and
/// two names of 63 bytes stay well below what a PostgreSQL index entry can hold (some 2,700).
pub const MAX_ID_BYTES: usize = 200;

/// Longest tenant or environment: PostgreSQL's and DNS's length of a name.
pub const MAX_NAME_BYTES: usize = 63;

/// What a deployment asks of the parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Refuse parts that hold an e-mail address.
    pub refuse_email: bool,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self { refuse_email: true }
    }
}

/// A well-formed operation key. `Debug` shows tenant and environment only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey(String);

/// Why a key was refused. It never shows the part: what looked like a secret may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("operation key refused: the {part} {rule}")]
pub struct KeyError {
    /// Which part.
    pub part: KeyPart,
    /// Which rule it broke.
    pub rule: KeyRule,
}

/// The parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The key as a whole.
    Key,
    /// First part.
    Tenant,
    /// Second part.
    Environment,
    /// Third part.
    WorkflowId,
    /// Fourth part.
    StepId,
}

/// The rules that a part can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyRule {
    /// Not four parts.
    #[error("must have four parts, tenant:environment:workflow_id:step_id")]
    FourParts,
    /// Not `[a-z0-9][a-z0-9_-]{0,62}`.
    #[error("must match [a-z0-9][a-z0-9_-]{{0,62}}")]
    Name,
    /// An empty id.
    #[error("must not be empty")]
    Empty,
    /// An id over [`MAX_ID_BYTES`].
    #[error("must not be longer than {MAX_ID_BYTES} bytes")]
    TooLong,
    /// A control character (Unicode category Cc) in an id.
    #[error("must not hold control characters")]
    Control,
    /// An escape other than `%25` and `%3A`.
    #[error("must hold '%' only as %25 and ':' only as %3A")]
    Escape,
    /// A well-known secret shape.
    #[error("holds what looks like a secret; use an id from the workflow's own state")]
    Secret,
    /// An e-mail address.
    #[error("holds what looks like an e-mail address; use an id that names no person")]
    Email,
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Tenant => "tenant",
            Self::Environment => "environment",
            Self::WorkflowId => "workflow_id",
            Self::StepId => "step_id",
        })
    }
}

impl OperationKey {
    /// Makes the key of an action from its plain, unescaped parts.
    ///
    /// # Errors
    /// When a part breaks a rule. The same parts will be refused again.
    pub fn new(
        tenant: &str,
        environment: &str,
        workflow_id: &str,
        step_id: &str,
        policy: &KeyPolicy,
    ) -> Result<Self, KeyError> {
        let parts = [
            (KeyPart::Tenant, tenant),
            (KeyPart::Environment, environment),
            (KeyPart::WorkflowId, workflow_id),
            (KeyPart::StepId, step_id),
        ];
        for (part, text) in parts {
            check_harmless(part, text, policy)?;
            check_form(part, text)?;
        }
        Ok(Self(format!("{tenant}:{environment}:{}:{}", escape(workflow_id), escape(step_id))))
    }

    /// Reads a whole, escaped key, such as a record's. The form only: a stored key stays readable
    /// when the list of secret shapes grows. For a key from outside see [`OperationKey::check`].
    ///
    /// # Errors
    /// When [`OperationKey::new`] could not have made this text under any policy.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.split(':');
        let (Some(tenant), Some(environment), Some(workflow_id), Some(step_id), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(KeyError { part: KeyPart::Key, rule: KeyRule::FourParts });
        };
        check_form(KeyPart::Tenant, tenant)?;
        check_form(KeyPart::Environment, environment)?;
        for (part, escaped) in [(KeyPart::WorkflowId, workflow_id), (KeyPart::StepId, step_id)] {
            let plain = unescape(escaped);
            if escape(&plain) != escaped {
                return Err(KeyError { part, rule: KeyRule::Escape });
            }
            check_form(part, &plain)?;
        }
        Ok(Self(text.to_owned()))
    }

    /// Asks of a key that came whole from outside what [`OperationKey::new`] asks of its parts.
    ///
    /// # Errors
    /// When a part holds a secret shape, or an e-mail address that `policy` refuses.
    pub fn check(&self, policy: &KeyPolicy) -> Result<(), KeyError> {
        check_harmless(KeyPart::Tenant, self.tenant(), policy)?;
        check_harmless(KeyPart::Environment, self.environment(), policy)?;
        check_harmless(KeyPart::WorkflowId, &self.workflow_id(), policy)?;
        check_harmless(KeyPart::StepId, &self.step_id(), policy)
    }

    /// The whole key, escaped: for the record and the envelope, never for a log or an error text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.escaped_part(0)
    }

    /// The environment.
    #[must_use]
    pub fn environment(&self) -> &str {
        self.escaped_part(1)
    }

    /// The workflow id, unescaped.
    #[must_use]
    pub fn workflow_id(&self) -> String {
        unescape(self.escaped_part(2))
    }

    /// The step id, unescaped.
    #[must_use]
    pub fn step_id(&self) -> String {
        unescape(self.escaped_part(3))
    }

    fn escaped_part(&self, place: usize) -> &str {
        // Both constructors made sure of four parts.
        self.0.split(':').nth(place).unwrap_or_default()
    }
}

impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationKey({}:{}:…)", self.tenant(), self.environment())
    }
}

fn check_harmless(part: KeyPart, text: &str, policy: &KeyPolicy) -> Result<(), KeyError> {
    if shape::holds_secret(text) {
        return Err(KeyError { part, rule: KeyRule::Secret });
    }
    if policy.refuse_email && shape::holds_email(text) {
        return Err(KeyError { part, rule: KeyRule::Email });
    }
    Ok(())
}

fn check_form(part: KeyPart, text: &str) -> Result<(), KeyError> {
    let broken = match part {
        KeyPart::Tenant | KeyPart::Environment => (!is_name(text)).then_some(KeyRule::Name),
        KeyPart::Key | KeyPart::WorkflowId | KeyPart::StepId if text.is_empty() => {
            Some(KeyRule::Empty)
        }
        KeyPart::Key | KeyPart::WorkflowId | KeyPart::StepId if text.len() > MAX_ID_BYTES => {
            Some(KeyRule::TooLong)
        }
        KeyPart::Key | KeyPart::WorkflowId | KeyPart::StepId => {
            text.chars().any(char::is_control).then_some(KeyRule::Control)
        }
    };
    broken.map_or(Ok(()), |rule| Err(KeyError { part, rule }))
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= MAX_NAME_BYTES
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || matches!(byte, b'_' | b'-'))
}

fn escape(part: &str) -> String {
    part.replace('%', "%25").replace(':', "%3A")
}

/// Undoes [`escape`]; `%25` last, or `%253A` would become a colon.
fn unescape(escaped: &str) -> String {
    escaped.replace("%3A", ":").replace("%25", "%")
}
