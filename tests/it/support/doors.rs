//! Both doors of a submission, asked alike, and what their answers leave behind.

use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::Timestamp;
use oncebox::domain::reason::Reason;
use oncebox::ingress::{Publisher, Submission, SubmitError};
use serde_json::Value;
use sqlx::types::time::OffsetDateTime;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::world::World;

/// The Rust API, or the SQL function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Rust,
    Sql,
}

/// Why a door gave no envelope.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) text: String,
    /// SQLSTATE, where the database said it.
    pub(crate) code: Option<String>,
}

impl Door {
    pub(crate) const BOTH: [Self; 2] = [Self::Rust, Self::Sql];

    /// Submits on a transaction of the caller's. The envelope as JSON, without `response`.
    pub(crate) async fn ask(
        self,
        connection: &mut PgConnection,
        submission: &Submission,
    ) -> Result<Value, Refusal> {
        match self {
            Self::Rust => match Publisher::default().submit(connection, submission).await {
                Ok(envelope) => Ok(serde_json::to_value(envelope.without_response()).unwrap()),
                Err(error) => Err(Refusal { code: code(&error), text: error.to_string() }),
            },
            Self::Sql => sql(connection, submission).await.map_err(|error| {
                let error = error.as_database_error().expect("the database's answer");
                Refusal {
                    text: error.message().to_owned(),
                    code: error.code().map(|code| code.into_owned()),
                }
            }),
        }
    }

    /// Submits in a transaction of its own: commits an answer, rolls back a refusal.
    pub(crate) async fn submit(
        self,
        world: &World,
        submission: &Submission,
    ) -> Result<Value, Refusal> {
        let mut connection = world.connect().await;
        connection.execute("begin").await.unwrap();
        let answer = self.ask(&mut connection, submission).await;
        connection.execute(if answer.is_ok() { "commit" } else { "rollback" }).await.unwrap();
        connection.close().await.unwrap();
        answer
    }
}

fn code(error: &SubmitError) -> Option<String> {
    match error {
        SubmitError::Store(error) => error.sqlstate(),
        SubmitError::Busy => Some("55P03".to_owned()),
        _ => None,
    }
}

async fn sql(connection: &mut PgConnection, s: &Submission) -> Result<Value, sqlx::Error> {
    let text: String = sqlx::query_scalar(
        "select oncebox.submit($1, $2, $3, $4, $5, $6, $7::text::json, $8, $9::text::json, $10, $11, $12, $13)::text",
    )
    .bind(&s.tenant)
    .bind(&s.environment)
    .bind(&s.workflow_id)
    .bind(&s.step_id)
    .bind(&s.tool)
    .bind(&s.tool_version)
    .bind(&s.arguments)
    .bind(&s.actor)
    .bind(&s.metadata)
    .bind(&s.ordering_key)
    .bind(s.not_before.map(|Timestamp(micros)| {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000).unwrap()
    }))
    .bind(&s.distinct_from)
    .bind(&s.traceparent)
    .fetch_one(connection)
    .await?;
    Ok(serde_json::from_str(&text).unwrap())
}

/// Puts the record of `step` into a state that its life would take long to reach.
pub(crate) async fn force(
    world: &World,
    step: &str,
    state: State,
    reason: Option<Reason>,
    sent: bool,
) {
    let (status, phase) = state.columns();
    let leased = matches!(state, State::Claimed | State::Sent);
    let written = sqlx::query(
        "update oncebox.operations set status = $2, phase = $3, reason = $4, \
           first_sent_at = case when $5 then clock_timestamp() end, \
           owner = case when $6 then 'w' end, lease_until = case when $6 then now() + interval '1 hour' end, \
           effect_reference = case when $2 in ('applied', 'expired') then 'T-1' end, \
           response_json = case when $2 = 'applied' then '{\"ticket_id\": \"T-1\"}'::json end, \
           updated_at = clock_timestamp() where operation_key = $1",
    )
    .bind(format!("acme:test:run:{step}"))
    .bind(status)
    .bind(phase)
    .bind(reason.map(Reason::code))
    .bind(sent)
    .bind(leased)
    .execute(&mut world.connect().await)
    .await
    .unwrap();
    assert_eq!(written.rows_affected(), 1);
}

/// All there is of every operation, byte for byte: records, messages, traces.
pub(crate) async fn everything(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "select o::text from oncebox.operations o union all select x::text from oncebox.outbox x \
         union all select e::text from oncebox.operation_events e order by 1",
    )
    .fetch_all(&mut world.connect().await)
    .await
    .unwrap()
}

/// One expression over the record `o` of a step, as text.
pub(crate) async fn column(world: &World, step: &str, expression: &'static str) -> Option<String> {
    let statement =
        format!("select ({expression})::text from oncebox.operations o where operation_key = $1");
    sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
        .bind(format!("acme:test:run:{step}"))
        .fetch_one(&mut world.connect().await)
        .await
        .unwrap()
}
