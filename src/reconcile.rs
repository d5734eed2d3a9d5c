//! Unknown records, looked up on a schedule of their own: `next_lookup_at` → ask → settle, or a person.
//!
//! Runs in role maintain, because a delivery of an unknown operation starts nothing. Nothing is sent
//! here, whatever is found: evidence of an effect settles the record as applied, a proved absence ends
//! it (ADR 0014), and what nobody can tell goes on to the next look until the contract's `give_up`.
//!
//! Owns no claims. Taking a record moves its next look ahead, so that two processes seldom ask at
//! once; when they do, nothing happens twice, since asking changes nothing and the record's lock
//! decides. No transaction is open while somebody is asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, error, info, warn};

use crate::chance;
use crate::domain::attempt::{Effect, Learned, Receipt, Response};
use crate::domain::evidence::{Blank, Evidence};
use crate::domain::json::{Json, JsonLimits};
use crate::domain::lifecycle::State;
use crate::domain::operation::Operation;
use crate::domain::reason::Reason;
use crate::domain::recovery::{self, Asked};
use crate::domain::settle::{Settle, told_by_answer, unstorable};
use crate::domain::step::Step;
use crate::serving::Serving;
use crate::shutdown;
use crate::store::{self, Connection, DatabaseUrl, Link, Loaded, StoreError};
use crate::tool::Call;

/// How long a record that is being looked up is left alone by others: longer than any answer takes
/// (`timeout` is far below), and the most that a process that dies costs.
const AHEAD: Duration = Duration::from_secs(60);

/// Records of one pass, all asked about at once: so a pass takes no longer than its slowest answer,
/// and services that do not answer keep nobody else from the next one.
const AT_ONCE: i64 = 64;

/// How reconciliation works.
#[derive(Debug, Clone)]
pub struct ReconcileSettings {
    /// The database.
    pub database: DatabaseUrl,
    /// Between passes. Default 1 s.
    pub every: Duration,
}

/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were looked up.
    pub asked: u64,
    /// Of these, records that are not unknown any more.
    pub ended: u64,
}

/// The one who asks: a database connection and the tools that it can ask.
#[derive(Debug)]
pub struct Reconciler {
    link: Link,
    served: HashMap<(String, String), Arc<Serving>>,
}

/// Looks unknown records up until `shutdown` says stop. Reconnects by itself, for ever.
pub async fn run(
    settings: ReconcileSettings,
    served: Vec<Arc<Serving>>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut reconciler = Reconciler::new(&settings.database, served);
    while !shutdown::is_asked(&shutdown) {
        match reconciler.run_once().await {
            Ok(counts) if counts == Counts::default() => {}
            Ok(Counts { asked, ended }) => info!(asked, ended, "unknown operations looked up"),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "not looked up; trying again");
            }
        }
        drop(timeout(settings.every, shutdown::asked(&mut shutdown)).await);
    }
}

impl Reconciler {
    /// A reconciler that connects at its first pass, and asks for these versions only.
    #[must_use]
    pub fn new(database: &DatabaseUrl, served: Vec<Arc<Serving>>) -> Self {
        let served = served.into_iter().map(|serving| (serving.version(), serving)).collect();
        Self { link: Link::new(database, "reconcile", Duration::from_secs(20)), served }
    }

    /// One pass: takes what is due, asks, settles.
    ///
    /// # Errors
    /// What was not settled comes again after a minute.
    pub async fn run_once(&mut self) -> Result<Counts, StoreError> {
        let versions: Vec<(String, String)> = self.served.keys().cloned().collect();
        if versions.is_empty() {
            return Ok(Counts::default());
        }
        let taken = self
            .link
            .transaction(async |connection| {
                store::take_unknown(connection, &versions, AHEAD, AT_ONCE).await
            })
            .await?;
        let asked = u64::try_from(taken.len()).unwrap_or(u64::MAX);
        let mut answers: FuturesUnordered<_> = taken
            .into_iter()
            .filter_map(|loaded| {
                let Operation { tool, tool_version, .. } = &loaded.operation;
                let serving = self.served.get(&(tool.clone(), tool_version.clone()))?;
                Some(ask(Arc::clone(serving), loaded))
            })
            .collect();
        let mut ended = 0;
        while let Some(answer) = answers.next().await {
            ended += u64::from(settle(&mut self.link, &answer).await?);
        }
        Ok(Counts { asked, ended })
    }
}

/// What was asked of whom, and what came of it.
struct Answer {
    serving: Arc<Serving>,
    taken: Loaded,
    /// `None`: the contract has nobody to ask.
    evidence: Option<Evidence>,
}

