//! The three books: what the applications committed, what oncebox recorded, what the service did.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, FromRow, PgConnection};

use crate::Fault;
use crate::deployment::Deployment;
use crate::faults::Crew;
use crate::service::{Effects, Entry, Service};
use crate::steps::Step;

/// Everything that is compared.
pub(crate) struct Books {
    /// oncebox's record of each operation.
    pub(crate) records: Vec<Record>,
    /// How often each transition stands in the traces.
    pub(crate) transitions: BTreeMap<String, i64>,
    pub(crate) dead_letters: i64,
    pub(crate) outbox_rows: i64,
    /// Operation id and number of each row that the Rust publisher committed.
    pub(crate) invoices: Vec<(String, String)>,
    /// The same of the Python publisher.
    pub(crate) orders: Vec<(String, String)>,
    /// What the service counted, and its journal on disk.
    pub(crate) effects: Effects,
    pub(crate) journal: Vec<Entry>,
}

/// One operation.
#[derive(FromRow)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) tool: String,
    pub(crate) status: String,
    pub(crate) actor: Option<String>,
    pub(crate) receipt: Option<String>,
    pub(crate) downstream_key: Option<String>,
    pub(crate) attempts: i32,
}

impl Record {
    /// The key under which the service counts this operation's effect.
    pub(crate) fn at_service(&self) -> &str {
        match self.tool.as_str() {
            "mail.send" | "tickets.import" => &self.id,
            _ => self.downstream_key.as_deref().unwrap_or_default(),
        }
    }
}

const RECORDS: &str = "select operation_id::text as id, operation_key as key, tool_name as tool, status, actor, \
    effect_reference as receipt, downstream_key, attempts from oncebox.operations order by operation_id";

/// What has not ended: operations that nobody but a person could go on with are not waited for.
const LEFT: &str = "select (select count(*) from oncebox.operations where status = 'pending' and phase <> 'parked') \
    + (select count(*) from oncebox.outbox)";

/// Waits until everything has ended. When that takes longer than `patience`, the verdict will say so.
pub(crate) async fn until_ended(
    deployment: &Deployment,
    crew: &mut Crew,
    step: &Step,
    patience: Duration,
) -> Result<(), Fault> {
    let mut connection = PgConnection::connect(&deployment.database).await?;
    let begun = Instant::now();
    while begun.elapsed() < patience {
        crew.still_runs()?;
        let left: i64 = sqlx::query_scalar(LEFT).fetch_one(&mut connection).await?;
        if left == 0 {
            break;
        }
        step.at(&format!("{left} to go"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(connection.close().await?)
}

/// Reads all books.
pub(crate) async fn read(deployment: &Deployment, service: &Service) -> Result<Books, Fault> {
    let mut connection = PgConnection::connect(&deployment.database).await?;
    let records = sqlx::query_as(RECORDS).fetch_all(&mut connection).await?;
    let transitions: Vec<(String, i64)> =
        sqlx::query_as("select event, count(*) from oncebox.operation_events group by event")
            .fetch_all(&mut connection)
            .await?;
    let dead_letters = sqlx::query_scalar("select count(*) from oncebox.dead_letters")
        .fetch_one(&mut connection)
        .await?;
    let outbox_rows = sqlx::query_scalar("select count(*) from oncebox.outbox")
        .fetch_one(&mut connection)
        .await?;
    let invoices = sqlx::query_as("select operation_id::text, invoice_number from app_invoices")
        .fetch_all(&mut connection)
        .await?;
    let orders = if deployment.python.is_some() {
        sqlx::query_as("select operation_id::text, order_number from app_orders")
            .fetch_all(&mut connection)
            .await?
    } else {
        Vec::new()
    };
    connection.close().await?;
    Ok(Books {
        records,
        transitions: transitions.into_iter().collect(),
        dead_letters,
        outbox_rows,
        invoices,
        orders,
        effects: service.effects().await?,
        journal: service.journal()?,
    })
}
