//! Claims a batch of deliveries in one transaction: lock, decide, write, commit.
//!
//! A row that is busy never delays the batch: it is passed over, and asked for again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::around::{Candidate, Known};
use super::arrived::Arrived;
use super::bounds::Bounds;
use super::served::Served;
use super::share::Share;
use crate::domain::claim::{
    Around, Claim, Claimant, Predecessor, Purpose, Recomputed, Run, decide,
};
use crate::domain::json::{Json, JsonLimits};
use crate::domain::lifecycle::State;
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::parking::park;
use crate::domain::reason::Reason;
use crate::domain::step::Step;
use crate::serving::Serving;
use crate::store::{self, Connection, DeadLetter, Loaded, Noted, StoreError};
use crate::tool::DownstreamSecret;

/// When a worker without the version looks whether another has it.
const OTHER_VERSION_WAIT: Duration = Duration::from_secs(10);

/// How long nobody must have had a version before its operations are parked.
const VERSION_UNKNOWN_AFTER: Duration = Duration::from_secs(60);

/// What a claim needs to know of its worker.
#[derive(Debug)]
pub(super) struct Claiming {
    pub(super) served: Arc<Served>,
    pub(super) owner: String,
    pub(super) secret: DownstreamSecret,
    pub(super) limits: JsonLimits,
}

impl Claiming {
    pub(super) fn share(&self, tool: &str) -> Option<&Share> {
        self.served.lane(tool).and_then(|lane| lane.share())
    }
}

/// What is to be done with a delivery, once the transaction has committed.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Make the effect.
    Run(Box<Started>),
    /// It is dealt with: ack.
    Ack,
    /// Its row was locked by somebody: ask again.
    Busy,
    /// Ask again when nothing else runs here.
    Alone,
    /// All processes together have as many of its tool's effects as there may be: it stays unclaimed.
    Full,
}

/// A claim that leads to an attempt.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) run: Run,
    pub(super) serving: Arc<Serving>,
    pub(super) arguments: Json,
}

/// One batch's verdicts, by operation, and what else its transaction writes.
#[derive(Debug, Default)]
struct Plan {
    verdicts: HashMap<Uuid, Verdict>,
    steps: Vec<Step>,
    notes: Vec<Noted>,
    later: Vec<Uuid>,
    letters: Vec<DeadLetter>,
    bounds: Bounds,
}

/// Claims what `asks` name. The verdicts hold only once the caller has committed.
pub(super) async fn claim(
    connection: &mut Connection,
    asks: &[Arrived],
    claiming: &Claiming,
    alone: bool,
) -> Result<HashMap<Uuid, Verdict>, StoreError> {
    let mut by_operation: BTreeMap<Uuid, Vec<&Arrived>> = BTreeMap::new();
    for ask in asks {
        by_operation.entry(ask.operation).or_default().push(ask);
    }
    let ids: Vec<Uuid> = by_operation.keys().copied().collect();
    let locked = store::lock_free(connection, &ids).await?;
    let mut plan = Plan::default();
    plan.missing(connection, &locked, &by_operation).await?;
    let ordered: Vec<Uuid> =
        locked.iter().filter(|l| takes_part(&l.operation)).map(|l| l.operation.id).collect();
    let predecessors = store::predecessors(connection, &ordered).await?;
    let candidates: Vec<Candidate> = locked
        .into_iter()
        .map(|loaded| {
            let predecessor = if takes_part(&loaded.operation) {
                predecessors.get(&loaded.operation.id).copied()
            } else {
                Some(Predecessor::Finished)
            };
            Candidate::of(loaded, predecessor, claiming)
        })
        .collect();
    // Counted before twins are asked for: those rows are the last that a claim takes, and the only
    // ones that it waits for.
    plan.count(connection, &candidates, claiming).await?;
    let known = Known::read(connection, &candidates).await?;
    let mut unserved = Vec::new();
    for candidate in candidates {
        let record = &candidate.loaded.operation;
        let deliveries = by_operation.get(&record.id).map_or(&[][..], Vec::as_slice);
        let named = plan.right_ones(record, deliveries);
        match (named, candidate.predecessor) {
            (false, _) => plan.ack(record.id),
            (true, None) => plan.busy(record.id),
            (true, Some(predecessor)) => {
                let around = known.around(&candidate, predecessor);
                plan.decide(candidate, &around, claiming, alone, &mut unserved)
            }
        }
    }
    plan.without_version(connection, unserved).await?;
    plan.bounds.tell(claiming);
    plan.write(connection).await
}

