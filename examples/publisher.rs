//! Publishes operations from Rust: a billing application with a table of its own.
//!
//! Each invoice is one PostgreSQL transaction: the row in `app_invoices` and the operation that
//! opens its ticket are there together after the commit, and neither after a rollback. The operation
//! key comes from the invoice's own number, so whatever is repeated (a whole run with the same
//! prefix, or one invoice whose commit got no answer) creates nothing twice.
//!
//! ```text
//! cargo run --example publisher -- --database-url postgres://… --count 10 --prefix march
//! ```
//!
//! It needs the migrations and a current contract for the tool. `publish.py` beside it does the same
//! with nothing but the SQL function.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use oncebox::domain::outcome::{Envelope, Status};
use oncebox::ingress::{Publisher, Submission, SubmitError};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

/// A pause before an invoice is tried again; a server that restarts needs about a second.
const PAUSE: Duration = Duration::from_millis(200);

const CREATE_INVOICES: &str = "create table if not exists app_invoices (
    invoice_number text primary key,
    amount_cents bigint not null,
    operation_id uuid not null
)";

const INSERT_INVOICE: &str = "insert into app_invoices (invoice_number, amount_cents, operation_id)
    values ($1, $2, $3) on conflict (invoice_number) do nothing";

/// Write invoices and publish one operation for each, in one transaction each.
#[derive(Parser)]
struct Flags {
    /// How to reach PostgreSQL
    #[arg(long)]
    database_url: String,
    /// Invoices to write
    #[arg(long, default_value_t = 10)]
    count: u32,
    /// Start of the invoice numbers
    #[arg(long, default_value = "invoice")]
    prefix: String,
    /// Roll every N-th transaction back instead of committing it; 0: none
    #[arg(long, default_value_t = 0, value_name = "N")]
    rollback_every: u32,
    /// The tenant
    #[arg(long, default_value = "acme")]
    tenant: String,
    /// The environment
    #[arg(long, default_value = "production")]
    environment: String,
    /// The tool; its arguments are a ticket's
    #[arg(long, default_value = "tickets.create")]
    tool: String,
    /// How long to repeat one invoice while the database is away
    #[arg(long, default_value_t = 60)]
    patience_seconds: u64,
}

/// What became of one invoice's transaction.
enum Written {
    Committed(Status),
    RolledBack,
    /// The key belongs to another request; there is no invoice either.
    Rejected,
}

/// Why a transaction has no known end. Nothing of it can be half there.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

impl Broken {
    /// Whether the same transaction may succeed, or may already have: repeat it. A lost answer to a
    /// commit is among these; the key makes the repetition an answer about the first one.
    fn passes(&self) -> bool {
        match self {
            Self::Database(error) => passes(error),
            Self::Submit(SubmitError::Busy) => true,
            Self::Submit(SubmitError::Store(error)) => !error.data_refused(),
            Self::Submit(_) => false,
        }
    }
}

/// Everything but the server's verdict on the statement itself: shut down or starting (57P),
/// connection (08), resources (53), a transaction to be repeated (40), a lock not had in time.
fn passes(error: &sqlx::Error) -> bool {
    match error.as_database_error().and_then(|error| error.code()) {
        Some(code) => {
            ["57P", "08", "53", "40", "55P03"].iter().any(|known| code.starts_with(known))
        }
        None => !matches!(error, sqlx::Error::Configuration(_)),
    }
}

/// One connection, made again when it breaks.
///
/// Not a pool: what is in doubt is dropped, so that no transaction left open by a broken attempt can
/// come back to the next one.
struct Books {
    flags: Flags,
    publisher: Publisher,
    connection: Option<PgConnection>,
}

impl Books {
    /// Writes one invoice, again and again until its end is certain or patience ends.
    async fn write(&mut self, number: u32) -> Result<Written, Broken> {
        let patience = Duration::from_secs(self.flags.patience_seconds);
        let begun = Instant::now();
        loop {
            let error = match self.attempt(number).await {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            if !error.passes() || begun.elapsed() > patience {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One transaction. The connection goes back only after the transaction's end was seen.
    async fn attempt(&mut self, number: u32) -> Result<Written, Broken> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.flags.database_url).await?,
        };
        let written = invoice(&mut connection, &self.publisher, &self.flags, number).await?;
        self.connection = Some(connection);
        Ok(written)
    }
}

async fn connect(url: &str) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(CREATE_INVOICES).await?;
    Ok(connection)
}

async fn invoice(
    connection: &mut PgConnection,
    publisher: &Publisher,
    flags: &Flags,
    number: u32,
) -> Result<Written, Broken> {
    let invoice = format!("{}-{number}", flags.prefix);
    let mut transaction = connection.begin().await?;
    let envelope: Envelope =
        publisher.submit(&mut transaction, &submission(flags, &invoice)).await?;
    let Some(operation) = envelope.operation_id.filter(|_| envelope.status != Status::Rejected)
    else {
        transaction.rollback().await?;
        return Ok(Written::Rejected);
    };
    sqlx::query(INSERT_INVOICE)
        .bind(&invoice)
        .bind(i64::from(number) * 100)
        .bind(operation)
        .execute(&mut *transaction)
        .await?;
    if flags.rollback_every != 0 && number.is_multiple_of(flags.rollback_every) {
        transaction.rollback().await?;
        return Ok(Written::RolledBack);
    }
    transaction.commit().await?;
    Ok(Written::Committed(envelope.status))
}

fn submission(flags: &Flags, invoice: &str) -> Submission {
    let arguments = json!({
        "queue_id": "billing",
        "subject": format!("Invoice {invoice}"),
        "body": format!("Please post invoice {invoice}."),
    });
    Submission {
        tenant: flags.tenant.clone(),
        environment: flags.environment.clone(),
        workflow_id: invoice.to_owned(),
        step_id: "post-invoice".to_owned(),
        tool: flags.tool.clone(),
        arguments: arguments.to_string(),
        actor: Some("billing".to_owned()),
        metadata: Some(json!({"source": "publisher.rs"}).to_string()),
        ..Submission::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Flags::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "publisher: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<(), Box<dyn Error>> {
    let count = flags.count;
    let mut books = Books { flags, publisher: Publisher::default(), connection: None };
    let (mut committed, mut rolled_back) = (0_u32, 0_u32);
    let mut by_status: BTreeMap<String, u32> = BTreeMap::new();
    for number in 1..=count {
        let status = match books.write(number).await? {
            Written::RolledBack => {
                rolled_back += 1;
                continue;
            }
            Written::Committed(status) => {
                committed += 1;
                status
            }
            Written::Rejected => Status::Rejected,
        };
        let name = json!(status).as_str().unwrap_or_default().to_owned();
        *by_status.entry(name).or_default() += 1;
    }
    let summary = json!({
        "submitted": count,
        "committed": committed,
        "rolled_back": rolled_back,
        "by_status": by_status,
    });
    writeln!(std::io::stdout(), "{summary}")?;
    Ok(())
}
