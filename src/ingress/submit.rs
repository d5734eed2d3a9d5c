//! Publishing from Rust: business rows, operation record and outbox row in one transaction.
//!
//! Insert what is not there, then read what is: a submission never locks a record that exists. What
//! stands under the key is compared under the record's own contract version.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use oncebox::ingress::{Publisher, Submission};
//!
//! let publisher = Publisher::default();
//! let mut transaction = pool.acquire().await?;
//! sqlx::query("begin").execute(&mut *transaction).await?;
//! sqlx::query("insert into orders (id) values (7)").execute(&mut *transaction).await?;
//! let outcome = publisher
//!     .submit(&mut transaction, &Submission {
//!         tenant: "acme".into(),
//!         environment: "production".into(),
//!         workflow_id: "run_827".into(),
//!         step_id: "record_issue".into(),
//!         tool: "tickets.create".into(),
//!         arguments: r#"{"queue_id":"support","subject":"Refund","body":"…"}"#.into(),
//!         ..Submission::default()
//!     })
//!     .await?;
//! sqlx::query("commit").execute(&mut *transaction).await?;
//! println!("{}", serde_json::to_string(&outcome)?);
//! # Ok(()) }
//! ```

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;
use uuid::Uuid;

use super::candidate::Candidate;
use super::contracts::{Contracts, Fitting};
use super::{Submission, SubmitError, results};
use crate::domain::json::JsonLimits;
use crate::domain::key::{KeyPolicy, OperationKey};
use crate::domain::lifecycle::State;
use crate::domain::operation::Operation;
use crate::domain::outcome::{Asked, Envelope};
use crate::domain::reason::Reason;
use crate::store::{self, Loaded, NewOperation, StoreError};

/// How often a record that keeps changing under our eyes is read again.
const READ_AGAIN: usize = 10;

/// Publishes operations inside the caller's transactions. Cheap to share; keeps read contracts.
#[derive(Debug)]
pub struct Publisher {
    policy: KeyPolicy,
    limits: JsonLimits,
    contracts: Contracts,
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new(KeyPolicy::default())
    }
}

/// What the registry said in one pass: (tool, version named) to the version that counts.
type Versions<'a> = HashMap<(&'a str, Option<&'a str>), Option<String>>;

/// A submission held against the record that stands under its key.
struct Compared {
    same: bool,
    /// The submission by the record's version; `None`: it does not fit, or was not looked at.
    fitting: Option<Fitting>,
}

impl Publisher {
    /// A publisher with the deployment's rule for keys.
    #[must_use]
    pub fn new(policy: KeyPolicy) -> Self {
        Self { policy, limits: JsonLimits::default(), contracts: Contracts::default() }
    }

    /// Publishes one operation on the caller's transaction.
    ///
    /// What stands already is answered as far as the submission's own actor may see it. Where the
    /// contract asks for grants: an actor without one gets neither `response` nor `effect_reference`,
    /// reason `not_authorized`. Where a policy service or an authorizer in code decides, which nobody
    /// can ask inside this transaction: status and reference, and [`Results`](super::Results) hands
    /// out the response.
    ///
    /// # Errors
    /// Nothing was written for it. After [`SubmitError::Busy`] and [`SubmitError::Store`] the
    /// transaction is to be rolled back.
    pub async fn submit(
        &self,
        connection: &mut PgConnection,
        submission: &Submission,
    ) -> Result<Envelope, SubmitError> {
        let mut answers = self.submit_many(connection, std::slice::from_ref(submission)).await?;
        answers.pop().unwrap_or(Err(SubmitError::UnknownContract))
    }

    /// Publishes many operations on the caller's transaction, in key order, so that transactions
    /// with overlapping keys wait for each other instead of deadlocking. The answers stand in the
    /// order of `submissions`; one that is refused does not hold up the others.
    ///
    /// # Errors
    /// The transaction is to be rolled back; nothing was written.
    pub async fn submit_many(
        &self,
        connection: &mut PgConnection,
        submissions: &[Submission],
    ) -> Result<Vec<Result<Envelope, SubmitError>>, SubmitError> {
        let mut answers: Vec<Option<Result<Envelope, SubmitError>>> = Vec::new();
        answers.resize_with(submissions.len(), || None);
        let mut open = Vec::with_capacity(submissions.len());
        for (place, submission) in submissions.iter().enumerate() {
            match self.candidate(place, submission) {
                Ok(candidate) => open.push(candidate),
                Err(error) => answer(&mut answers, place, Err(error)),
            }
        }
        for _ in 0..READ_AGAIN {
            if open.is_empty() {
                break;
            }
            open = self.pass(connection, open, &mut answers).await?;
        }
        for candidate in open {
            let conflict = StoreError::Unreadable("a record that changed each time it was read");
            answer(&mut answers, candidate.place, Err(SubmitError::Store(conflict)));
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn candidate<'a>(
        &self,
        place: usize,
        submission: &'a Submission,
    ) -> Result<Candidate<'a>, SubmitError> {
        let Submission { tenant, environment, workflow_id, step_id, .. } = submission;
        let key = OperationKey::new(tenant, environment, workflow_id, step_id, &self.policy)?;
        submission.check()?;
        Ok(Candidate { place, submission, key })
    }

