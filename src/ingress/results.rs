//! Handing out results: the *asking* actor is checked, whoever submitted.
//!
//! What a contract's `authorization` guards is the result: `response` and `effect_reference`, and the
//! older key that a suspected twin is held behind. Status, reason and what to do next are told to
//! everyone whom the caller lets ask for this tenant.
//!
//! Absent on purpose: any question to a policy service while a caller's transaction is open. A
//! submission therefore hands out what the database alone can decide about ([`super::Publisher`]);
//! [`Results`] asks everyone.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::SubmitError;
use super::contracts::Contracts;
use crate::config::contract_secret;
use crate::contract_file::CheckedContract;
use crate::domain::contract::Contract;
use crate::domain::evidence::Allowance;
use crate::domain::json::{Json, JsonLimits};
use crate::domain::outcome::{Asked, Envelope};
use crate::domain::permission::granted;
use crate::domain::reason::Reason;
use crate::store::{self, Connection, Loaded, StoreError, Which};
use crate::tool::http::{HttpClient, TlsSetupError};
use crate::tool::{Action, Authorizers, Permission, Question, UnknownAuthorizer};

/// Looks at outcomes on behalf of an actor. Cheap to share; keeps read contracts.
pub struct Results {
    client: Arc<HttpClient>,
    authorizers: Authorizers,
    contracts: Contracts,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The tenant that the caller has authenticated. Another tenant's operations are not there.
    pub tenant: &'a str,
    /// The actor that the caller has authenticated; `None`: nobody by name, who has no grant.
    pub actor: Option<&'a str>,
}

/// Why there is no answer. Nothing of the result was handed out.
#[derive(Debug, Error)]
pub enum ResultError {
    /// Whoever decides could not be asked: the same look may be repeated later.
    #[error("whoever decides about this result could not be asked; repeat later")]
    PolicyUnreachable,
    /// The contract names an authorizer that this process does not have.
    #[error(transparent)]
    NoAuthorizer(#[from] UnknownAuthorizer),
    /// The record's contract version is not registered, or this release cannot read it.
    #[error("the record's contract cannot be read; look at oncebox doctor")]
    Contract,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<SubmitError> for ResultError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Store(error) => Self::Store(error),
            SubmitError::Invalid(_)
            | SubmitError::Key(_)
            | SubmitError::Arguments(_)
            | SubmitError::UnknownContract
            | SubmitError::UnreadableContract
            | SubmitError::Busy => Self::Contract,
        }
    }
}

impl Results {
    /// A reader that asks policy services over HTTP, with this process's secrets, and `authorizers`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(authorizers: Authorizers) -> Result<Self, TlsSetupError> {
        let client = Arc::new(HttpClient::system()?);
        Ok(Self { client, authorizers, contracts: Contracts::default() })
    }

    /// The outcome of one operation, as far as `asker` may see it; `None`: the tenant has no such
    /// operation.
    ///
    /// An actor who may not see the result gets the envelope without `response` and without
    /// `effect_reference`, with reason `not_authorized` where the record has none: the permission to
    /// send is the permission to see, so who lost it gets neither. Nobody is asked while there is no
    /// result. Call it outside a transaction: a policy service may take its time.
    ///
    /// # Errors
    /// [`ResultError`] says whether the same look may be repeated.
    pub async fn look(
        &self,
        connection: &mut Connection,
        which: &Which,
        asker: Asker<'_>,
    ) -> Result<Option<Envelope>, ResultError> {
        let loaded = store::look(connection, which).await?;
        let Some(loaded) = loaded.filter(|loaded| loaded.operation.tenant == asker.tenant) else {
            return Ok(None);
        };
        let record = &loaded.operation;
        let older = if record.reason == Some(Reason::SuspectedTwin) {
            store::held_behind_key(connection, record.id).await?
        } else {
            None
        };
        let envelope = Envelope::of(record, Asked::ByLook, loaded.now).behind(older);
        if !envelope.tells_result() {
            return Ok(Some(envelope));
        }
        let contract = self.contracts.get(connection, &record.tool, &record.tool_version).await?;
        let arguments = arguments(&contract, &loaded);
        let mut sees =
            sees_by_grants(connection, &contract.contract, &loaded, &arguments, asker.actor)
                .await?;
        if sees {
            sees = self.asked_outside(&contract.contract, &loaded, &arguments, asker).await?;
        }
        Ok(Some(if sees { envelope } else { envelope.withheld() }))
    }

    /// Asks everyone outside the database.
    async fn asked_outside(
        &self,
        contract: &Contract,
        loaded: &Loaded,
        arguments: &Json,
        asker: Asker<'_>,
    ) -> Result<bool, ResultError> {
        // Made anew: a secret that was not there may be there now.
        let permission =
            Permission::of(contract, &self.client, &contract_secret, &self.authorizers)?;
        let record = &loaded.operation;
        let question = Question {
            action: Action::Read,
            actor: asker.actor,
            tenant: &record.tenant,
            environment: &record.environment,
            tool: &record.tool,
            tool_version: &record.tool_version,
            operation_id: record.id,
            arguments,
            traceparent: record.traceparent.as_deref(),
        };
        match permission.allow(&question).await {
            Allowance::Allowed => Ok(true),
            Allowance::Denied => Ok(false),
            Allowance::Unreachable => Err(ResultError::PolicyUnreachable),
        }
    }
}

/// What of `envelope` a submission's `actor` gets in the caller's transaction, where only the database
/// can be asked: everything where the contract asks nobody, or for grants alone and there is one;
/// status and reference, as at the SQL door, where somebody outside decides; neither response nor
/// reference where a grant is wanting.
///
/// One statement, and only for contracts that ask for grants and where there is a result.
pub(super) async fn for_submission(
    connection: &mut Connection,
    contract: &CheckedContract,
    loaded: &Loaded,
    actor: Option<&str>,
    envelope: Envelope,
) -> Result<Envelope, StoreError> {
    let Some(authorization) = &contract.contract.authorization else { return Ok(envelope) };
    let arguments = arguments(contract, loaded);
    if !sees_by_grants(connection, &contract.contract, loaded, &arguments, actor).await? {
        return Ok(envelope.withheld());
    }
    let outside = authorization.http.is_some() || authorization.code.is_some();
    Ok(if outside { envelope.without_response() } else { envelope })
}

async fn sees_by_grants(
    connection: &mut Connection,
    contract: &Contract,
    loaded: &Loaded,
    arguments: &Json,
    actor: Option<&str>,
) -> Result<bool, StoreError> {
    if !contract.asks_grants() {
        return Ok(true);
    }
    let Some(actor) = actor else { return Ok(false) };
    let record = &loaded.operation;
    let grantee = (record.tenant.clone(), actor.to_owned(), record.tool.clone());
    let grants = store::grants(connection, std::slice::from_ref(&grantee)).await?;
    Ok(granted(grants.get(&grantee).map_or(&[][..], Vec::as_slice), arguments))
}

/// The record's own arguments: those of a second submission may differ where it does not matter to
/// the request, and a grant may be limited there. Null once they are not kept any more.
fn arguments(contract: &CheckedContract, loaded: &Loaded) -> Json {
    let tenant = &loaded.operation.tenant;
    let examined = loaded
        .arguments
        .as_deref()
        .and_then(|text| contract.examine(tenant, text, &JsonLimits::default()).ok());
    examined.map_or(Json::Null, |examined| examined.arguments)
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").field("authorizers", &self.authorizers).finish_non_exhaustive()
    }
}
