//! What a tool promises about its effect: one tool version, one contract.
//!
//! A contract answers what a retry may do: which parameters make a request the same
//! ([`Contract::fingerprint`]), what the downstream's answers prove
//! ([`HttpRequest`]), and what may be done with an operation that may have been sent
//! ([`Contract::recoverability`]). People and models read the rest ([`describe`]).
//!
//! A file is read in three steps, each with all of its problems at once: its shape (the JSON
//! Schema beside this module, applied by the shell), its words ([`Contract::from_json`]) and the
//! relations between them ([`Contract::problems`]). Sections that a later release will carry out
//! are read and checked like the others; [`Contract::unsupported`] names them, and whoever serves
//! tools must leave such a tool out: a precondition that nobody asks is worse than none.
//!
//! Absent on purpose: reading files, YAML, validating arguments (the validator is no part of the
//! pure half), and resolving secrets.

pub mod describe;
mod downstream;
mod duration;
mod effect;
mod names;
mod read;
mod relations;
mod review;
mod schema_walk;
mod sections;
pub mod template;
mod unsupported;
mod verdict;
mod worksheet;

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::canonical::{NumberRule, canonical};
use super::fingerprint::FingerprintRule;
use super::json::Json;
use super::pointer::Pointer;
use template::TemplateError;

pub use downstream::{
    AbsentRule, Downstream, HttpCall, HttpRequest, Idempotency, Lookup, LookupRequest, Method,
    Poll, PollRequest,
};
pub use duration::{DurationError, duration_text, parse_duration};
pub use effect::{EffectClass, Recoverability};
pub use names::{NameError, ToolName, ToolVersion};
pub use relations::DEFAULT_MARGIN;
pub use review::{Finding, Severity};
pub use sections::{
    Approval, Authorization, Check, Concurrency, LateArrival, OperationKeyNotes, Owner, Policy,
    Retention, RetryRule, Twins, Webhook, WebhookMeaning,
};
pub use unsupported::Unsupported;
pub use verdict::{Coverage, Facts, Judgement, LookUp, Verdict, Why};
pub use worksheet::{Answer, Evidence, Mark, Origin, Question, Row, Worksheet};

/// The JSON Schema (2020-12) of a contract file.
pub const CONTRACT_SCHEMA: &str = include_str!("contract/contract.schema.json");

/// The contract of one version of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// The tool's name, also its routing key and the end of its queue's name.
    pub tool: ToolName,
    /// The version. Part of every fingerprint.
    pub version: ToolVersion,
    /// The business effect in a sentence.
    pub purpose: String,
    /// When to use the tool.
    pub use_when: Vec<String>,
    /// When not to.
    pub do_not_use_when: Vec<String>,
    /// Where operation keys come from.
    pub operation_key: OperationKeyNotes,
    /// What kind of effect this is.
    pub effect_class: EffectClass,
    /// `stale_write: harmless`: a late repetition may overwrite a newer value, and that is fine.
    pub stale_write_harmless: bool,
    /// What a repetition would also do; empty for `none`, `None` where the contract is silent.
    pub repeat_side_effects: Option<Vec<String>>,
    /// JSON Schema 2020-12 of the arguments.
    pub arguments: Value,
    /// What makes two requests the same.
    pub fingerprint: FingerprintRule,
    /// How the effect is made, and what the service behind it promises.
    pub downstream: Option<Downstream>,
    /// Who may.
    pub authorization: Option<Authorization>,
    /// Whose approval.
    pub approval: Option<Approval>,
    /// Asked before the first send, and never after something may have been sent.
    pub preconditions: Option<Check>,
    /// Asked after the effect.
    pub postcondition: Option<Check>,
    /// When to try again, and when to stop.
    pub retry: RetryRule,
    /// How long a claim lasts unless it is extended.
    pub lease: Duration,
    /// How many effects of this tool may run at once.
    pub concurrency: Concurrency,
    /// The guard against the same call under a new key.
    pub twins: Twins,
    /// Whether an event is published when an operation comes to an ending.
    pub results: bool,
    /// Whether payloads are encrypted at rest. Not carried out in this release.
    pub sensitive: bool,
    /// The provider's events. Not carried out in this release.
    pub webhook: Option<Webhook>,
    /// How long what is kept.
    pub retention: Retention,
    /// Whom an `unknown` goes to.
    pub owner: Option<Owner>,
    /// The material sections as they were written; see [`Contract::material_digest`].
    material: Json,
}

