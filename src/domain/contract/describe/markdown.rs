//! A page for people.

use crate::domain::contract::{Contract, HttpRequest, duration_text};

use super::words;

/// What each answer means, whatever the tool.
const ANSWERS: &str = "\
| answer | meaning | next |
|---|---|---|
| applied, replayed | done; `effect_reference` names the effect. replayed: done before, nothing was done again | nothing |
| in_flight | not decided yet | ask again later by the same key: `oncebox ops show`, or the same submission at the SQL door; a model asks `operation_status`; never under a new key |
| rejected | nothing was done under this request; `reason` says why. `operation_key_reused_with_different_request`: the key stands for other material fields, and the first operation is untouched | by `next_action` |
| unknown | the effect may have happened | reconcile; no repetition, under no key |
| failed_permanent | not done, and never will be | a new operation, after a new decision |
";

pub(super) fn page(contracts: &[&Contract]) -> String {
    let mut page: Vec<String> = contracts.iter().map(|contract| tool(contract)).collect();
    page.push(format!("# operation_status\n\n{}\n", words::STATUS.replace('\n', "\n\n")));
    page.push(format!("# Answers\n\n{ANSWERS}"));
    page.join("\n")
}

fn tool(contract: &Contract) -> String {
    let mut text = format!("# {} ({})\n\n", contract.tool, contract.version);
    text.push_str(&format!("{}\n\n", contract.purpose.trim()));
    text.push_str(&items("Use it when", &contract.use_when));
    text.push_str(&items("Do not use it when", &contract.do_not_use_when));
    text.push_str("| | |\n|---|---|\n");
    for (name, value) in rows(contract) {
        text.push_str(&format!("| {name} | {} |\n", value.replace('|', "\\|").replace('\n', " ")));
    }
    text
}

fn items(head: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let list: Vec<String> = items.iter().map(|item| format!("- {}", item.trim())).collect();
    format!("{head}:\n\n{}\n\n", list.join("\n"))
}

fn rows(contract: &Contract) -> Vec<(&'static str, String)> {
    let notes = &contract.operation_key;
    let retry = &contract.retry;
    let mut rows = vec![
        (
            "effect class",
            format!("`{}`: {}", contract.effect_class.as_str(), words::effect(contract)),
        ),
        (
            "operation key",
            "supplied by the application: tenant, environment, workflow_id, step_id".to_owned(),
        ),
        ("key created by", notes.created_by.clone()),
        ("key reused by", notes.reused_by.clone()),
        ("new key when", notes.new_key_when.clone()),
        ("material fields", words::fields(contract).join(", ")),
        ("after the effect, before the acknowledgement", contract.after_effect_before_ack()),
        (
            "attempts",
            format!(
                "at most {}, {} to {} apart; nothing sent for {}: given up",
                retry.attempts,
                duration_text(retry.initial),
                duration_text(retry.max),
                duration_text(retry.give_up)
            ),
        ),
    ];
    if let Some(http) = contract.http() {
        rows.push(("answers of the downstream", answers(http)));
    }
    let asked = [
        ("asked before a send", words::before_send(contract)),
        ("looked up", words::lookup(contract)),
        ("provider's job", words::poll(contract)),
        (
            "asked after the effect",
            contract.postcondition.as_ref().map(|_| "a postcondition; failing: unknown".to_owned()),
        ),
    ];
    rows.extend(asked.into_iter().filter_map(|(name, text)| Some((name, text?))));
    if let Some(owner) = &contract.owner {
        let within = owner.respond_within.map(|span| format!(", within {}", duration_text(span)));
        rows.push((
            "unknown goes to",
            format!("{}{}", owner.reconciliation, within.unwrap_or_default()),
        ));
    }
    rows
}

fn answers(http: &HttpRequest) -> String {
    let list = |(name, statuses): (&str, &[u16])| {
        let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        (!statuses.is_empty()).then(|| format!("{name} {}", statuses.join(" ")))
    };
    let mut lists: Vec<String> = http.status_lists().into_iter().filter_map(list).collect();
    lists.push("401 403 the deployment's fault".to_owned());
    lists.push("any other proves nothing".to_owned());
    lists.join("; ")
}
