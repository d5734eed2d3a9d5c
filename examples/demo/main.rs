//! `make demo`: the main job on real input with faults, then a table and a verdict.
//!
//! Everything here is what a user has: the oncebox binary with its roles as processes of their own,
//! the example contracts, the two example publishers, and the ticket service, which counts its
//! effects itself. The verdict compares three books that are kept apart: what the applications
//! committed, what oncebox recorded, and what the service did.
//!
//! It is run by `deploy/local/with-services.sh`, which brings PostgreSQL and RabbitMQ and says in
//! `SERVICES_CONTROL` and `SERVICES_DIR` how far they may be stopped.

mod approver;
mod books;
mod deployment;
mod faults;
mod input;
mod process;
mod report;
mod service;
mod steps;
mod stories;
mod submitting;
mod verdict;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::approver::Approver;
use crate::deployment::{Control, Deployment};
use crate::faults::Crew;
use crate::service::Service;
use crate::steps::Steps;
use crate::submitting::Sent;

/// Whatever stops the demo, as text for a person.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Longest wait for all operations to have ended: a dead worker's leases (30 s) and their retries,
/// on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(150);

#[tokio::main]
async fn main() -> ExitCode {
    // What is dropped here kills the processes it stands for.
    let played = tokio::select! {
        played = play() => played,
        () = interrupted() => Err("interrupted".into()),
    };
    match played {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            drop(writeln!(std::io::stderr(), "demo: {fault}"));
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// The whole demo; true when every promise held.
async fn play() -> Result<bool, Fault> {
    let begun = Instant::now();
    let steps = Steps::new();
    let deployment = Deployment::prepare().await?;
    let input = input::write(&deployment.run)?;
    let (service, mut service_process) = Service::start(&deployment).await?;

    let step = steps.begin("migrate, make the example contracts current");
    deployment.migrate_and_activate().await?;
    step.done("");

    let step = steps.begin("start 2 relays, 3 workers and maintain, a process each");
    let mut crew = Crew::start(&deployment, &service)?;
    step.done("");

    let step =
        steps.begin("order faults: lost answers, cut connections, delays, 429, 500, duplicates");
    faults::order(&service).await?;
    step.done("");

    let approver = Approver::start(&deployment);
    let sent = under_load(&steps, &deployment, &input, &service, &mut crew).await?;

    let step = steps.begin("wait until every operation has ended");
    books::until_ended(&deployment, &mut crew, &step, PATIENCE).await?;
    step.done("");

    let approved = approver.stop().await?;
    steps.note(&format!("{approved} mails were approved by a person, one by one"));

    let step = steps.begin("tell four stories: an approval, a provider's job, a twin, an unknown");
    service.reset().await?;
    let stories = stories::tell(&deployment, &service).await?;
    step.done("");

    let step = steps.begin("stop all roles: they drain and end by themselves");
    let undrained = crew.stop().await?;
    step.done("");

    let books = books::read(&deployment, &service).await?;
    service_process.kill().await?;
    let checks = verdict::judge(&books, &input, &sent, &stories, &undrained);
    let held = checks.iter().all(verdict::Check::held);
    report::print(&deployment, &books, &sent, &stories, &checks, begun.elapsed())?;
    if let Err(fault) = deployment.clean_up().await {
        steps.note(&format!(
            "queues and exchanges named {}… are left on the broker: {fault}",
            deployment.prefix
        ));
    }
    Ok(held)
}

/// Publishes everything while workers, PostgreSQL and the broker are killed.
async fn under_load(
    steps: &Steps,
    deployment: &Deployment,
    input: &input::Input,
    service: &Service,
    crew: &mut Crew,
) -> Result<Sent, Fault> {
    let step = steps.begin(&format!(
        "publish {} from a file, {} from Rust, {} from Python at once",
        input.lines.len(),
        submitting::RUST_COUNT,
        submitting::PYTHON_COUNT,
    ));
    let publishing = submitting::start(deployment, input)?;
    faults::until_effects(service, crew, 150).await?;
    step.done("under way");
    if deployment.python.is_none() {
        steps.note("no Python interpreter with psycopg 3: the Python publisher is left out");
    }

    let step = steps.begin("kill a worker (SIGKILL), start another");
    let hit = faults::kill_a_worker(deployment, service, crew).await?;
    step.done(&format!("{hit} of its calls were on their way"));

    faults::until_effects(service, crew, 600).await?;
    match &deployment.control {
        Control::Private(directory) => {
            let step = steps.begin("kill PostgreSQL, start it again");
            let so_far = faults::so_far(deployment, service).await?;
            deployment.restart(directory, "restart-postgres", "immediate").await?;
            step.done(&so_far);
            faults::until_effects(service, crew, 1200).await?;
            let step = steps.begin("kill the broker, publish all once more, start it again");
            let so_far = faults::so_far(deployment, service).await?;
            let restart = deployment.restart(directory, "restart-rabbit", "kill");
            let (restarted, sent) = tokio::join!(restart, publishing.then_again(deployment, input));
            restarted?;
            step.done(&so_far);
            sent
        }
        Control::Docker | Control::Given => {
            steps.note(
                "the servers are not ours to stop: PostgreSQL and the broker are not restarted",
            );
            let step = steps.begin("publish all once more, and changed requests under used keys");
            let sent = publishing.then_again(deployment, input).await?;
            step.done("");
            Ok(sent)
        }
    }
}