async fn ask(serving: Arc<Serving>, taken: Loaded) -> Answer {
    let row = &taken.operation;
    let examined = taken.arguments.as_deref().and_then(|arguments| {
        serving.contract.examine(&row.tenant, arguments, &JsonLimits::default()).ok()
    });
    let arguments = examined.map_or(Json::Null, |examined| examined.arguments);
    let call = Call::of(row.clone(), arguments, true);
    let rule = &serving.rule;
    let unconfirmed = row.reason == Some(Reason::PostconditionUnreachable);
    let evidence = if let Some(effect) = proved(row).filter(|_| unconfirmed) {
        Some(confirmed(serving.tool.confirm(&call, Learned::Applied(effect)).await))
    } else if rule.poll.is_some() && row.job.is_some() {
        Some(follow(&serving, &call, rule.can_find(row)).await)
    } else if rule.can_find(row) {
        Some(serving.tool.lookup(&call).await)
    } else {
        None
    };
    Answer { serving, taken, evidence }
}

/// Asks the provider about its job; where that shows no end, its effect is looked for besides: a
/// provider may forget its jobs sooner than what they made.
async fn follow(serving: &Serving, call: &Call, can_find: bool) -> Evidence {
    let polled = serving.tool.poll(call).await;
    match &polled {
        Evidence::JobRuns | Evidence::CannotTell(_) if can_find => {}
        Evidence::JobRuns
        | Evidence::CannotTell(_)
        | Evidence::Found(_)
        | Evidence::Unconfirmed(..)
        | Evidence::Absent
        | Evidence::JobFailed => return polled,
    }
    match serving.tool.lookup(call).await {
        found @ (Evidence::Found(_) | Evidence::Unconfirmed(..)) => found,
        // That it is not there yet says nothing while there is a job.
        Evidence::Absent | Evidence::JobFailed | Evidence::JobRuns | Evidence::CannotTell(_) => {
            polled
        }
    }
}

/// The effect that the record knows, and only its postcondition is asked for.
fn proved(row: &Operation) -> Option<Effect> {
    let receipt = Receipt::new(row.effect_reference.as_deref()?)?;
    let response = match (&row.response, row.response_dropped) {
        (Some(text), _) => Response::keep(text.clone()),
        (None, true) => Response::Dropped,
        (None, false) => Response::None,
    };
    Some(Effect { receipt, response })
}

fn confirmed(learned: Learned) -> Evidence {
    match learned {
        Learned::Applied(effect) => Evidence::Found(effect),
        Learned::Unconfirmed(effect, why) => Evidence::Unconfirmed(effect, why),
        Learned::NotSent(_)
        | Learned::NotNow { .. }
        | Learned::Denied
        | Learned::Refused
        | Learned::Already(_)
        | Learned::Accepted(_)
        | Learned::Ambiguous(_)
        | Learned::Panicked => Evidence::CannotTell(Blank::Unclear),
    }
}

/// Writes what was found out: all of it, else without the response, else as evidence in the trace, so
/// that a row which the database refuses keeps no other from its answer. Whether the record is not
/// unknown any more.
async fn settle(link: &mut Link, answer: &Answer) -> Result<bool, StoreError> {
    let jitter = chance::sample();
    let lean = answer.evidence.as_ref().and_then(Evidence::without_response);
    for evidence in [answer.evidence.as_ref(), lean.as_ref()] {
        let written = link
            .transaction(async |connection| write(connection, answer, evidence, jitter).await)
            .await;
        match written {
            Err(error) if error.data_refused() => {
                let operation_id = answer.taken.operation.id;
                error!(%operation_id, error = &error as &dyn std::error::Error, "what was found out cannot be stored as it is");
            }
            other => return other,
        }
        if lean.is_none() {
            break;
        }
    }
    link.transaction(async |connection| set_aside(connection, answer).await).await
}

async fn set_aside(connection: &mut Connection, answer: &Answer) -> Result<bool, StoreError> {
    let told = answer.evidence.as_ref().and_then(told_by_answer);
    let locked = store::lock_now(connection, &[answer.taken.operation.id]).await?;
    let unknown = locked.iter().filter(|loaded| loaded.operation.state == State::Unknown);
    let steps: Vec<Step> =
        unknown.map(|loaded| unstorable(&loaded.operation, told.clone())).collect();
    store::write(connection, &steps.iter().collect::<Vec<_>>()).await?;
    Ok(false)
}

async fn write(
    connection: &mut Connection,
    answer: &Answer,
    evidence: Option<&Evidence>,
    jitter: f64,
) -> Result<bool, StoreError> {
    let Answer { serving, taken, .. } = answer;
    let id = taken.operation.id;
    let Some(loaded) = store::lock_now(connection, &[id]).await?.into_iter().next() else {
        // Somebody acts on it; it comes again.
        debug!(operation_id = %id, "busy; looked up again later");
        return Ok(false);
    };
    let (row, asked) = (&loaded.operation, Asked { at: taken.now, jitter });
    let settled = match evidence {
        Some(evidence) => recovery::reconcile(row, evidence, asked, loaded.now, &serving.rule),
        None if row.state == State::Unknown => Settle::Write(Box::new(recovery::not_askable(row))),
        None => Settle::Acknowledged,
    };
    match settled {
        Settle::Write(step) => {
            store::write(connection, &[&step]).await?;
            Ok(step.record.state != State::Unknown)
        }
        Settle::Acknowledged | Settle::LostLease => Ok(row.state != State::Unknown),
    }
}
