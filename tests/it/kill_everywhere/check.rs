//! The verdict on a scenario: effects as the downstream counted them, labels, traces, what is left.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use oncebox::domain::operation::{Timestamp, Token};
use oncebox::domain::trace_review::{Allowed, Transition, review};
use oncebox::store;
use serde_json::Value;
use sqlx::Row as _;

use super::families::{Case, Family};
use super::stage::Stage;
use crate::support::world::World;

/// Where the downstream writes its effects down.
pub(super) fn journal(world: &World) -> PathBuf {
    world.contracts.join("effects.journal")
}

struct Record {
    status: String,
    reason: Option<String>,
    receipt: Option<String>,
    attempts: i32,
    lost_claims: i32,
    epoch: i64,
    may_have_been_sent: bool,
    /// Receipts of the effects that were made under its key.
    effects: Vec<String>,
    trace: Vec<Event>,
}

#[derive(Debug)]
struct Event {
    name: String,
    epoch: i64,
    detail: Value,
}

/// Waits that take the mark of their own attempt back: nothing had left.
const NOT_SENT: [&str; 5] =
    ["claim_lost", "lease_too_short", "draining", "policy_unreachable", "unreachable"];

/// What a former owner may tell late.
const NOTES: [&str; 2] = ["acknowledged", "lease_lost"];

/// Every operation of the scenario against the promises.
pub(super) async fn records(
    stage: &Stage,
    cases: &[Case],
    allowed: impl Fn(Case) -> &'static [&'static str],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases {
        let record = read(&stage.world, *case).await;
        let allowed = allowed(*case);
        let mut found = record.label(*case);
        if !allowed.contains(&record.status.as_str()) {
            found.push(format!("ended {} and not {allowed:?}", record.status));
        }
        found.extend(record.story(*case));
        found.extend(reviewed(stage, *case).await);
        let told =
            || format!("{:?} of {:?}, trace {:?}", record.reason, record.effects, record.trace);
        wrong.extend(found.iter().map(|what| format!("{}: {what}; {}", case.step(), told())));
    }
    let letters = "select reason from oncebox.dead_letters";
    let letters: Vec<String> =
        sqlx::query_scalar(letters).fetch_all(&mut stage.world.connect().await).await.unwrap();
    wrong.extend(
        letters.iter().map(|reason| format!("a good message is in dead_letters: {reason}")),
    );
    let made: usize = effects(&stage.world).values().map(Vec::len).sum();
    let total = usize::try_from(stage.downstream.total().await).unwrap();
    if made != total {
        wrong.push(format!("{total} effects were counted and {made} written down"));
    }
    wrong
}

/// What `contract check --trace` flags red.
async fn reviewed(stage: &Stage, case: Case) -> Vec<String> {
    let mut connection = stage.world.connect().await;
    let key = format!("acme:test:run:{}", case.step());
    let which = store::Which::Key { tenant: "acme".to_owned(), key };
    let record = store::look(&mut connection, &which).await.unwrap().unwrap().operation;
    let rows = store::trace(&mut connection, record.id).await.unwrap();
    let transition = |row: store::TraceRow| Transition {
        at: Timestamp(i64::try_from(row.at.unix_timestamp_nanos() / 1000).unwrap()),
        event: row.event,
        token: Token(row.epoch),
        detail: row.detail.map(|text| serde_json::from_str(&text).unwrap()),
    };
    let trace: Vec<Transition> = rows.into_iter().map(transition).collect();
    let text = std::fs::read_to_string(stage.file(case.family)).unwrap();
    let contract = oncebox::contract_file::read(&text, Duration::from_secs(1)).unwrap();
    let flags = review(&record, &trace, Some(Allowed::from(&contract))).flags;
    flags
        .iter()
        .filter(|flag| flag.kind.is_red())
        .map(|flag| format!("is flagged: {flag:?}"))
        .collect()
}

impl Record {
    /// At most one effect, and the label says which it was, that there is none, or that nobody knows.
    fn label(&self, case: Case) -> Vec<String> {
        let mut wrong = Vec::new();
        let made = self.effects.len();
        if made > 1 {
            wrong.push(format!("{made} effects under one key"));
        }
        let truth = match self.status.as_str() {
            "applied" => self.effects.first() == self.receipt.as_ref() && made == 1,
            "unknown" => self.may_have_been_sent && case.family == Family::Blind,
            "failed_permanent" => made == 0 && !self.may_have_been_sent,
            _ => false,
        };
        if !truth {
            let (status, receipt) = (&self.status, &self.receipt);
            wrong.push(format!("{status} with receipt {receipt:?} after {made} effects"));
        }
        if !(0..5).contains(&self.lost_claims) {
            wrong.push(format!("{} claims lost", self.lost_claims));
        }
        wrong
    }