/// Something that is wrong at a place of a contract.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub pointer: Pointer,
    /// What, and what to write instead.
    pub message: String,
}

impl Problem {
    /// A problem at a place.
    #[must_use]
    pub fn new(pointer: Pointer, message: impl Into<String>) -> Self {
        Self { pointer, message: message.into() }
    }
}

impl Contract {
    /// The request that makes the effect, for a tool that oncebox itself sends.
    #[must_use]
    pub fn http(&self) -> Option<&HttpRequest> {
        self.downstream.as_ref()?.http.as_ref()
    }

    /// How an effect is found that may have been made.
    #[must_use]
    pub fn lookup(&self) -> Option<&Lookup> {
        self.downstream.as_ref()?.lookup.as_ref()
    }

    /// How a provider's job is followed.
    #[must_use]
    pub fn poll(&self) -> Option<&Poll> {
        self.downstream.as_ref()?.poll.as_ref()
    }

    /// Whether anybody outside the database must be asked before a send: a policy service, an
    /// authorizer in code, or a precondition. A tool written in Rust may ask for more
    /// ([`ServedTool::asks_before_send`](crate::tool::ServedTool::asks_before_send)).
    #[must_use]
    pub fn asks_before_send(&self) -> bool {
        let outside = |a: &Authorization| a.http.is_some() || a.code.is_some();
        self.authorization.as_ref().is_some_and(outside) || self.preconditions.is_some()
    }

    /// Whether these arguments can ever become a request, so that a submission is refused early
    /// instead of at its first attempt. A tool written in Rust builds its own.
    ///
    /// # Errors
    /// When no attempt under this version could build its request from them.
    pub fn check_buildable(&self, arguments: &Json) -> Result<(), TemplateError> {
        self.http().map_or(Ok(()), |http| http.check_buildable(arguments))
    }

    /// What may be done with an operation of this tool that may have been sent.
    #[must_use]
    pub fn recoverability(&self) -> Recoverability {
        let window =
            self.downstream.as_ref().and_then(|d| d.idempotency.as_ref()).map(|i| i.window);
        let overwrite_is_safe = || self.stale_write_harmless || self.sends_version_precondition();
        match (self.effect_class, window) {
            (EffectClass::Transactional, _) => Recoverability::Transactional,
            (EffectClass::Read, _) => Recoverability::ResendAlways,
            (EffectClass::NaturalIdempotent, _) if overwrite_is_safe() => {
                Recoverability::ResendAlways
            }
            (
                EffectClass::NaturalIdempotent
                | EffectClass::KeyBased
                | EffectClass::Append
                | EffectClass::Irreversible,
                Some(window),
            ) => Recoverability::ResendWithin { window },
            (
                EffectClass::NaturalIdempotent
                | EffectClass::KeyBased
                | EffectClass::Append
                | EffectClass::Irreversible,
                None,
            ) => Recoverability::None,
        }
    }

    /// Whether an actor needs a row in table `grants`.
    #[must_use]
    pub fn asks_grants(&self) -> bool {
        self.authorization.as_ref().is_some_and(|authorization| authorization.grants)
    }

    /// Whether an operation that may have been sent can neither be sent again nor be looked up:
    /// only an operator can end it.
    #[must_use]
    pub fn blind(&self) -> bool {
        self.recoverability() == Recoverability::None && self.lookup().is_none()
    }

    /// The digest of what must not change without a new version: arguments, fingerprint,
    /// downstream, effect class, stale writes. 64 hexadecimal digits.
    ///
    /// It is taken over what the author wrote, without the defaults of this program, so that it
    /// stays the same when a later release knows more fields. The price: `60s` and `1m` are two
    /// texts. That errs on the safe side, a tool left out instead of an effect changed silently.
    #[must_use]
    pub fn material_digest(&self) -> String {
        let text = canonical(&self.material, NumberRule::Exact);
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether every send carries a version that the downstream itself compares (`If-Match`, RFC
    /// 9110, section 13.1.1). It must come from an argument that cannot be left out: a literal `*`
    /// is no version, and a header that drops out guards nothing.
    fn sends_version_precondition(&self) -> bool {
        let is_version = |name: &str| name.eq_ignore_ascii_case("if-match");
        let headers = self.http().map_or(&[][..], |http| http.headers.as_slice());
        let Some((_, value)) = headers.iter().find(|(name, _)| is_version(name)) else {
            return false;
        };
        let pointers = value.argument_pointers();
        !pointers.is_empty()
            && pointers.iter().all(|pointer| schema_walk::is_required(&self.arguments, pointer))
    }
}
