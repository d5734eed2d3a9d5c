//! Red flags of the design review that a contract alone can show.

use serde_json::Value;

use crate::domain::contract::schema_walk::{is_required, property_names};
use crate::domain::contract::template::Placeholder;
use crate::domain::contract::{Contract, EffectClass, HttpRequest, Recoverability, duration_text};
use crate::domain::pointer::Pointer;

use super::Listed;

/// Names of arguments by which a model would be asked to invent an identity.
const IDENTITY_NAMES: [&str; 8] = [
    "idempotency_key",
    "idempotencykey",
    "operation_key",
    "operationkey",
    "dedup_key",
    "workflow_id",
    "step_id",
    "operation_id",
];

/// Names of what changes with every attempt.
const ATTEMPT_NAMES: [&str; 11] = [
    "timestamp",
    "sent_at",
    "requested_at",
    "received_at",
    "request_id",
    "trace_id",
    "traceparent",
    "tool_call_id",
    "message_id",
    "retry_count",
    "model",
];

pub(super) fn collect(contract: &Contract, listed: &mut Listed<'_>) {
    words(contract, listed);
    recovery(contract, listed);
    repetition(contract, listed);
    sameness(contract, listed);
    arguments(contract, listed);
    if let Some(http) = contract.http() {
        answers(http, listed);
        request(contract, http, listed);
    }
}

fn words(contract: &Contract, listed: &mut Listed<'_>) {
    listed.flag(
        contract.use_when.is_empty(),
        &["use_when"],
        "says nothing: a model chooses the tool by its name alone",
    );
    listed.flag(
        contract.do_not_use_when.is_empty(),
        &["do_not_use_when"],
        "says nothing: a model that lost an answer is not told to leave the tool alone",
    );
    listed.flag(
        contract.owner.is_none() && contract.effect_class != EffectClass::Read,
        &["owner"],
        "is missing: nobody is named whom an unknown outcome goes to",
    );
}

fn recovery(contract: &Contract, listed: &mut Listed<'_>) {
    let class = contract.effect_class;
    let deduplicates = matches!(contract.recoverability(), Recoverability::ResendWithin { .. });
    listed.flag(
        contract.blind() && class == EffectClass::KeyBased,
        &["effect_class"],
        "key_based, but no downstream.idempotency says that the downstream honours the key, and nothing can be looked up: a lost answer ends unknown",
    );
    listed.flag(
        contract.blind() && class == EffectClass::Append,
        &["effect_class"],
        "every repetition would add again, and nothing can be looked up: redesign it as a command under a key or an absolute update, or accept that a lost answer ends unknown",
    );
    listed.flag(
        contract.blind() && class == EffectClass::Irreversible,
        &["effect_class"],
        "irreversible, and the downstream neither deduplicates nor can be asked: a lost answer ends unknown and a person decides",
    );
    listed.flag(
        contract.blind() && class == EffectClass::NaturalIdempotent,
        &["stale_write"],
        "neither a version precondition (If-Match from a required argument) nor stale_write: harmless: a late repetition could overwrite a newer value, so a lost answer ends unknown",
    );
    listed.flag(
        deduplicates && contract.downstream.as_ref().is_some_and(|d| d.http.is_none()),
        &["downstream", "idempotency"],
        "the tool's own code must send the downstream key; nothing here can check it",
    );
}

/// Where recovery sends again, what a repetition also does happens again.
fn repetition(contract: &Contract, listed: &mut Listed<'_>) {
    let sends_again = match contract.recoverability() {
        Recoverability::ResendAlways | Recoverability::ResendWithin { .. } => true,
        Recoverability::Transactional | Recoverability::None => false,
    };
    match contract.repeat_side_effects.as_deref() {
        None => listed.flag(
            contract.effect_class != EffectClass::Read,
            &["repeat_side_effects"],
            "is missing: what would a repetition also do? write none or a list",
        ),
        Some(effects) => listed.flag(
            sends_again && !effects.is_empty(),
            &["repeat_side_effects"],
            "recovery may send this request again, and these would then happen twice",
        ),
    }
}