    /// Inserts what is new, answers what stands; gives back what has to be looked at again.
    async fn pass<'a>(
        &self,
        connection: &mut PgConnection,
        open: Vec<Candidate<'a>>,
        answers: &mut [Option<Result<Envelope, SubmitError>>],
    ) -> Result<Vec<Candidate<'a>>, SubmitError> {
        let mut new: HashMap<usize, Uuid> = HashMap::new();
        let mut rows = Vec::with_capacity(open.len());
        let mut refused = HashMap::new();
        let mut versions = Versions::default();
        for candidate in &open {
            match self.first_row(connection, candidate, &mut versions).await {
                Ok(row) => {
                    new.insert(candidate.place, row.id);
                    rows.push(row);
                }
                Err(error) if error.spoils_transaction() => return Err(error),
                // A record may stand under this key all the same, and then its version counts.
                Err(error) => drop(refused.insert(candidate.place, error)),
            }
        }
        let inserted = if rows.is_empty() {
            HashSet::new()
        } else {
            store::insert_operations(connection, &rows).await?
        };
        let keys: Vec<_> =
            open.iter().map(|c| (c.submission.tenant.clone(), c.key.as_str().to_owned())).collect();
        let standing: HashMap<String, Loaded> = store::standing(connection, &keys)
            .await?
            .into_iter()
            .map(|loaded| (loaded.operation.key.clone(), loaded))
            .collect();
        let mut again = Vec::new();
        for candidate in open {
            let place = candidate.place;
            let verdict = match (standing.get(candidate.key.as_str()), refused.remove(&place)) {
                (Some(loaded), _) if new.get(&place) == Some(&loaded.operation.id) => {
                    inserted.contains(&loaded.operation.id).then(|| Ok(told(loaded)))
                }
                (Some(loaded), _) => match self.meet(connection, &candidate, loaded).await {
                    Ok(met) => met.map(Ok),
                    Err(error) if error.spoils_transaction() => return Err(error),
                    Err(error) => Some(Err(error)),
                },
                (None, Some(error)) => Some(Err(error)),
                (None, None) => None,
            };
            match verdict {
                Some(verdict) => answer(answers, place, verdict),
                None => again.push(candidate),
            }
        }
        Ok(again)
    }

    /// The row that this submission would be as the first one under its key: under the version it
    /// names, or the tool's current one.
    async fn first_row<'a>(
        &self,
        connection: &mut PgConnection,
        candidate: &Candidate<'a>,
        versions: &mut Versions<'a>,
    ) -> Result<NewOperation, SubmitError> {
        let asked =
            (candidate.submission.tool.as_str(), candidate.submission.tool_version.as_deref());
        let version = match versions.get(&asked) {
            Some(known) => known.clone(),
            None => {
                let found = store::version_for(connection, asked.0, asked.1).await?;
                versions.insert(asked, found.clone());
                found
            }
        };
        let version = version.ok_or(SubmitError::UnknownContract)?;
        let fitting = self.under(connection, asked.0, &version, candidate.submission).await?;
        Ok(candidate.row(&fitting))
    }

    /// Answers a submission whose key has a record. `None`: it changed meanwhile, look again.
    async fn meet(
        &self,
        connection: &mut PgConnection,
        candidate: &Candidate<'_>,
        loaded: &Loaded,
    ) -> Result<Option<Envelope>, SubmitError> {
        let record = &loaded.operation;
        let never_valid = record.state == State::Rejected
            && record.reason == Some(Reason::InvalidArguments)
            && record.fingerprint.is_none();
        let compared = self.compare(connection, candidate.submission, loaded).await?;
        let same = compared.same;
        let never_sent = record.state == State::Rejected && !record.may_have_been_sent();
        if !same && !never_valid {
            return Ok(Some(Envelope::mismatch(record)));
        }
        let twin_of = if record.reason == Some(Reason::SuspectedTwin) {
            store::held_behind_key(connection, record.id).await?
        } else {
            None
        };
        // A suspected twin comes again only with the application's word that a second effect is meant.
        let meant = record.reason != Some(Reason::SuspectedTwin)
            || (twin_of.is_some() && twin_of == candidate.submission.distinct_from);
        if never_sent && meant {
            return self.reopen(connection, candidate, loaded, compared).await;
        }
        if !same {
            return Ok(Some(Envelope::mismatch(record)));
        }
        self.outcome(connection, candidate, loaded, twin_of).await.map(Some)
    }

    /// What stands, as far as the submission's actor may see it.
    async fn outcome(
        &self,
        connection: &mut PgConnection,
        candidate: &Candidate<'_>,
        loaded: &Loaded,
        twin_of: Option<String>,
    ) -> Result<Envelope, SubmitError> {
        let envelope = told(loaded).behind(twin_of);
        if !envelope.tells_result() {
            return Ok(envelope);
        }
        let Operation { tool, tool_version, .. } = &loaded.operation;
        let contract = self.contracts.get(connection, tool, tool_version).await?;
        let actor = candidate.submission.actor.as_deref();
        Ok(results::for_submission(connection, &contract, loaded, actor, envelope).await?)
    }

    /// Opens a rejected, never sent record again: the same request under the version it first had,
    /// another one (where no valid request ever stood) as if it were the first.
    async fn reopen(
        &self,
        connection: &mut PgConnection,
        candidate: &Candidate<'_>,
        loaded: &Loaded,
        compared: Compared,
    ) -> Result<Option<Envelope>, SubmitError> {
        let record = &loaded.operation;
        let new = match compared {
            Compared { same: true, fitting: Some(fitting) } => candidate.row(&fitting),
            // The same invalid bytes again: the same verdict.
            Compared { same: true, fitting: None } => return Ok(Some(told(loaded))),
            Compared { same: false, .. } => {
                self.first_row(connection, candidate, &mut Versions::default()).await?
            }
        };
        if !store::reopen_operation(connection, record, &new).await? {
            return Ok(None);
        }
        let key = (candidate.submission.tenant.clone(), candidate.key.as_str().to_owned());
        let opened = store::standing(connection, &[key]).await?;
        Ok(opened.first().map(told))
    }

    /// Whether the submission asks for what the record stands for, compared under the record's
    /// version. A version that is named and differs matches an applied record only.
    async fn compare(
        &self,
        connection: &mut PgConnection,
        submission: &Submission,
        loaded: &Loaded,
    ) -> Result<Compared, SubmitError> {
        let record = &loaded.operation;
        let other_version =
            submission.tool_version.as_ref().is_some_and(|named| *named != record.tool_version);
        if submission.tool != record.tool || (other_version && record.state != State::Applied) {
            return Ok(Compared { same: false, fitting: None });
        }
        let fitting =
            match self.under(connection, &record.tool, &record.tool_version, submission).await {
                Ok(fitting) => fitting,
                Err(SubmitError::Arguments(_)) => {
                    let same = loaded.arguments.as_deref() == Some(&submission.arguments);
                    return Ok(Compared { same, fitting: None });
                }
                Err(error) => return Err(error),
            };
        let incoming = &fitting.examined.material.fingerprint;
        let same = match (&record.fingerprint, &loaded.arguments) {
            (Some(stored), _) => stored == incoming,
            // Written by SQL and not claimed yet: its fingerprint is computed from its arguments.
            (None, Some(arguments)) => {
                let stored = fitting.contract.examine(&record.tenant, arguments, &self.limits);
                stored.is_ok_and(|stored| stored.material.fingerprint == *incoming)
            }
            (None, None) => false,
        };
        Ok(Compared { same, fitting: Some(fitting) })
    }

    async fn under(
        &self,
        connection: &mut PgConnection,
        tool: &str,
        version: &str,
        submission: &Submission,
    ) -> Result<Fitting, SubmitError> {
        let contract = self.contracts.get(connection, tool, version).await?;
        Fitting::of(contract, submission, &self.limits)
    }
}

fn told(loaded: &Loaded) -> Envelope {
    Envelope::of(&loaded.operation, Asked::BySubmission, loaded.now)
}

fn answer(
    answers: &mut [Option<Result<Envelope, SubmitError>>],
    place: usize,
    verdict: Result<Envelope, SubmitError>,
) {
    if let Some(slot) = answers.get_mut(place) {
        *slot = Some(verdict);
    }
}