/// Whether earlier operations of its ordering key matter to it now.
fn takes_part(record: &Operation) -> bool {
    record.order.as_ref().is_some_and(|order| !order.released) && is_claimable(record)
}

fn is_claimable(record: &Operation) -> bool {
    match record.state {
        State::Queued | State::Held | State::RetryScheduled | State::Claimed | State::Sent => true,
        State::AwaitingApproval
        | State::Accepted
        | State::Parked
        | State::Applied
        | State::Rejected
        | State::FailedPermanent
        | State::Unknown
        | State::Expired => false,
    }
}

/// Whether [`decide`] will look at the arguments: nobody owns it, and its time has come.
pub(super) fn is_free(record: &Operation, now: Timestamp) -> bool {
    let waits =
        matches!(record.state, State::Queued | State::RetryScheduled) && now < record.due_at;
    let polled = record.state == State::Accepted && now >= record.due_at;
    polled || (is_claimable(record) && !waits && !record.leased_at(now))
}

/// Whether a claim of this worker may come of it, which a tool's bound counts. What is only polled
/// owns no claim.
fn may_be_claimed(candidate: &Candidate) -> bool {
    let Loaded { operation, now, .. } = &candidate.loaded;
    candidate.serving.is_some() && is_claimable(operation) && is_free(operation, *now)
}

impl Plan {
    fn ack(&mut self, operation: Uuid) {
        self.verdicts.insert(operation, Verdict::Ack);
    }

    fn busy(&mut self, operation: Uuid) {
        self.verdicts.insert(operation, Verdict::Busy);
    }

    fn full(&mut self, operation: Uuid) {
        self.verdicts.insert(operation, Verdict::Full);
    }

