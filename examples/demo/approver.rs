//! The person who approves: looks what waits, and says yes to what was shown, one by one.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Fault;
use crate::deployment::Deployment;

/// Commands at once.
const AT_ONCE: usize = 4;

/// A person at work in the background.
pub(crate) struct Approver {
    stop: watch::Sender<bool>,
    work: JoinHandle<u64>,
}

/// A request for approval, as `oncebox ops show` has it.
#[derive(sqlx::FromRow)]
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) fingerprint: String,
}

impl Approver {
    /// Approves everything that waits until told to stop.
    pub(crate) fn start(deployment: &Deployment) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (database, template) = (deployment.database.clone(), deployment.oncebox(&[]));
        Self { stop, work: tokio::spawn(work(database, template, stopped)) }
    }

    /// How many were approved.
    pub(crate) async fn stop(self) -> Result<u64, Fault> {
        self.stop.send_replace(true);
        Ok(self.work.await?)
    }
}

async fn work(database: String, template: Command, mut stopped: watch::Receiver<bool>) -> u64 {
    let mut approved = 0;
    while !*stopped.borrow() {
        // The database is away at times, and then there is nothing to see.
        for batch in waiting(&database).await.unwrap_or_default().chunks(AT_ONCE) {
            let said = batch.iter().map(|request| approve(&template, request));
            let said = futures::future::join_all(said).await;
            approved += said.into_iter().filter(|yes| *yes).map(u64::from).sum::<u64>();
        }
        drop(tokio::time::timeout(Duration::from_millis(300), stopped.changed()).await);
    }
    approved
}

/// What waits for an approval now.
pub(crate) async fn waiting(database: &str) -> Result<Vec<Request>, Fault> {
    let mut connection = PgConnection::connect(database).await?;
    let requests = sqlx::query_as(
        "select operation_id::text as id, request_fingerprint as fingerprint from oncebox.operations \
         where phase = 'awaiting_approval' order by operation_id",
    )
    .fetch_all(&mut connection)
    .await?;
    connection.close().await?;
    Ok(requests)
}

async fn approve(template: &Command, request: &Request) -> bool {
    let mut command = again(template);
    command.args(["ops", "approve", &request.id, "--fingerprint", &request.fingerprint]);
    command.args(["--by", "ann"]);
    command.output().await.is_ok_and(|output| output.status.success())
}

/// The same command without its arguments: program, directory, environment.
fn again(template: &Command) -> Command {
    let template = template.as_std();
    let mut command = Command::new(template.get_program());
    if let Some(directory) = template.get_current_dir() {
        command.current_dir(directory);
    }
    for (name, value) in template.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}
