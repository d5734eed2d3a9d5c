//! What goes wrong, and the processes that have to live with it.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::Fault;
use crate::deployment::Deployment;
use crate::process::Process;
use crate::service::Service;

/// The first worker is the one that is killed.
const VICTIM: &str = "worker-1";

/// So many calls of its are waited for; a busy machine may not bring them together.
const ENOUGH_CALLS: i64 = 10;

/// Longest wait for a fault's moment; a start on a busy machine takes seconds.
const MOMENT: Duration = Duration::from_secs(60);

/// The roles that run.
pub(crate) struct Crew {
    processes: Vec<Process>,
    service_url: String,
}

impl Crew {
    pub(crate) fn start(deployment: &Deployment, service: &Service) -> Result<Self, Fault> {
        let mut crew = Self { processes: Vec::new(), service_url: service.url.clone() };
        for name in ["relay-1", "relay-2", VICTIM, "worker-2", "worker-3", "maintain-1"] {
            crew.add(deployment, name)?;
        }
        Ok(crew)
    }

    /// Starts the role that `name` begins with.
    fn add(&mut self, deployment: &Deployment, name: &str) -> Result<(), Fault> {
        let role = name.split('-').next().unwrap_or(name);
        let mut command = deployment.oncebox(&["run", "--role", role]);
        command.env("TICKET_SERVICE_URL", &self.service_url).env("ONCEBOX_WORKER_NAME", name);
        self.processes.push(Process::start(name, command, &deployment.run)?);
        Ok(())
    }

    /// An error when one has ended that nobody killed.
    pub(crate) fn still_runs(&mut self) -> Result<(), Fault> {
        self.processes.iter_mut().try_for_each(Process::still_runs)
    }

    /// SIGTERM to all at once; answers who did not drain and end with success.
    pub(crate) async fn stop(self) -> Result<Vec<String>, Fault> {
        let stops = self.processes.into_iter().map(|process| async {
            let name = process.name.clone();
            process.stop().await.map(|drained| (!drained).then_some(name))
        });
        let ended = futures::future::try_join_all(stops).await?;
        Ok(ended.into_iter().flatten().collect())
    }
}

/// Orders the service's faults. Numbers without a common divisor, so that they meet all kinds.
pub(crate) async fn order(service: &Service) -> Result<(), Fault> {
    for rule in [
        json!({"on": "tickets", "every": 31, "drop_response": true}),
        json!({"on": "tickets", "every": 37, "status": 429, "retry_after": "1"}),
        json!({"on": "tickets", "every": 41, "drop_before_effect": true}),
        json!({"on": "tickets", "every": 43, "status_after_effect": 500}),
        json!({"on": "tickets", "every": 47, "duplicate": true}),
        json!({"on": "tickets", "every": 53, "delay_ms_before_effect": 700}),
        json!({"on": "tickets", "every": 397, "status": 422}),
        // Longer than the contract's time-out: the effect is there, the caller has gone.
        json!({"on": "tickets", "every": 499, "delay_ms_after_effect": 11_000}),
        json!({"on": "mail", "every": 13, "drop_response": true}),
        json!({"on": "mail", "every": 17, "status": 429, "retry_after": "1"}),
        // Every other call takes its time, as a service elsewhere would.
        json!({"delay_ms_before_effect": 25}),
    ] {
        service.control(rule).await?;
    }
    Ok(())
}

/// Waits until the service has made so many effects.
pub(crate) async fn until_effects(
    service: &Service,
    crew: &mut Crew,
    effects: u64,
) -> Result<(), Fault> {
    let begun = Instant::now();
    while service.effects().await?.total < effects {
        crew.still_runs()?;
        if begun.elapsed() > MOMENT {
            return Err(format!("the service did not make {effects} effects in time").into());
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    Ok(())
}

/// How far everything is, in words.
pub(crate) async fn so_far(deployment: &Deployment, service: &Service) -> Result<String, Fault> {
    let mut connection = PgConnection::connect(&deployment.database).await?;
    let published: i64 = sqlx::query_scalar("select count(*) from oncebox.operations")
        .fetch_one(&mut connection)
        .await?;
    let effects = service.effects().await?.total;
    Ok(format!("at {published} operations, {effects} effects"))
}

/// Kills a worker whose calls are at the service, unanswered, and starts another. The service then
/// goes on with them: effects that nobody hears of. Answers how many operations it held.
pub(crate) async fn kill_a_worker(
    deployment: &Deployment,
    service: &Service,
    crew: &mut Crew,
) -> Result<i64, Fault> {
    service.control(json!({"pause": true})).await?;
    let held = calls_of_the_victim(deployment).await;
    for process in crew.processes.iter_mut().filter(|process| process.name == VICTIM) {
        process.kill().await?;
    }
    service.control(json!({"pause": false})).await?;
    crew.processes.retain(|process| process.name != VICTIM);
    crew.add(deployment, "worker-4")?;
    held
}

/// Waits until the worker has some calls on their way.
async fn calls_of_the_victim(deployment: &Deployment) -> Result<i64, Fault> {
    let mut connection = PgConnection::connect(&deployment.database).await?;
    let begun = Instant::now();
    loop {
        let held: i64 = sqlx::query_scalar(
            "select count(*) from oncebox.operations where split_part(owner, ':', 1) = $1 and phase = 'sent'",
        )
        .bind(VICTIM)
        .fetch_one(&mut connection)
        .await?;
        // Less than the contracts' time-out: held calls must not time out.
        let waited_enough = begun.elapsed() > Duration::from_secs(5);
        if held >= ENOUGH_CALLS || (waited_enough && held > 0) {
            return Ok(held);
        }
        if waited_enough {
            return Err(format!("{VICTIM} has no calls on their way").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