    /// What could not be locked is busy, or has no record: never claimed, kept for an operator.
    async fn missing(
        &mut self,
        connection: &mut Connection,
        locked: &[Loaded],
        asks: &BTreeMap<Uuid, Vec<&Arrived>>,
    ) -> Result<(), StoreError> {
        let locked: HashSet<Uuid> = locked.iter().map(|loaded| loaded.operation.id).collect();
        let missing: Vec<Uuid> = asks.keys().filter(|id| !locked.contains(id)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let existing = store::existing(connection, &missing).await?;
        for id in missing {
            if existing.contains(&id) {
                self.busy(id);
            } else {
                self.letters
                    .extend(asks.get(&id).into_iter().flatten().map(|ask| ask.letter("no_record")));
                self.ack(id);
            }
        }
        Ok(())
    }

    async fn count(
        &mut self,
        connection: &mut Connection,
        candidates: &[Candidate],
        claiming: &Claiming,
    ) -> Result<(), StoreError> {
        let records = candidates.iter().filter(|candidate| may_be_claimed(candidate));
        let tools = records.map(|candidate| candidate.loaded.operation.tool.as_str()).collect();
        self.bounds = Bounds::count(connection, tools, claiming).await?;
        Ok(())
    }

    /// Whether a delivery names the record by its tenant and key; those that do not are kept.
    fn right_ones(&mut self, record: &Operation, deliveries: &[&Arrived]) -> bool {
        let names = |ask: &&&Arrived| ask.tenant == record.tenant && ask.key == record.key;
        let wrong = deliveries.iter().filter(|ask| !names(ask));
        self.letters.extend(wrong.map(|ask| ask.letter("identity_mismatch")));
        deliveries.iter().any(|ask| names(&ask))
    }

    fn decide(
        &mut self,
        candidate: Candidate,
        around: &Around,
        claiming: &Claiming,
        alone: bool,
        unserved: &mut Vec<Loaded>,
    ) {
        let asks = candidate.need().asks();
        let Candidate { loaded, serving, predecessor: _, examined } = candidate;
        let record = &loaded.operation;
        let Some(serving) = serving else {
            if is_free(record, loaded.now) {
                unserved.push(loaded);
            } else {
                self.note(record.id, "in_flight");
                self.ack(record.id);
            }
            return;
        };
        let recomputed =
            examined.as_ref().map_or(Recomputed::Invalid, |e| Recomputed::Valid(&e.material));
        let key = || claiming.secret.key(&record.key);
        let claimant = Claimant { owner: &claiming.owner, alone, downstream_key: &key };
        let id = record.id;
        match decide(record, recomputed, around, loaded.now, &serving.rule, &claimant) {
            Claim::Run(run) if !self.bounds.takes_place(&record.tool, run.purpose) => self.full(id),
            // It is not given the worker to itself before there is a place for it.
            Claim::Alone if !self.bounds.has_place(&record.tool) => self.full(id),
            Claim::Run(mut run) => {
                // Folded, the claim is the send's own check; else its mark is.
                if asks && run.purpose == Purpose::Send && run.ticket.marked {
                    run.step = run.step.authorized();
                }
                let arguments = examined.map_or(Json::Null, |examined| examined.arguments);
                self.steps.push(run.step.clone());
                let started = Started { run: *run, serving, arguments };
                self.verdicts.insert(id, Verdict::Run(Box::new(started)));
            }
            Claim::Write(step) => {
                super::tell_of_person_needed(&step, "found_at_claim");
                self.steps.push(*step);
                self.ack(id);
            }
            Claim::Leave(leave) => {
                self.note(id, leave.event());
                self.ack(id);
            }
            Claim::Alone => drop(self.verdicts.insert(id, Verdict::Alone)),
        }
    }

    fn note(&mut self, operation: Uuid, event: &'static str) {
        self.notes.push(Noted { operation, event, epoch: 0, owner: None, detail: None });
    }

    /// Operations whose version this worker lacks wait for one that has it; when no live worker has
    /// had it for a minute they are parked.
    async fn without_version(
        &mut self,
        connection: &mut Connection,
        unserved: Vec<Loaded>,
    ) -> Result<(), StoreError> {
        if unserved.is_empty() {
            return Ok(());
        }
        let live = store::served_anywhere(connection).await?;
        for Loaded { operation, now, .. } in unserved {
            let version = (operation.tool.clone(), operation.tool_version.clone());
            let young = now.since(operation.opened_at.max(Timestamp(0))) < VERSION_UNKNOWN_AFTER;
            let parked = if young || live.contains(&version) {
                None
            } else {
                park(&operation, now, Reason::ContractVersionUnknown)
            };
            match parked {
                Some(step) => self.steps.push(step),
                None => self.later.push(operation.id),
            }
            self.ack(operation.id);
        }
        Ok(())
    }

    async fn write(
        self,
        connection: &mut Connection,
    ) -> Result<HashMap<Uuid, Verdict>, StoreError> {
        store::write(connection, &self.steps.iter().collect::<Vec<_>>()).await?;
        store::note(connection, self.notes).await?;
        store::enqueue_later(connection, &self.later, OTHER_VERSION_WAIT).await?;
        store::bury(connection, &self.letters).await?;
        Ok(self.verdicts)
    }
}

/// After a commit whose answer was lost: which of the planned claims stand.
pub(super) async fn standing(
    connection: &mut Connection,
    planned: &[(Uuid, i64)],
    owner: &str,
) -> Result<HashSet<Uuid>, StoreError> {
    let ids: Vec<Uuid> = planned.iter().map(|(id, _)| *id).collect();
    let locked = store::lock_all(connection, &ids).await?;
    let ours = |loaded: &&Loaded| {
        let record = &loaded.operation;
        let lease = record.lease.as_ref().is_some_and(|lease| lease.owner == owner);
        lease && planned.contains(&(record.id, record.token.0))
    };
    Ok(locked.iter().filter(ours).map(|loaded| loaded.operation.id).collect())
}
