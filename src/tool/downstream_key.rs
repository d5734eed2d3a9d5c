//! The key towards the downstream: opaque, high-entropy, the same for an operation for ever.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::domain::operation::DownstreamKey;

/// The deployment's secret that new downstream keys are derived with. A record keeps the key that it
/// got, whatever becomes of the secret.
#[derive(Clone)]
pub struct DownstreamSecret {
    id: String,
    secret: Vec<u8>,
}

impl fmt::Debug for DownstreamSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DownstreamSecret({})", self.id)
    }
}

impl DownstreamSecret {
    /// A secret with its id. Give it at least 16 random bytes.
    #[must_use]
    pub fn new(id: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        Self { id: id.into(), secret: secret.into() }
    }

    /// The key of one operation. The operation key names its tenant, so no two tenants share one.
    #[must_use]
    pub fn key(&self, operation_key: &str) -> DownstreamKey {
        // HMAC takes a key of any length (RFC 2104); the error type is for other constructions.
        let mac = Hmac::<Sha256>::new_from_slice(&self.secret).map(|mut mac| {
            mac.update(operation_key.as_bytes());
            mac.finalize().into_bytes()
        });
        let digits: String = mac.into_iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        DownstreamKey { key: format!("ob_{digits}"), secret_id: self.id.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stable_and_shows_nothing_of_the_operation() {
        let secret = DownstreamSecret::new("k1", b"0123456789abcdef".to_vec());
        let key = secret.key("acme:prod:run:step");
        assert!(key == secret.key("acme:prod:run:step"));
        assert_eq!(key.key.len(), 67);
        assert_eq!(key.secret_id, "k1");
        assert!(!key.key.contains("acme") && !format!("{secret:?}").contains("0123"));
        assert!(key.key != secret.key("acme:prod:run:step2").key);
        assert!(
            key.key
                != DownstreamSecret::new("k2", b"fedcba9876543210".to_vec())
                    .key("acme:prod:run:step")
                    .key
        );
    }
}
