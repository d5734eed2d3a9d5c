//! What an application was told, held against the database, the downstream's journal and the traces.
//!
//! The application of these tests has a business table of its own: its rows and the operation records
//! must be there together or not at all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use oncebox::ingress::{Publisher, Submission};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::time::timeout;

use super::downstream::Downstream;
use super::history_check::{Findings, Report};
use super::world::World;

/// Longest wait of the application for one whole transaction.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the application knows after a transaction, for each of its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Knows {
    /// It never asked for the commit, or the server refused it.
    NotCommitted,
    /// It asked for the commit and got no answer.
    InDoubt,
    /// The server confirmed the commit.
    Committed,
}

/// Every submission of a test and what became known of it.
pub(crate) struct History {
    publisher: Publisher,
    journal: PathBuf,
    pub(super) known: Mutex<BTreeMap<String, Knows>>,
}

impl History {
    /// Makes the business table, and a downstream whose effects can be read afterwards.
    pub(crate) async fn begin(world: &World) -> (Self, Downstream) {
        let journal = world.contracts.join("effects.journal");
        let downstream = Downstream::start_with(&["--journal", journal.to_str().unwrap()]);
        let mut connection = world.connect().await;
        connection.execute("create table public.orders (step text primary key)").await.unwrap();
        let history = Self { publisher: Publisher::default(), journal, known: Mutex::default() };
        (history, downstream)
    }

    /// One transaction of the application over `url`: business rows and operations. Every other
    /// operation goes through the SQL door.
    pub(crate) async fn publish(&self, url: &str, submissions: &[Submission]) -> Knows {
        let mut asked = false;
        let done = timeout(PATIENCE, self.transaction(url, submissions, &mut asked)).await;
        let knows = match done {
            Ok(Ok(())) => Knows::Committed,
            // The server's own refusal, of the commit as of anything before it.
            Ok(Err(error)) if error.as_database_error().is_some() => Knows::NotCommitted,
            Ok(Err(_)) | Err(_) if asked => Knows::InDoubt,
            Ok(Err(_)) | Err(_) => Knows::NotCommitted,
        };
        let mut known = self.known.lock().unwrap();
        for submission in submissions {
            let best = known.entry(submission.step_id.clone()).or_insert(knows);
            *best = (*best).max(knows);
        }
        knows
    }

    /// Repeats the transaction until its commit is confirmed, as an application should.
    pub(crate) async fn publish_at_last(&self, url: &str, submissions: &[Submission]) {
        super::eventually("the application has committed", 120, async || {
            (self.publish(url, submissions).await == Knows::Committed).then_some(())
        })
        .await;
    }

    async fn transaction(
        &self,
        url: &str,
        submissions: &[Submission],
        asked: &mut bool,
    ) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute("begin").await?;
        // In key order, as operations of overlapping transactions have to be.
        for (place, submission) in submissions.iter().enumerate() {
            sqlx::query("insert into public.orders (step) values ($1) on conflict do nothing")
                .bind(&submission.step_id)
                .execute(&mut connection)
                .await?;
            if place % 2 == 0 {
                through_rust(&self.publisher, &mut connection, submission).await?;
            } else {
                through_sql(&mut connection, submission).await?;
            }
        }
        *asked = true;
        connection.execute("commit").await?;
        Ok(())
    }

    /// Holds everything against everything, once all has ended. Fails the test with every finding.
    pub(crate) async fn check(&self, world: &World) -> Report {
        let findings = self.look(world).await;
        assert!(findings.wrong.is_empty(), "broken promises:\n{}", findings.wrong.join("\n"));
        findings.report
    }

    /// The same without failing.
    pub(crate) async fn look(&self, world: &World) -> Findings {
        let known = self.known.lock().unwrap().clone();
        let journal = std::fs::read_to_string(&self.journal).unwrap();
        Findings::gather(world, &known, &journal).await
    }
}

async fn through_rust(
    publisher: &Publisher,
    connection: &mut PgConnection,
    submission: &Submission,
) -> Result<(), sqlx::Error> {
    use oncebox::ingress::SubmitError;
    use oncebox::store::StoreError;
    match publisher.submit(connection, submission).await {
        Ok(_) => Ok(()),
        Err(SubmitError::Store(
            StoreError::RolledBack(error) | StoreError::CommitUnknown(error),
        )) => Err(error),
        Err(SubmitError::Busy | SubmitError::Store(_)) => Err(sqlx::Error::PoolTimedOut),
        Err(refused) => panic!("a good submission was refused: {refused}"),
    }
}

async fn through_sql(
    connection: &mut PgConnection,
    submission: &Submission,
) -> Result<(), sqlx::Error> {
    sqlx::query("select oncebox.submit($1, $2, $3, $4, $5, null, $6::json)")
        .bind(&submission.tenant)
        .bind(&submission.environment)
        .bind(&submission.workflow_id)
        .bind(&submission.step_id)
        .bind(&submission.tool)
        .bind(&submission.arguments)
        .execute(connection)
        .await
        .map(drop)
}
