//! Four operations that end in ways of their own, each with what oncebox wrote down of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use crate::Fault;
use crate::approver;
use crate::deployment::Deployment;
use crate::service::Service;

/// Who submits the stories' operations.
pub(crate) const ACTOR: &str = "storyteller";

/// Longest wait for a turn of a story, on a machine that is busy with other things.
const TURN: Duration = Duration::from_secs(40);

/// What happened to one operation.
pub(crate) struct Story {
    pub(crate) what: &'static str,
    pub(crate) lines: Vec<String>,
    broken: Option<String>,
}

impl Story {
    /// What was not as it should be.
    pub(crate) fn broken(&self) -> Option<String> {
        self.broken.as_ref().map(|broken| format!("{}: {broken}", self.what))
    }
}

/// Where an operation stands.
#[derive(sqlx::FromRow)]
struct Stand {
    id: String,
    status: String,
    phase: Option<String>,
    reason: Option<String>,
}

impl Stand {
    fn is(&self, wanted: &str) -> bool {
        self.phase.as_deref() == Some(wanted) || self.status == wanted
    }

    fn word(&self) -> String {
        let state = self.phase.as_deref().unwrap_or(&self.status);
        self.reason.as_ref().map_or(state.to_owned(), |reason| format!("{state} ({reason})"))
    }
}

struct Teller<'a> {
    deployment: &'a Deployment,
    service: &'a Service,
    database: PgConnection,
}

/// Tells all of them, one after the other.
pub(crate) async fn tell(deployment: &Deployment, service: &Service) -> Result<Vec<Story>, Fault> {
    let database = PgConnection::connect(&deployment.database).await?;
    let mut teller = Teller { deployment, service, database };
    let stories = vec![
        teller.approval().await?,
        teller.job().await?,
        teller.twin().await?,
        teller.unknown().await?,
    ];
    teller.database.close().await?;
    Ok(stories)
}

