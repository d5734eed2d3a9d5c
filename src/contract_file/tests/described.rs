//! What people and models are told.

use serde_json::Value;

use crate::domain::contract::describe::{DescribeError, Format, describe};

use super::*;

fn described(texts: &[&str], format: Format) -> Value {
    let contracts: Vec<Contract> = texts.iter().map(|text| contract(text)).collect();
    let contracts: Vec<&Contract> = contracts.iter().collect();
    serde_json::from_str(&describe(&contracts, format).unwrap()).unwrap()
}

/// What every description of an effect must say, in any format.
const KEY_FACTS: [&str; 12] = [
    "Create one support ticket",
    "Use it when:",
    "Do not use it when:",
    "Effect: creates or commands something, at most once for each operation key",
    "supplied by the application",
    "do not invent one",
    "A new key only when: the user asks for a second ticket",
    "Material fields (what makes two requests the same): /queue_id, /subject, /body",
    "operation_key_reused_with_different_request: nothing is done",
    "Answer in_flight: not decided yet. Ask operation_status",
    "Answer unknown: the effect may have happened",
    "neither under this key nor under a new one; support-platform reconciles it",
];

fn states_the_facts(description: &Value) {
    let text = description.as_str().unwrap();
    for fact in KEY_FACTS {
        assert!(text.contains(fact), "{fact:?} is missing in:\n{text}");
    }
}

#[test]
fn openai_tools_have_names_that_the_api_takes() {
    let tools = described(&[TICKETS, MAIL], Format::OpenAi);
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().filter_map(|t| t["function"]["name"].as_str()).collect();
    assert_eq!(names, ["tickets_create", "mail_send", "operation_status"]);
    assert_eq!(tools[0]["type"], "function");
    states_the_facts(&tools[0]["function"]["description"]);
    assert_eq!(tools[0]["function"]["parameters"], contract(TICKETS).arguments);
    assert!(
        tools[1]["function"]["description"].as_str().unwrap().contains("has no way to find out")
    );
    assert!(
        tools[1]["function"]["description"].as_str().unwrap().contains("would also cause: mail")
    );
}

#[test]
fn anthropic_tools_carry_their_schema() {
    let tools = described(&[TICKETS], Format::Anthropic);
    assert_eq!(tools[0]["name"], "tickets_create");
    assert_eq!(tools[0]["input_schema"], contract(TICKETS).arguments);
    states_the_facts(&tools[0]["description"]);
    assert_eq!(tools[1]["name"], "operation_status");
    assert_eq!(tools[1]["input_schema"]["required"][0], "operation_id");
    assert!(tools[1]["description"].as_str().unwrap().contains("Has no effect"));
}

#[test]
fn mcp_hints_claim_what_the_contract_holds_and_no_more() {
    let check =
        |class: &str, effects: &str, [read_only, destructive, idempotent, open]: [bool; 4]| {
            let (start, _) = TICKETS.split_once("downstream:").unwrap();
            let text = changed(start, "effect_class: key_based", &format!("effect_class: {class}"));
            let text = changed(&text, "repeat_side_effects: none", effects);
            let tools = described(&[&text], Format::Mcp);
            let hints = &tools["tools"][0]["annotations"];
            assert_eq!(hints["readOnlyHint"], read_only, "{class} {effects}");
            assert_eq!(hints["destructiveHint"], destructive, "{class} {effects}");
            assert_eq!(hints["idempotentHint"], idempotent, "{class} {effects}");
            assert_eq!(hints["openWorldHint"], open, "{class} {effects}");
        };
    let (none, audit) = ("repeat_side_effects: none", "repeat_side_effects: [audit]");
    check("read", none, [true, false, true, true]);
    check("read", audit, [false, false, false, true]);
    check("natural_idempotent", none, [false, true, true, true]);
    check("natural_idempotent", audit, [false, true, false, true]);
    check("natural_idempotent", "", [false, true, false, true]);
    check("key_based", none, [false, true, false, true]);
    check("append", none, [false, false, false, true]);
    check("irreversible", none, [false, true, false, true]);
    check("transactional", none, [false, true, false, false]);
}

