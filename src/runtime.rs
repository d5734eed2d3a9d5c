//! Starts the roles, stops them in order, drains.
//!
//! Contracts are read and registered first: a tool that cannot be served is named and left out, the
//! others run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::broker::BrokerError;
use crate::config::{Config, Roles, Worker, contract_secret};
use crate::consumer::{self, Served, WorkerSettings};
use crate::contract_file::{CheckedContract, LoadedContract};
use crate::domain::contract::EffectClass;
use crate::domain::contract::template::SecretRef;
use crate::domain::rule::AttemptRule;
use crate::maintain::{self, MaintainSettings};
use crate::reconcile::{self, ReconcileSettings};
use crate::relay::{self, RelaySettings};
use crate::serving::Serving;
use crate::shutdown;
use crate::store::{self, Link, Registered, StoreError};
use crate::tool::http::HttpClient;
use crate::tool::{
    Authorizer, Authorizers, DownstreamSecret, Outside, ServedTool, Tool, TransactionalTool,
};

/// Why the roles could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The contracts could not be registered.
    #[error("contracts cannot be registered; run `oncebox doctor`")]
    Store(#[from] StoreError),
    /// The broker's settings cannot work.
    #[error("the broker's settings cannot work")]
    Broker(#[from] BrokerError),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up; look at the machine's certificates")]
    Tls,
    /// The worker has no secret to derive keys towards downstreams with.
    #[error("ONCEBOX_DOWNSTREAM_SECRET is missing; set it to id:secret")]
    NoSecret,
    /// The worker has no contract that it can serve.
    #[error(
        "no contract can be served; set ONCEBOX_CONTRACTS to contract files or directories, and look at `oncebox contract check`"
    )]
    NothingToServe,
    /// A role ended with a fault.
    #[error("a role ended with a fault; the process stops so that it is started anew")]
    Fault,
}

/// What is written in Rust and added to this process's contracts: tools by (tool, version), and
/// authorizers by name.
#[derive(Default, Clone)]
pub struct RustTools {
    tools: Vec<(String, String, RustTool)>,
    authorizers: Authorizers,
}

#[derive(Clone)]
enum RustTool {
    Effect(Arc<dyn Tool>),
    Transactional(Arc<dyn TransactionalTool>),
}

impl std::fmt::Debug for RustTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|(tool, version, _)| (tool, version))).finish()
    }
}

impl RustTools {
    /// Adds a tool whose effect lies outside this database.
    #[must_use]
    pub fn with(mut self, tool: &str, version: &str, code: Arc<dyn Tool>) -> Self {
        self.tools.push((tool.to_owned(), version.to_owned(), RustTool::Effect(code)));
        self
    }

    /// Adds a tool whose effect is part of the settling transaction.
    #[must_use]
    pub fn with_transactional(
        mut self,
        tool: &str,
        version: &str,
        code: Arc<dyn TransactionalTool>,
    ) -> Self {
        self.tools.push((tool.to_owned(), version.to_owned(), RustTool::Transactional(code)));
        self
    }

    /// Adds an authorizer, for contracts that say `authorization: {code: name}`. A contract that names
    /// one which is not there is not served.
    #[must_use]
    pub fn with_authorizer(mut self, name: &str, code: Arc<dyn Authorizer>) -> Self {
        self.authorizers.add(name, code);
        self
    }

    /// The authorizers, for whoever hands out results.
    #[must_use]
    pub fn authorizers(&self) -> &Authorizers {
        &self.authorizers
    }

    fn find(&self, tool: &str, version: &str) -> Option<&RustTool> {
        self.tools.iter().find(|(t, v, _)| t == tool && v == version).map(|(_, _, code)| code)
    }
}

/// Runs `roles` until `shutdown` says stop, then drains.
///
/// # Errors
/// What keeps the roles from starting, or the fault of one that ended by itself.
pub async fn run(
    config: Config,
    roles: Roles,
    tools: RustTools,
    shutdown: watch::Receiver<bool>,
) -> Result<(), RuntimeError> {
    let mut running = JoinSet::new();
    let mut known = None;
    if roles.worker {
        let settings = worker(&config)?;
        let served = serve(&config, &tools).await?;
        if served.versions().is_empty() {
            return Err(RuntimeError::NothingToServe);
        }
        known = Some(served.all());
        running.spawn(consumer::run(settings, served, shutdown.clone()));
    }
    if roles.relay {
        for number in 1..=config.relay.publishers {
            running.spawn(relay::run(relay_settings(&config, number), shutdown.clone()));
        }
    }
    if roles.maintain {
        let maintain = MaintainSettings {
            database: config.database.url.clone(),
            broker: config.broker_settings("oncebox maintain"),
            every: config.maintain.every,
            page: config.maintain.page,
        };
        running.spawn(maintain::run(maintain, shutdown.clone()));
        running.spawn(reconcile(config, tools, known, shutdown.clone()));
    }
    info!(worker = roles.worker, relay = roles.relay, maintain = roles.maintain, "running");
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(()) if shutdown::is_asked(&shutdown) => {}
            Ok(()) => return Err(RuntimeError::Fault),
            Err(fault) => {
                error!(%fault, "a role ended with a fault");
                return Err(RuntimeError::Fault);
            }
        }
    }
    info!("stopped");
    Ok(())
}

