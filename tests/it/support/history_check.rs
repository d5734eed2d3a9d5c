//! The comparison behind [`super::history::History::check`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::Value;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::history::Knows;
use super::world::World;

/// How many of what.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) by_ending: BTreeMap<String, usize>,
    pub(crate) operations: usize,
    pub(crate) effects: usize,
    pub(crate) lost_claims: usize,
    pub(crate) sends: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} effects, {} sends, {} leases lost; ",
            self.operations, self.effects, self.sends, self.lost_claims
        )?;
        let endings = self.by_ending.iter().map(|(ending, count)| format!("{ending}: {count}"));
        f.write_str(&endings.collect::<Vec<_>>().join(", "))
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) wrong: Vec<String>,
    pub(crate) report: Report,
}

struct Record {
    id: Uuid,
    step: String,
    /// Whether its downstream deduplicates on the downstream key; else it counts by operation id.
    deduplicates: bool,
    status: String,
    more: String,
    reference: Option<String>,
    downstream_key: Option<String>,
    attempts: i32,
    lost_claims: i32,
    epoch: i64,
}

/// Events that a former owner may tell of later. What changes no record carries no token at all.
const NOTES: [&str; 2] = ["acknowledged", "lease_lost"];

impl Findings {
    pub(super) async fn gather(
        world: &World,
        known: &BTreeMap<String, Knows>,
        journal: &str,
    ) -> Self {
        let mut findings = Self::default();
        let mut effects = effects(journal);
        findings.report.effects = effects.values().map(Vec::len).sum();
        let records = records(world).await;
        findings.nothing_lost(world, known, &records).await;
        let traces = traces(world).await;
        for record in &records {
            let key = if record.deduplicates {
                record.downstream_key.clone().unwrap_or_default()
            } else {
                record.id.to_string()
            };
            let made = effects.remove(&key).unwrap_or_default();
            findings.label(record, &made);
            findings.trace(record, &made, traces.get(&record.id).map_or(&[][..], Vec::as_slice));
            let ending = format!("{} {}", record.status, record.more);
            *findings.report.by_ending.entry(ending.trim().to_owned()).or_default() += 1;
        }
        findings.report.operations = records.len();
        for (key, made) in effects {
            findings.wrong.push(format!("{} effects belong to no record: {key}", made.len()));
        }
        findings.nothing_left(world).await;
        findings
    }

    fn say(&mut self, record: &Record, what: impl fmt::Display) {
        self.wrong.push(format!("{} ({}, {}): {what}", record.step, record.status, record.more));
    }

    /// Committed means there, with its business row; not committed means neither is there.
    async fn nothing_lost(
        &mut self,
        world: &World,
        known: &BTreeMap<String, Knows>,
        records: &[Record],
    ) {
        let mut connection = world.connect().await;
        let orders: Vec<String> = sqlx::query_scalar("select step from public.orders")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        for (step, knows) in known {
            let recorded = records.iter().any(|record| record.step == *step);
            let ordered = orders.contains(step);
            if recorded != ordered {
                self.wrong.push(format!("{step}: business row {ordered}, record {recorded}"));
            }
            match knows {
                Knows::Committed if !recorded => {
                    self.wrong.push(format!("{step}: was acknowledged and is lost"));
                }
                Knows::NotCommitted if recorded => {
                    self.wrong
                        .push(format!("{step}: is there although its transaction never committed"));
                }
                Knows::Committed | Knows::NotCommitted | Knows::InDoubt => {}
            }
        }
        for record in records.iter().filter(|record| !known.contains_key(&record.step)) {
            self.wrong.push(format!("{}: nobody submitted it", record.step));
        }
    }

    fn label(&mut self, record: &Record, made: &[String]) {
        let true_label = match (record.status.as_str(), made) {
            ("applied", [only]) => record.reference.as_ref() == Some(only),
            // The tool that deduplicates always finds out in the end.
            ("unknown", made) => !record.deduplicates && made.len() <= 1,
            ("failed_permanent" | "rejected", made) => !record.deduplicates && made.is_empty(),
            _ => false,
        };
        if !true_label {
            let reference = record.reference.as_deref().unwrap_or("none");
            self.say(record, format_args!("receipt {reference}, effects {made:?}"));
        }
    }

