//! The sentences of a description.

use std::fmt::Write as _;
use std::time::Duration;

use crate::domain::contract::{AbsentRule, Contract, EffectClass, Recoverability, duration_text};
use crate::domain::pointer::Pointer;

/// What the tool that asks says of itself.
pub(super) const STATUS: &str = "Tells how an operation stands. Has no effect and may be called as often as needed.\n\
    Call it with the operation_id of an earlier answer when that answer was in_flight, or when you do not know how a call ended; wait retry_after_seconds between calls.\n\
    Answers: in_flight (not decided yet), applied or replayed (done, with effect_reference), rejected (no effect under this request; see reason), failed_permanent (no effect, and there will be none), unknown (the effect may have happened; a person reconciles it), expired_operation (the result is no longer kept).\n\
    The application wires this tool up and answers it from `oncebox ops show --json`, or from the SQL door: the same key with the same request again is told how it stands, and nothing is done twice.";

/// The whole description for a model.
pub(super) fn for_model(contract: &Contract) -> String {
    let mut text = contract.purpose.trim().to_owned();
    paragraph(&mut text, "Use it when", &contract.use_when);
    paragraph(&mut text, "Do not use it when", &contract.do_not_use_when);
    line(&mut text, &format!("Tool: {} version {}.", contract.tool, contract.version));
    line(&mut text, &format!("Effect: {}.", effect(contract)));
    line(&mut text, &key(contract));
    line(&mut text, &material(contract));
    line(&mut text, MISMATCH);
    line(&mut text, DONE);
    line(&mut text, IN_FLIGHT);
    line(&mut text, &unknown(contract));
    line(&mut text, NO_EFFECT);
    text
}

const MISMATCH: &str = "Under one operation key, changed material fields are answered rejected with reason operation_key_reused_with_different_request: nothing is done, and the first operation stays as it is. Look at it with operation_status before anything else.";

const DONE: &str = "Answer applied: the effect is made, effect_reference names it. Answer replayed: it was made before under this key, and this is the stored result; nothing was done again.";

const IN_FLIGHT: &str = "Answer in_flight: not decided yet. Ask operation_status with the operation_id; do not call this tool again for the same intent.";

const NO_EFFECT: &str = "Answer rejected: see reason and next_action. Answer failed_permanent: it was not done and this request will not be; a new operation needs a new decision of a person or of the workflow.";

/// What happens in the world, and what a second operation would do.
pub(in crate::domain::contract) fn effect(contract: &Contract) -> String {
    let what = match contract.effect_class {
        EffectClass::Read => "reads and changes nothing",
        EffectClass::NaturalIdempotent if contract.sends_version_precondition() => {
            "sets a target to a value, if the target still has the version that the arguments name"
        }
        EffectClass::NaturalIdempotent => {
            "sets a target to a value; doing it twice ends in the same state, but may overwrite a newer value"
        }
        EffectClass::KeyBased => {
            "creates or commands something, at most once for each operation key; a new key means a second effect"
        }
        EffectClass::Append => "adds to something; every new operation adds again",
        EffectClass::Irreversible => {
            "cannot be undone or is seen by others at once; a new operation key means a second effect"
        }
        EffectClass::Transactional => {
            "writes to the application's database, together with the operation's own record"
        }
    };
    match contract.repeat_side_effects.as_deref() {
        Some(effects @ [_, ..]) => {
            format!("{what}. A repetition would also cause: {}", effects.join(", "))
        }
        Some([]) | None => what.to_owned(),
    }
}

fn key(contract: &Contract) -> String {
    let notes = &contract.operation_key;
    format!(
        "Operation key: supplied by the application from tenant, environment, workflow_id and step_id, never by you; do not invent one. Created by: {}. Reused by: {}. A new key only when: {}.",
        stop(&notes.created_by),
        stop(&notes.reused_by),
        stop(&notes.new_key_when)
    )
}

fn material(contract: &Contract) -> String {
    format!("Material fields (what makes two requests the same): {}.", fields(contract).join(", "))
}

/// The material places in the author's order, with what their omission means.
pub(in crate::domain::contract) fn fields(contract: &Contract) -> Vec<String> {
    let rule = &contract.fingerprint;
    let defaulted = rule.places().into_iter().filter(|place| !rule.fields.contains(place));
    let field = |place: &Pointer| {
        let name = if place.is_root() { "all arguments".to_owned() } else { place.to_string() };
        match rule.defaults.get(place) {
            Some(default) => format!("{name} (omitted: {})", default.to_text()),
            None => name,
        }
    };
    rule.fields.iter().chain(defaulted).map(field).collect()
}

/// What `unknown` means for this tool.
fn unknown(contract: &Contract) -> String {
    let owner = contract.owner.as_ref().map_or("an operator", |o| o.reconciliation.as_str());
    let why = match contract.recoverability() {
        Recoverability::Transactional => {
            "Answer unknown is not expected of this tool; should it come, the effect may have happened."
        }
        Recoverability::ResendAlways | Recoverability::ResendWithin { .. } => {
            "Answer unknown: the effect may have happened, and the system could not find out."
        }
        Recoverability::None if contract.blind() => {
            "Answer unknown: the effect may have happened, and the system has no way to find out."
        }
        Recoverability::None => {
            "Answer unknown: the effect may have happened, and the system could not find out."
        }
    };
    format!(
        "{why} Do not repeat it, neither under this key nor under a new one; {owner} reconciles it."
    )
}

/// How an effect is found that may have been made.
pub(super) fn lookup(contract: &Contract) -> Option<String> {
    let lookup = contract.lookup()?;
    let by = if lookup.http.is_some() { "over HTTP" } else { "by the tool's own code" };
    let absent = match (lookup.authoritative, lookup.when_absent) {
        (false, _) => "that it is not there proves nothing",
        (true, AbsentRule::Resend) => "not there: sent again",
        (true, AbsentRule::Operator) => "not there: an operator decides",
    };
    let visible = match lookup.visible_after {
        Duration::ZERO => String::new(),
        after => format!(", visible after {}", duration_text(after)),
    };
    Some(format!("{by}{visible}; {absent}"))
}

/// How a provider's job is followed.
pub(super) fn poll(contract: &Contract) -> Option<String> {
    let poll = contract.poll()?;
    let (every, give_up) = (duration_text(poll.every), duration_text(poll.give_up));
    Some(format!("asked every {every}, for {give_up}; then unknown, never a second job"))
}

/// What is asked before a send.
pub(super) fn before_send(contract: &Contract) -> Option<String> {
    let authorization = contract.authorization.as_ref();
    let asked = [
        authorization.filter(|a| a.grants).map(|_| "the grants table".to_owned()),
        authorization.and_then(|a| a.http.as_ref()).map(|_| "a policy service".to_owned()),
        authorization.and_then(|a| a.code.as_ref()).map(|name| format!("authorizer {name}")),
        contract.approval.as_ref().map(|_| "a person's approval, where it applies".to_owned()),
        contract.preconditions.as_ref().map(|_| "a precondition (first send only)".to_owned()),
    ];
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    (!asked.is_empty()).then(|| format!("{}; all must allow", asked.join(", ")))
}

/// Authors end their sentences, or not.
fn stop(text: &str) -> &str {
    text.trim().trim_end_matches('.')
}

fn line(text: &mut String, line: &str) {
    text.push('\n');
    text.push_str(line);
}

fn paragraph(text: &mut String, head: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    write!(text, "\n{head}:").unwrap_or_default();
    for item in items {
        line(text, &format!("- {}", item.trim()));
    }
}