/// Looks unknown operations up, with the tools of this process; those of the worker, where it has one.
async fn reconcile(
    config: Config,
    tools: RustTools,
    mut known: Option<Vec<Arc<Serving>>>,
    mut shutdown: watch::Receiver<bool>,
) {
    let served = loop {
        if let Some(served) = known.take() {
            break served;
        }
        match serve(&config, &tools).await {
            Ok(served) => known = Some(served.all()),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "no tools yet; trying again");
                let stopped = timeout(SERVE_AGAIN, shutdown::asked(&mut shutdown)).await;
                if stopped.is_ok() {
                    return;
                }
            }
        }
    };
    if served.is_empty() {
        warn!("no contract is served here: this process looks up no unknown operations");
    }
    let database = config.database.url.clone();
    let settings = ReconcileSettings { database, every: config.maintain.every };
    reconcile::run(settings, served, shutdown).await;
}

/// Between tries of a role that needs its contracts and no database to start.
const SERVE_AGAIN: Duration = Duration::from_secs(5);

/// The settings of one of the process's relays; they share its window.
fn relay_settings(config: &Config, number: u32) -> RelaySettings {
    RelaySettings {
        database: config.database.url.clone(),
        listen: config.database.listen_url.clone(),
        broker: config.broker_settings(&format!("oncebox relay {number}")),
        window: (config.relay.window / config.relay.publishers.max(1)).max(1),
        batch: config.relay.batch,
        poll: config.relay.poll,
        lease: config.relay.lease,
    }
}

fn worker(config: &Config) -> Result<WorkerSettings, RuntimeError> {
    let secret = config.downstream_secret.as_ref().ok_or(RuntimeError::NoSecret)?;
    Ok(WorkerSettings {
        database: config.database.url.clone(),
        broker: config.broker_settings("oncebox worker"),
        name: config
            .worker
            .name
            .clone()
            .unwrap_or_else(|| format!("worker-{}", std::process::id())),
        concurrency: config.worker.concurrency,
        batch: config.worker.batch,
        margin: config.worker.margin,
        drain: config.worker.drain,
        secret: DownstreamSecret::new(secret.current_id(), secret.current()),
    })
}

/// Reads the contracts, registers what is missing and makes ready what can be served. A tool that
/// cannot be is named in the log and left out.
///
/// # Errors
/// When nothing can be registered at all, or TLS cannot be set up.
pub async fn serve(config: &Config, tools: &RustTools) -> Result<Served, RuntimeError> {
    let client = Arc::new(HttpClient::system().map_err(|_| RuntimeError::Tls)?);
    let mut link = Link::new(&config.database.url, "worker start", Duration::from_secs(20));
    let mut served = Served::default();
    for loaded in load(config) {
        let registered = link
            .transaction(async |connection| {
                let LoadedContract { contract, text, .. } = &loaded;
                let digest = contract.material_digest();
                store::register(
                    connection,
                    contract.tool.as_str(),
                    contract.version.as_str(),
                    text,
                    &digest,
                    store::Immaterial::of(contract),
                )
                .await
            })
            .await?;
        match make_ready(&loaded, &registered, &config.worker, tools, &client) {
            Ok(serving) => served.add(serving),
            Err(why) => {
                error!(tool = %loaded.contract.tool, version = %loaded.contract.version, why, "tool is not served");
            }
        }
    }
    Ok(served)
}

fn load(config: &Config) -> Vec<LoadedContract> {
    let (contracts, errors) =
        crate::contract_file::load_all(&config.contracts, config.worker.margin);
    for error in &errors {
        for line in error.lines() {
            warn!(problem = line, "contract is left out");
        }
    }
    contracts
}

fn make_ready(
    loaded: &LoadedContract,
    registered: &Registered,
    worker: &Worker,
    tools: &RustTools,
    client: &Arc<HttpClient>,
) -> Result<Serving, String> {
    if registered.material_digest != loaded.contract.material_digest() {
        return Err(
            "its material part changed under the same version; give it a new version".to_owned()
        );
    }
    let contract =
        CheckedContract::read(&loaded.text, worker.margin).map_err(|error| error.to_string())?;
    let shared = Arc::new(loaded.contract.clone());
    let outside = Outside {
        client: Arc::clone(client),
        secrets: &contract_secret,
        authorizers: &tools.authorizers,
    };
    let tool = match tools.find(shared.tool.as_str(), shared.version.as_str()) {
        Some(RustTool::Effect(code)) => ServedTool::rust(shared, Arc::clone(code), &outside),
        Some(RustTool::Transactional(code)) => {
            ServedTool::transactional(shared, Arc::clone(code), &outside)
        }
        None if shared.effect_class == EffectClass::Transactional => {
            return Err("a transactional tool needs its Rust code in this process".to_owned());
        }
        None => ServedTool::http(shared, &outside),
    };
    let tool = Arc::new(tool.map_err(|error| error.to_string())?);
    tell_of_missing_secrets(&tool);
    let mut rule = AttemptRule::of(&contract.contract, worker.margin, worker.stall_margin);
    rule.asks_before_send = tool.asks_before_send();
    Ok(Serving { contract, rule, tool })
}

/// A tool whose secrets are missing is served all the same: its operations wait, and are sent when a
/// worker starts that has them. The log says so at once, not at the first attempt.
fn tell_of_missing_secrets(served: &ServedTool) {
    for missing in served.missing_secrets() {
        let contract = served.contract();
        let name = match missing {
            SecretRef::Env(name) => format!("${{env:{name}}}"),
            SecretRef::File(path) => format!("${{file:{path}}}"),
        };
        warn!(tool = %contract.tool, version = %contract.version, missing = name, "what needs this is neither sent nor asked until it is set");
    }
}
