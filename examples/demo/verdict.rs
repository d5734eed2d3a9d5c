//! What must hold, whatever was killed: one check a promise, each with what broke it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::books::{Books, Record};
use crate::input::Input;
use crate::stories::{self, Story};
use crate::submitting::{Envelope, ROLLBACK_EVERY, Sent, Summary};

/// One promise, and what was found against it.
pub(crate) struct Check {
    pub(crate) promise: &'static str,
    pub(crate) broken: Vec<String>,
}

impl Check {
    pub(crate) fn held(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Compares the books.
pub(crate) fn judge(
    books: &Books,
    input: &Input,
    sent: &Sent,
    stories: &[Story],
    undrained: &[String],
) -> Vec<Check> {
    let check = |promise, broken| Check { promise, broken };
    vec![
        check("no key has two effects", twice(books)),
        check("no operation vanished", vanished(books, input, sent)),
        check("what was rolled back left no operation", from_nothing(books, input, sent)),
        check(
            "every applied operation has its effect, and the receipt of it",
            without_effect(books),
        ),
        check("every effect belongs to an operation that does not deny it", denied(books)),
        check("every operation has ended", unended(books)),
        check("every repeated submission was absorbed", unabsorbed(sent)),
        check("every changed request under a used key was refused", unrefused(input, sent)),
        check("every story ended as it should", stories.iter().filter_map(Story::broken).collect()),
        check("every role drained and ended when it was told to", undrained.to_vec()),
    ]
}

/// By the service's counter and by its journal, which must agree.
fn twice(books: &Books) -> Vec<String> {
    let mut journal: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &books.journal {
        *journal.entry(entry.key.clone()).or_default() += 1;
    }
    let mut broken: Vec<String> = journal
        .iter()
        .chain(&books.effects.by_key)
        .filter(|(_, effects)| **effects > 1)
        .map(|(key, effects)| format!("{effects} effects under {key}"))
        .collect();
    if journal != books.effects.by_key || journal.values().sum::<u64>() != books.effects.total {
        broken.push("the service's counter and its journal disagree".to_owned());
    }
    broken
}

/// Every line of the file, and every row that an application committed, has its operation.
fn vanished(books: &Books, input: &Input, sent: &Sent) -> Vec<String> {
    let known: BTreeSet<&str> = books.records.iter().map(|record| record.id.as_str()).collect();
    let mut broken = Vec::new();
    if sent.first.len() != input.lines.len() {
        broken.push(format!("{} answers to {} lines", sent.first.len(), input.lines.len()));
    }
    for (number, envelope) in sent.first.iter().enumerate() {
        if !envelope.operation_id.as_deref().is_some_and(|id| known.contains(id)) {
            broken.push(format!("line {} of the file", number + 1));
        }
    }
    for (id, number) in books.invoices.iter().chain(&books.orders) {
        if !known.contains(id.as_str()) {
            broken.push(format!("{number}, which its application committed"));
        }
    }
    let promised =
        [Some((&sent.rust, &books.invoices)), sent.python.as_ref().map(|p| (p, &books.orders))];
    for ((first, _), rows) in promised.into_iter().flatten() {
        if usize::try_from(first.committed).ok() != Some(rows.len()) {
            broken.push(format!("{} transactions committed, {} rows", first.committed, rows.len()));
        }
    }
    broken
}

/// Every operation was asked for by a line, or by a row that is still there.
fn from_nothing(books: &Books, input: &Input, sent: &Sent) -> Vec<String> {
    let rows: HashMap<&str, &str> = books
        .invoices
        .iter()
        .chain(&books.orders)
        .map(|(id, number)| (id.as_str(), number.as_str()))
        .collect();
    let mut broken = Vec::new();
    let told = |record: &&Record| record.actor.as_deref() == Some(stories::ACTOR);
    let stories = books.records.iter().filter(told).count();
    let others = |record: &&Record| !told(record) && record.actor.as_deref() != Some("importer");
    for record in books.records.iter().filter(others) {
        if !rows.contains_key(record.id.as_str()) {
            broken.push(format!("{} has an operation and no business row", record.key));
        }
    }
    let rolled_back = |number: &&&str| {
        let number = number.rsplit('-').next().and_then(|number| number.parse::<u32>().ok());
        number.is_none_or(|number| number.is_multiple_of(ROLLBACK_EVERY))
    };
    for number in rows.values().filter(rolled_back) {
        broken.push(format!("{number} was rolled back and has a business row"));
    }
    let distinct = |envelopes: &[Envelope]| {
        envelopes
            .iter()
            .filter_map(|envelope| envelope.operation_id.clone())
            .collect::<BTreeSet<_>>()
            .len()
    };
    if distinct(&sent.first) != input.lines.len()
        || books.records.len() != input.lines.len() + rows.len() + stories
    {
        let (records, lines) = (books.records.len(), input.lines.len());
        broken.push(format!("{records} operations for {lines} lines and {} rows", rows.len()));
    }
    broken
}

fn without_effect(books: &Books) -> Vec<String> {
    let receipts: HashMap<&str, &str> =
        books.journal.iter().map(|entry| (entry.key.as_str(), entry.id.as_str())).collect();
    let wrong = |record: &&Record| {
        record.status == "applied"
            && (record.receipt.is_none()
                || receipts.get(record.at_service()).copied() != record.receipt.as_deref())
    };
    books.records.iter().filter(wrong).map(|record| record.key.clone()).collect()
}

fn denied(books: &Books) -> Vec<String> {
    let records: HashMap<(&str, &str), &Record> = books
        .records
        .iter()
        .map(|record| {
            let kind = if record.tool == "mail.send" { "mail" } else { "ticket" };
            ((kind, record.at_service()), record)
        })
        .collect();
    books
        .journal
        .iter()
        .filter_map(|entry| match records.get(&(entry.kind.as_str(), entry.key.as_str())) {
            None => Some(format!("{} belongs to no operation", entry.id)),
            Some(record) if ["applied", "unknown"].contains(&record.status.as_str()) => None,
            Some(record) => Some(format!("{}: {} is {}", entry.id, record.key, record.status)),
        })
        .collect()
}

fn unended(books: &Books) -> Vec<String> {
    let mut broken: Vec<String> = books
        .records
        .iter()
        .filter(|record| record.status == "pending")
        .map(|record| record.key.clone())
        .collect();
    if books.outbox_rows != 0 {
        broken.push(format!("{} messages were never published", books.outbox_rows));
    }
    broken
}

/// A repetition is told about the operation that is there; it never makes another.
fn unabsorbed(sent: &Sent) -> Vec<String> {
    let mut broken = Vec::new();
    if sent.first.len() != sent.second.len() {
        broken.push(format!("{} answers, then {}", sent.first.len(), sent.second.len()));
    }
    for (number, (first, second)) in sent.first.iter().zip(&sent.second).enumerate() {
        if second.operation_id != first.operation_id || second.status == "rejected" {
            broken.push(format!("line {}: {}", number + 1, second.status));
        }
    }
    let publishers =
        [Some(("publisher.rs", &sent.rust)), sent.python.as_ref().map(|p| ("publish.py", p))];
    for (name, (first, second)) in publishers.into_iter().flatten() {
        let same = |summary: &Summary| (summary.committed, summary.rolled_back);
        if same(first) != same(second) || second.by_status.contains_key("rejected") {
            broken.push(format!("{name}: the second run was not told what the first was"));
        }
    }
    broken
}

fn unrefused(input: &Input, sent: &Sent) -> Vec<String> {
    let mut broken = Vec::new();
    if sent.changed.len() != input.changed.len() {
        broken.push(format!("{} answers to {} lines", sent.changed.len(), input.changed.len()));
    }
    for (number, envelope) in sent.changed.iter().enumerate() {
        let reused = "operation_key_reused_with_different_request";
        if envelope.status != "rejected" || envelope.reason.as_deref() != Some(reused) {
            broken.push(format!("line {}: {}", number + 1, envelope.status));
        }
    }
    broken
}