    fn trace(&mut self, record: &Record, made: &[String], trace: &[(String, i64)]) {
        let count = |name: &str| trace.iter().filter(|(event, _)| event == name).count();
        let sent = count("sent");
        self.report.sends += sent;
        self.report.lost_claims += count("lease_lost");
        if trace.first().is_none_or(|(event, _)| event != "proposed") {
            self.say(record, "its trace does not begin with `proposed`");
        }
        let applied = record.status == "applied";
        if applied && (count("committed") == 0 || count("settled") != 1) {
            self.say(record, format_args!("applied without one receipt in its trace: {trace:?}"));
        }
        if made.len() > sent {
            self.say(record, format_args!("{} effects of {sent} sends", made.len()));
        }
        let attempts = usize::try_from(record.attempts).unwrap();
        if attempts > sent || (applied && attempts == 0) {
            self.say(record, format_args!("{attempts} attempts of {sent} sends"));
        }
        // Never sent twice; what did not leave, or was turned away, is taken back.
        if applied && !record.deduplicates && attempts != 1 {
            self.say(record, format_args!("{attempts} attempts of a blind tool: {trace:?}"));
        }
        if !(0..=5).contains(&record.lost_claims) {
            self.say(record, format_args!("{} claims lost", record.lost_claims));
        }
        let claims = trace.iter().filter(|(event, _)| event == "claimed");
        let claims: Vec<i64> = claims.map(|(_, epoch)| *epoch).collect();
        if !claims.is_sorted_by(|earlier, later| earlier < later) {
            self.say(record, format_args!("one token for two claims: {claims:?}"));
        }
        let steps =
            trace.iter().filter(|(event, epoch)| *epoch > 0 && !NOTES.contains(&event.as_str()));
        let steps: Vec<i64> = steps.map(|(_, epoch)| *epoch).collect();
        if !steps.is_sorted() || steps.last().is_some_and(|last| *last > record.epoch) {
            self.say(record, format_args!("its token went back: {trace:?}, now {}", record.epoch));
        }
    }

    /// Nothing of oncebox still stands in a transaction, and nothing waits to be published.
    async fn nothing_left(&mut self, world: &World) {
        let open = world
            .count("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'")
            .await;
        if open > 0 {
            self.wrong.push(format!("{open} connections are left inside a transaction"));
        }
        let rows = world.count("select count(*) from oncebox.outbox").await;
        if rows > 0 {
            self.wrong.push(format!("{rows} rows are left in the outbox"));
        }
        let dead = world.count("select count(*) from oncebox.dead_letters").await;
        if dead > 0 {
            self.wrong.push(format!("{dead} good messages are in dead_letters"));
        }
    }
}

/// Receipts by the key that the downstream counts under.
fn effects(journal: &str) -> HashMap<String, Vec<String>> {
    let mut effects: HashMap<String, Vec<String>> = HashMap::new();
    for line in journal.lines() {
        let effect: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| effect[name].as_str().unwrap().to_owned();
        effects.entry(text("key")).or_default().push(text("id"));
    }
    effects
}

async fn records(world: &World) -> Vec<Record> {
    let mut connection = world.connect().await;
    let rows = sqlx::query(
        "select operation_id, operation_key, tool_name, status, coalesce(phase, reason, '') as more, effect_reference, \
         downstream_key, attempts, lost_claims, claim_epoch from oncebox.operations order by operation_key",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    rows.iter().map(record).collect()
}

fn record(row: &PgRow) -> Record {
    let key: String = row.get("operation_key");
    Record {
        id: row.get("operation_id"),
        step: key.rsplit_once(':').unwrap().1.to_owned(),
        deduplicates: row.get::<String, _>("tool_name") == "tickets.create",
        status: row.get("status"),
        more: row.get("more"),
        reference: row.get("effect_reference"),
        downstream_key: row.get("downstream_key"),
        attempts: row.get("attempts"),
        lost_claims: row.get("lost_claims"),
        epoch: row.get("claim_epoch"),
    }
}

async fn traces(world: &World) -> HashMap<Uuid, Vec<(String, i64)>> {
    let mut connection = world.connect().await;
    let rows: Vec<(Uuid, String, i64)> = sqlx::query_as(
        "select operation_id, event, claim_epoch from oncebox.operation_events order by event_id",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut traces: HashMap<Uuid, Vec<(String, i64)>> = HashMap::new();
    for (operation, event, epoch) in rows {
        traces.entry(operation).or_default().push((event, epoch));
    }
    traces
}
