//! The ticket service, and how it is asked and told things.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::Fault;
use crate::deployment::Deployment;
use crate::process::Process;

/// The running service.
pub(crate) struct Service {
    pub(crate) url: String,
    pub(crate) journal: PathBuf,
}

/// What it counted.
#[derive(Deserialize)]
pub(crate) struct Effects {
    pub(crate) total: u64,
    /// Effects of each key: an `Idempotency-Key`, or a mail's reference.
    pub(crate) by_key: BTreeMap<String, u64>,
    /// Calls that were to make an effect.
    pub(crate) requests: u64,
}

/// A line of its journal, on disk before the call was answered.
#[derive(Deserialize)]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) key: String,
    /// The receipt.
    pub(crate) id: String,
}

impl Service {
    pub(crate) async fn start(deployment: &Deployment) -> Result<(Self, Process), Fault> {
        let journal = deployment.run.join("journal.ndjson");
        let mut command = Command::new(deployment.example("ticket_service"));
        command.arg("--journal").arg(&journal);
        let (process, line) =
            Process::start_and_read("ticket_service", command, &deployment.run).await?;
        let url = line.trim().strip_prefix("listening on ").ok_or("the service does not listen")?;
        Ok((Self { url: url.to_owned(), journal }, process))
    }

    pub(crate) async fn effects(&self) -> Result<Effects, Fault> {
        Ok(serde_json::from_str(&self.call("GET", "/effects", "").await?)?)
    }

    /// Adds a fault rule, or pauses and resumes.
    pub(crate) async fn control(&self, rule: Value) -> Result<(), Fault> {
        self.call("POST", "/control", &rule.to_string()).await.map(drop)
    }

    /// Takes all rules away.
    pub(crate) async fn reset(&self) -> Result<(), Fault> {
        self.call("POST", "/reset", "").await.map(drop)
    }

    /// The journal, read by us.
    pub(crate) fn journal(&self) -> Result<Vec<Entry>, Fault> {
        let text = std::fs::read_to_string(&self.journal)?;
        Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Result<String, Fault> {
        let address = self.url.strip_prefix("http://").unwrap_or(&self.url);
        let mut stream = TcpStream::connect(address).await?;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(format!("the ticket service refused {path}: {answer}").into()),
        }
    }
}