fn sameness(contract: &Contract, listed: &mut Listed<'_>) {
    for (index, field) in contract.fingerprint.fields.iter().enumerate() {
        let place = ["fingerprint", "fields", &index.to_string()];
        listed.flag(
            field.is_root(),
            &place,
            "compares everything that is sent: a field added by a model makes the same action another request",
        );
        listed.flag(
            ends_in(field, &ATTEMPT_NAMES),
            &place,
            "looks like something that changes with every attempt: a retry would be refused as another request",
        );
    }
    for (place, _) in contract.fingerprint.defaults.iter() {
        listed.flag(
            is_required(&contract.arguments, place),
            &["fingerprint", "defaults", &place.to_string()],
            "the schema requires this place, so its default can never apply",
        );
    }
}

fn ends_in(pointer: &Pointer, names: &[&str]) -> bool {
    pointer.tokens().last().is_some_and(|last| names.contains(&last.to_lowercase().as_str()))
}

fn arguments(contract: &Contract, listed: &mut Listed<'_>) {
    let schema = &contract.arguments;
    let open = ["additionalProperties", "unevaluatedProperties"]
        .iter()
        .all(|keyword| schema.get(keyword).and_then(Value::as_bool) != Some(false));
    listed.flag(
        open,
        &["arguments", "additionalProperties"],
        "is not false: misspelt or invented arguments are accepted without a word",
    );
    for name in property_names(schema) {
        listed.flag(
            IDENTITY_NAMES.contains(&name.to_lowercase().as_str()),
            &["arguments", "properties", name],
            "looks like an identity: the application makes the operation key, and a model asked for one invents it",
        );
    }
}

fn answers(http: &HttpRequest, listed: &mut Listed<'_>) {
    for (list, statuses) in http.status_lists() {
        for (index, status) in statuses.iter().enumerate() {
            let doubtful = match list {
                "refused" => *status >= 500 || matches!(status, 408 | 409 | 425),
                "not_now" => matches!(status, 408 | 500 | 502 | 504),
                _ => false,
            };
            listed.flag(
                doubtful,
                &["downstream", "http", list, &index.to_string()],
                format!("does the service's owner confirm that {status} proves that nothing was done? A gateway can answer it after the effect"),
            );
        }
    }
}

fn request(contract: &Contract, http: &HttpRequest, listed: &mut Listed<'_>) {
    let promised = contract.downstream.as_ref().and_then(|d| d.idempotency);
    listed.flag(
        promised.is_none() && http.placeholders().contains(&&Placeholder::IdempotencyKey),
        &["downstream", "idempotency"],
        "the request carries {idempotency_key}, but nothing says that the downstream honours it, so nothing is sent again",
    );
    listed.flag(
        http.url
            .literal_base()
            .is_some_and(|base| base.starts_with("http://") && !is_loopback(base)),
        &["downstream", "http", "url"],
        "is not encrypted: arguments and secrets can be read on the way",
    );
    for placeholder in http.url.path_placeholders() {
        let optional = placeholder.argument().filter(|p| !is_required(&contract.arguments, p));
        if let Some(pointer) = optional {
            listed.flag(
                true,
                &["downstream", "http", "url"],
                format!("the path needs {}, which the schema does not require: submissions without it are refused", pointer.brief()),
            );
        }
    }
    for (name, value) in &http.headers {
        let literal = value.secrets().next().is_none() && value.placeholders().next().is_none();
        listed.flag(
            literal && name.eq_ignore_ascii_case("authorization"),
            &["downstream", "http", "headers", name],
            "stands in the file in plain text; refer to it as ${env:NAME} or ${file:/path}",
        );
    }
    if let Some(idempotency) = promised {
        listed.note(
            contract.retry.give_up > idempotency.window,
            &["downstream", "idempotency", "window"],
            format!(
                "the downstream forgets a key after {}, and retries may go on for {}: an unproved operation becomes unknown when the window closes",
                duration_text(idempotency.window),
                duration_text(contract.retry.give_up)
            ),
        );
    }
}

fn is_loopback(base: &str) -> bool {
    let authority = base.trim_start_matches("http://");
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    matches!(authority, "[::1]") || matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}
