//! Starts the roles, stops them in order, drains.
//!
//! Contracts are read and registered first: a tool that cannot be served is named and left out, the
//! others run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::broker::BrokerError;
use crate::config::{Config, Roles, contract_secret};
use crate::consumer::{self, Served, Serving, WorkerSettings};
use crate::contract_file::{CheckedContract, LoadedContract};
use crate::domain::contract::EffectClass;
use crate::domain::contract::template::SecretRef;
use crate::domain::rule::AttemptRule;
use crate::maintain::{self, MaintainSettings};
use crate::relay::{self, RelaySettings};
use crate::shutdown;
use crate::store::{self, Link, Registered, StoreError};
use crate::tool::http::HttpClient;
use crate::tool::{DownstreamSecret, ServedTool, Tool, ToolKind, TransactionalTool};

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

/// Tools written in Rust that this process adds to its contracts, by (tool, version).
#[derive(Default, Clone)]
pub struct RustTools {
    tools: Vec<(String, String, RustTool)>,
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
    if roles.worker {
        let (settings, served) = worker(&config, &tools).await?;
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

async fn worker(
    config: &Config,
    tools: &RustTools,
) -> Result<(WorkerSettings, Served), RuntimeError> {
    let secret = config.downstream_secret.as_ref().ok_or(RuntimeError::NoSecret)?;
    let served = serve(config, tools).await?;
    let settings = WorkerSettings {
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
    };
    Ok((settings, served))
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
                )
                .await
            })
            .await?;
        match make_ready(&loaded, &registered, config.worker.margin, tools, &client) {
            Ok(serving) => served.add(serving),
            Err(why) => {
                error!(tool = %loaded.contract.tool, version = %loaded.contract.version, why, "tool is not served");
            }
        }
    }
    if served.versions().is_empty() {
        return Err(RuntimeError::NothingToServe);
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
    margin: Duration,
    tools: &RustTools,
    client: &Arc<HttpClient>,
) -> Result<Serving, String> {
    if registered.material_digest != loaded.contract.material_digest() {
        return Err(
            "its material part changed under the same version; give it a new version".to_owned()
        );
    }
    let contract =
        CheckedContract::read(&loaded.text, margin).map_err(|error| error.to_string())?;
    let shared = Arc::new(loaded.contract.clone());
    let tool = match tools.find(shared.tool.as_str(), shared.version.as_str()) {
        Some(RustTool::Effect(code)) => ServedTool::rust(shared, Arc::clone(code)),
        Some(RustTool::Transactional(code)) => ServedTool::transactional(shared, Arc::clone(code)),
        None if shared.effect_class == EffectClass::Transactional => {
            return Err("a transactional tool needs its Rust code in this process".to_owned());
        }
        None => ServedTool::http(shared, Arc::clone(client), &contract_secret),
    };
    let tool = Arc::new(tool.map_err(|error| error.to_string())?);
    tell_of_missing_secrets(&tool);
    let rule = AttemptRule::of(&contract.contract, margin);
    Ok(Serving { contract, rule, tool })
}

/// A tool whose secrets are missing is served all the same: its operations wait, and are sent when a
/// worker starts that has them. The log says so at once, not at the first attempt.
fn tell_of_missing_secrets(served: &ServedTool) {
    let ToolKind::Http(tool) = served.kind() else { return };
    for missing in tool.missing_secrets() {
        let contract = served.contract();
        let name = match missing {
            SecretRef::Env(name) => format!("${{env:{name}}}"),
            SecretRef::File(path) => format!("${{file:{path}}}"),
        };
        warn!(tool = %contract.tool, version = %contract.version, missing = name, "nothing is sent until this is set");
    }
}