impl Teller<'_> {
    async fn approval(&mut self) -> Result<Story, Fault> {
        let mail =
            |to: &str| json!({"to": to, "subject": "Your refund", "body": "It is on its way."});
        let mut lines = Vec::new();
        for step in ["mail-yes", "mail-no"] {
            self.submit("mail.send", step, mail(&format!("{step}@example.org")), None).await?;
            self.until(step, "awaiting_approval").await?;
        }
        lines.push("submitted by an agent: awaiting_approval".to_owned());
        let requests = approver::waiting(&self.deployment.database).await?;
        let [yes, no] = requests.as_slice() else { return Err("two mails should wait".into()) };
        let own = self.answer("approve", yes, ACTOR).await?;
        lines.push(format!(
            "the agent approves its own request: {}",
            if own { "taken" } else { "refused" }
        ));
        let given =
            self.answer("approve", yes, "ann").await? && self.answer("deny", no, "ann").await?;
        let sent = self.until("mail-yes", "applied").await?;
        let not_sent = self.until("mail-no", "rejected").await?;
        lines.push(format!(
            "ann approves one: {}; denies the other: {}",
            sent.word(),
            not_sent.word()
        ));
        let right = !own && given && sent.is("applied") && not_sent.is("rejected");
        Ok(story("an approval, by somebody else than who asked", lines, right))
    }

    async fn job(&mut self) -> Result<Story, Fault> {
        self.service.control(json!({"jobs": {"take_ms": 2000}})).await?;
        self.service.control(json!({"on": "jobs", "times": 1, "drop_response": true})).await?;
        self.submit("tickets.batch", "job", ticket("Ordered"), None).await?;
        let accepted = self.until("job", "accepted").await?;
        let ended = self.until("job", "applied").await?;
        let lines = vec![
            "the answer that named the job is lost; the same key is sent again and gets the same job".to_owned(),
            format!("{}, polled, {}", accepted.word(), ended.word()),
            self.trace("job").await?,
        ];
        Ok(story("a provider's job", lines, ended.is("applied")))
    }

    async fn twin(&mut self) -> Result<Story, Fault> {
        self.service.control(json!({"pause": true})).await?;
        self.submit("tickets.create", "twin-1", ticket("Twice"), None).await?;
        self.until("twin-1", "sent").await?;
        self.submit("tickets.create", "twin-2", ticket("Twice"), None).await?;
        let held = self.until("twin-2", "held").await?;
        self.service.control(json!({"pause": false})).await?;
        let first = self.until("twin-1", "applied").await?;
        let second = self.until("twin-2", "rejected").await?;
        let older = "acme:production:story:twin-1";
        self.submit("tickets.create", "twin-2", ticket("Twice"), Some(older)).await?;
        let meant = self.until("twin-2", "applied").await?;
        let lines = vec![
            format!(
                "an agent that heard nothing plans the same call under a new key: {}",
                held.word()
            ),
            format!("the first is {}, so the second is {}", first.word(), second.word()),
            format!(
                "submitted again as distinct_from the first, because a second is meant: {}",
                meant.word()
            ),
        ];
        Ok(story("a held twin", lines, meant.is("applied")))
    }

    async fn unknown(&mut self) -> Result<Story, Fault> {
        self.service.control(json!({"on": "tickets", "times": 1, "drop_response": true})).await?;
        self.service.control(json!({"name": "away", "on": "lookup", "status": 500})).await?;
        self.submit("tickets.import", "lost", ticket("Imported"), None).await?;
        let unknown = self.until("lost", "unknown").await?;
        self.service.control(json!({"remove": "away"})).await?;
        // A person has mended the look-up and asks at once; by itself it would be asked again, too.
        let retry = self.deployment.oncebox(&["ops", "retry", &unknown.id, "--by", "ann"]);
        self.run(retry).await?;
        let found = self.until("lost", "applied").await?;
        let lines = vec![
            format!("the answer is lost, and the look-up does not work either: {}", unknown.word()),
            format!("the look-up works again: found, {}", found.word()),
            self.trace("lost").await?,
        ];
        Ok(story("an unknown that is reconciled", lines, found.is("applied")))
    }

    async fn submit(
        &mut self,
        tool: &str,
        step: &str,
        arguments: Value,
        distinct_from: Option<&str>,
    ) -> Result<(), Fault> {
        let line = json!({
            "tenant": "acme", "environment": "production", "workflow_id": "story", "step_id": step,
            "tool": tool, "arguments": arguments, "actor": ACTOR, "distinct_from": distinct_from,
        });
        let file = self.deployment.run.join("story.ndjson");
        std::fs::write(&file, format!("{line}\n"))?;
        let mut command = self.deployment.oncebox(&["submit", "--file"]);
        command.arg(&file);
        self.run(command).await.map(drop)
    }

    async fn answer(
        &self,
        verb: &str,
        request: &approver::Request,
        by: &str,
    ) -> Result<bool, Fault> {
        let mut command = self.deployment.oncebox(&["ops", verb, &request.id]);
        command.args([
            "--fingerprint",
            &request.fingerprint,
            "--by",
            by,
            "--reason",
            "looked at it",
        ]);
        self.run(command).await
    }

    async fn run(&self, mut command: Command) -> Result<bool, Fault> {
        Ok(command.output().await?.status.success())
    }

    /// Waits until the operation has come there.
    async fn until(&mut self, step: &str, wanted: &str) -> Result<Stand, Fault> {
        let begun = Instant::now();
        loop {
            let stand: Stand = sqlx::query_as(
                "select operation_id::text as id, status, phase, reason from oncebox.operations \
                 where tenant_id = 'acme' and operation_key = 'acme:production:story:' || $1",
            )
            .bind(step)
            .fetch_one(&mut self.database)
            .await?;
            if stand.is(wanted) {
                return Ok(stand);
            }
            if begun.elapsed() > TURN {
                return Err(format!("{step} is {} and not {wanted}", stand.word()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The operation's trace in a line.
    async fn trace(&mut self, step: &str) -> Result<String, Fault> {
        let events: Vec<String> = sqlx::query_scalar(
            "select e.event from oncebox.operation_events e join oncebox.operations o using (operation_id) \
             where o.tenant_id = 'acme' and o.operation_key = 'acme:production:story:' || $1 order by e.event_id",
        )
        .bind(step)
        .fetch_all(&mut self.database)
        .await?;
        Ok(format!("trace: {}", events.join(" ")))
    }
}

fn ticket(subject: &str) -> Value {
    json!({"queue_id": "support", "subject": subject, "body": "A story of the demo."})
}

fn story(what: &'static str, lines: Vec<String>, right: bool) -> Story {
    let broken = (!right).then(|| lines.join("; "));
    Story { what, lines, broken }
}