#[test]
fn mcp_lists_tools_by_their_own_names_and_one_that_asks() {
    let tools = described(&[TICKETS, MAIL], Format::Mcp);
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(names, ["tickets.create", "mail.send", "operation_status"]);
    states_the_facts(&tools["tools"][0]["description"]);
    assert_eq!(tools["tools"][2]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools["tools"][2]["inputSchema"]["type"], "object");
}

#[test]
fn numbers_of_a_schema_reach_the_model_as_they_were_written() {
    let all = contract(EVERYTHING);
    for format in [Format::OpenAi, Format::Anthropic, Format::Mcp] {
        let text = describe(&[&all], format).unwrap();
        assert!(text.contains("\"default\": 9007199254740993"), "{text}");
        assert!(text.contains("/amount (omitted: 1.0)"), "{text}");
    }
}

#[test]
fn markdown_holds_a_page_a_tool_and_what_answers_mean() {
    let (tickets, mail) = (contract(TICKETS), contract(MAIL));
    let page = describe(&[&tickets, &mail], Format::Markdown).unwrap();
    for part in [
        "# tickets.create (2026-08-19)\n",
        "# mail.send (2026-08-19)\n",
        "# operation_status\n",
        "The application wires this tool up",
        "`oncebox ops show`",
        "# Answers\n",
        "| material fields | /to, /subject, /body |",
        "| unknown goes to | support-platform, within 4h |",
        "applied 200 201; refused 400 404 422; not_now 429; 401 403 the deployment's fault; any other proves nothing",
        "at most 12, 1s to 5m apart; nothing sent for 3d: given up",
        "customer-messaging decides",
    ] {
        assert!(page.contains(part), "{part:?} is missing in:\n{page}");
    }
    assert!(!page.contains("/v1/"), "there is no HTTP API yet:\n{page}");
}

#[test]
fn markdown_says_who_is_asked_and_when() {
    let all = contract(&changed(
        EVERYTHING,
        "{grants: true}",
        "{grants: true, code: staff, http: {url: \"http://h/\"}}",
    ));
    let page = describe(&[&all], Format::Markdown).unwrap();
    for part in [
        "| asked before a send | the grants table, a policy service, authorizer staff, a person's approval, where it applies, a precondition (first send only); all must allow |",
        "| looked up | over HTTP, visible after 10s; not there: sent again |",
        "| provider's job | asked every 5s, for 1h; then unknown, never a second job |",
        "| asked after the effect | a postcondition; failing: unknown |",
    ] {
        assert!(page.contains(part), "{part:?} is missing in:\n{page}");
    }
    let page = describe(&[&contract(TICKETS)], Format::Markdown).unwrap();
    assert!(!page.contains("asked before") && !page.contains("looked up"), "{page}");
}

#[test]
fn schema_is_the_form_of_a_file_and_says_so() {
    let schema = described(&[], Format::Schema);
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(jsonschema::meta::is_valid(&schema));
    closed(&schema, "");
}

/// Every object that names its members takes no other ones.
fn closed(schema: &Value, place: &str) {
    if schema.get("properties").is_some_and(|p| p.is_object()) && schema.get("type").is_some() {
        assert_eq!(schema["additionalProperties"], false, "{place}");
    }
    match schema {
        Value::Object(members) => {
            members.iter().for_each(|(name, inner)| closed(inner, &format!("{place}/{name}")))
        }
        Value::Array(items) => items.iter().for_each(|inner| closed(inner, place)),
        _ => {}
    }
}

#[test]
fn two_tools_with_one_name_are_not_described_together() {
    let dashed = contract(&changed(TICKETS, "name: tickets.create", "name: tickets_create"));
    let tickets = contract(TICKETS);
    for (format, same) in [
        (Format::OpenAi, true),
        (Format::Anthropic, true),
        (Format::Mcp, false),
        (Format::Markdown, false),
    ] {
        let result = describe(&[&tickets, &dashed], format);
        assert_eq!(result.is_err(), same, "{format:?}");
    }
    let status = contract(&changed(TICKETS, "name: tickets.create", "name: operation_status"));
    assert_eq!(
        describe(&[&status], Format::Mcp),
        Err(DescribeError::SameName("operation_status".to_owned(), "operation_status".to_owned()))
    );
}
