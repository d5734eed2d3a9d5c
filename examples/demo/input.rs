//! The files that are submitted: operations, and other requests under the same keys.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Fault;

const TICKETS: u32 = 3900;
/// Each of them waits for a person, who is a process here.
const MAILS: u32 = 100;

/// Every so many lines has its request changed later, under the key that it used.
const CHANGED_EVERY: usize = 10;

/// What is submitted.
pub(crate) struct Input {
    pub(crate) file: PathBuf,
    pub(crate) lines: Vec<Value>,
    pub(crate) changed_file: PathBuf,
    pub(crate) changed: Vec<Value>,
}

/// Writes both files.
pub(crate) fn write(run: &Path) -> Result<Input, Fault> {
    let lines: Vec<Value> = (1..=TICKETS + MAILS).map(operation).collect();
    let changed: Vec<Value> = lines.iter().step_by(CHANGED_EVERY).cloned().map(change).collect();
    let (file, changed_file) = (run.join("operations.ndjson"), run.join("changed.ndjson"));
    for (path, objects) in [(&file, &lines), (&changed_file, &changed)] {
        let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
        std::fs::write(path, text)?;
    }
    Ok(Input { file, lines, changed_file, changed })
}

/// Line `number`: each fortieth is a mail, the others are tickets; two tenants take turns.
fn operation(number: u32) -> Value {
    let tenant = if number.is_multiple_of(2) { "acme" } else { "globex" };
    let (tool, step, arguments) = if number.is_multiple_of((TICKETS + MAILS) / MAILS) {
        let mail = json!({
            "to": format!("customer-{number}@example.org"),
            "subject": format!("Your order {number}"),
            "body": format!("Order {number} is on its way."),
        });
        ("mail.send", "tell-customer", mail)
    } else {
        let ticket = json!({
            "queue_id": "support",
            "subject": format!("Issue {number}"),
            "body": format!("The customer reports issue {number}."),
        });
        ("tickets.create", "record-issue", ticket)
    };
    json!({
        "tenant": tenant,
        "environment": "production",
        // The colon is escaped in the key.
        "workflow_id": format!("import:{number}"),
        "step_id": step,
        "tool": tool,
        "arguments": arguments,
        "actor": "importer",
    })
}

/// The same key, another request.
fn change(mut operation: Value) -> Value {
    if let Some(body) = operation.pointer_mut("/arguments/body") {
        *body = json!("Something else altogether.");
    }
    operation
}