    /// The trace tells of every transition that there must have been, in an order that can be.
    fn story(&self, case: Case) -> Vec<String> {
        let mut walk = Walk::default();
        for event in &self.trace {
            walk.step(event, case.family);
        }
        let mut wrong = walk.wrong;
        let named = |name: &str| self.trace.iter().filter(|event| event.name == name).count();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("its trace {what}"));
            }
        };
        check(self.trace.first().is_some_and(|event| event.name == "proposed"), "has no beginning");
        check(named("proposed") == 1 && named("validated") >= 1, "has no valid proposal");
        check(named("conflict") + named("refused") + named("rejected") == 0, "contradicts itself");
        check(
            usize::try_from(self.attempts).unwrap() <= named("sent"),
            "has fewer sends than attempts",
        );
        check(self.effects.len() <= named("sent"), "has fewer sends than effects");
        match self.status.as_str() {
            "applied" => {
                check(walk.proved && walk.ended == 1, "goes to applied without one receipt")
            }
            "unknown" => {
                check(walk.lost == 1 && named("sent") >= 1, "does not tell what is unknown")
            }
            _ => check(walk.ended == 1, "does not tell its end"),
        }
        check(walk.highest <= self.epoch, "knows a token that the record does not");
        wrong
    }
}

/// What is known at one point of a trace.
#[derive(Default)]
struct Walk {
    claimed: Option<i64>,
    last_claim: i64,
    highest: i64,
    /// A send of which nothing has proved that it did nothing.
    open: bool,
    /// The same when the claim was taken.
    open_before: bool,
    proved: bool,
    /// Became unknown so many times, and ended.
    lost: usize,
    ended: usize,
    wrong: Vec<String>,
}

impl Walk {
    fn step(&mut self, event: &Event, family: Family) {
        let Event { name, epoch, detail } = event;
        let told = |member: &str| detail[member].as_str().unwrap_or_default();
        if !NOTES.contains(&name.as_str()) && *epoch > 0 {
            self.must(*epoch >= self.highest, "a token goes back");
            self.highest = self.highest.max(*epoch);
        }
        match name.as_str() {
            "claimed" => {
                self.must(*epoch > self.last_claim, "two claims have one token");
                self.must(self.claimed.is_none(), "claimed although another claim stood");
                (self.claimed, self.last_claim, self.open_before) =
                    (Some(*epoch), *epoch, self.open);
            }
            "sent" => {
                self.must(self.claimed == Some(*epoch), "sent without a claim");
                self.must(
                    !self.open || family == Family::Deduplicating,
                    "sent again without proof",
                );
                self.open = true;
            }
            "lease_lost" if !detail.is_null() => self.claimed = None,
            "retry_scheduled" => {
                if NOT_SENT.contains(&told("why")) {
                    self.open = self.open_before;
                }
                self.claimed = None;
            }
            "accepted" => self.claimed = None,
            "reconciled" if told("found") == "absent" => self.open = false,
            "committed" if told("ambiguous").is_empty() => self.proved = true,
            "settled" => {
                self.claimed = None;
                self.ended += 1;
            }
            // Without a reason it is a delivery's, which found the record unknown.
            "unknown" if !told("reason").is_empty() => {
                self.claimed = None;
                self.lost += 1;
            }
            "resolved" => {
                self.proved = true;
                self.ended += 1;
            }
            _ => {}
        }
    }

    fn must(&mut self, holds: bool, what: &str) {
        if !holds {
            self.wrong.push(what.to_owned());
        }
    }
}

/// The receipt that the downstream has for this case, if it made its effect.
pub(super) async fn receipt(world: &World, case: Case) -> Option<String> {
    read(world, case).await.effects.into_iter().next()
}

async fn read(world: &World, case: Case) -> Record {
    let mut connection = world.connect().await;
    let key = format!("acme:test:run:{}", case.step());
    let row = sqlx::query(
        "select operation_id, status, reason, effect_reference, downstream_key, attempts, lost_claims, claim_epoch, \
                first_sent_at is not null as may_have_been_sent \
         from oncebox.operations where operation_key = $1",
    )
    .bind(&key)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    let id: uuid::Uuid = row.get("operation_id");
    let counted_under = match case.family {
        Family::Deduplicating | Family::LookedUp => {
            row.get::<Option<String>, _>("downstream_key").unwrap_or_default()
        }
        Family::Blind => id.to_string(),
    };
    let trace = sqlx::query(
        "select event, claim_epoch, coalesce(detail::text, 'null') as detail \
         from oncebox.operation_events where operation_id = $1 order by event_id",
    )
    .bind(id)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let event = |row: &sqlx::postgres::PgRow| Event {
        name: row.get("event"),
        epoch: row.get("claim_epoch"),
        detail: serde_json::from_str(row.get("detail")).unwrap(),
    };
    Record {
        status: row.get("status"),
        reason: row.get("reason"),
        receipt: row.get("effect_reference"),
        attempts: row.get("attempts"),
        lost_claims: row.get("lost_claims"),
        epoch: row.get("claim_epoch"),
        may_have_been_sent: row.get("may_have_been_sent"),
        effects: effects(world).remove(&counted_under).unwrap_or_default(),
        trace: trace.iter().map(event).collect(),
    }
}

/// Receipts by the key that they were made under.
fn effects(world: &World) -> HashMap<String, Vec<String>> {
    let mut effects: HashMap<String, Vec<String>> = HashMap::new();
    for line in std::fs::read_to_string(journal(world)).unwrap().lines() {
        let effect: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| effect[name].as_str().unwrap().to_owned();
        effects.entry(text("key")).or_default().push(text("id"));
    }
    effects
}
