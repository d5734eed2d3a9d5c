//! What stands round the records of a batch: their contracts, twins, grants and approvals, each read
//! in one statement for the whole batch and only for those that need it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::claim::{Claiming, is_free};
use crate::contract_file::Examined;
use crate::domain::claim::{Around, Predecessor, Twins};
use crate::domain::contract::Contract;
use crate::domain::fingerprint::twin_digest;
use crate::domain::json::Json;
use crate::domain::lifecycle::State;
use crate::domain::operation::{Operation, Timestamp};
use crate::domain::permission::{
    ApprovalState, Grant, Permission, approval_needed, granted, permission,
};
use crate::serving::Serving;
use crate::store::{self, Connection, Grantee, Loaded, StoreError, TwinAsk};

/// A locked record with what this worker knows of its contract.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) loaded: Loaded,
    /// `None`: this worker does not serve its version.
    pub(super) serving: Option<Arc<Serving>>,
    /// What stands before it in its ordering key; `None`: that is busy now.
    pub(super) predecessor: Option<Predecessor>,
    /// Its arguments under its contract; `None`: they do not fit, or nobody looks at them now.
    pub(super) examined: Option<Examined>,
}

impl Candidate {
    pub(super) fn of(
        loaded: Loaded,
        predecessor: Option<Predecessor>,
        claiming: &Claiming,
    ) -> Self {
        let record = &loaded.operation;
        let serving = claiming.served.get(&record.tool, &record.tool_version).cloned();
        let free = is_free(record, loaded.now);
        let examined = serving.as_ref().filter(|_| free).and_then(|serving| {
            let arguments = loaded.arguments.as_deref()?;
            serving.contract.examine(&record.tenant, arguments, &claiming.limits).ok()
        });
        Self { loaded, serving, predecessor, examined }
    }

    /// The question to its twins: of a first send, whose turn has come, of a tool that holds them. Who
    /// waits for others may not hold up its twins: it could be one of them that the others wait for.
    fn twin_ask(&self) -> Option<TwinAsk> {
        let record = &self.loaded.operation;
        if self.predecessor != Some(Predecessor::Finished) {
            return None;
        }
        let within = self.serving.as_ref()?.rule.twins?;
        let material = &self.examined.as_ref()?.material;
        let digest = match &record.twin {
            Some(twin) if twin.released => return None,
            Some(twin) => twin.digest.clone(),
            None => {
                twin_digest(&record.tenant, &record.environment, &record.tool, &material.digests)
            }
        };
        let ask = TwinAsk { operation: record.id, digest, opened_at: record.opened_at, within };
        (!record.may_have_been_sent()).then_some(ask)
    }

    /// Its digest, if the claim may end it: then those that wait behind it have to be found.
    fn may_free(&self) -> Option<&str> {
        let Loaded { operation: record, now, .. } = &self.loaded;
        let may_end = is_free(record, *now) || record.state == State::AwaitingApproval;
        let twin = record.twin.as_ref().filter(|_| may_end && !record.may_have_been_sent())?;
        Some(&twin.digest)
    }

    pub(super) fn need(&self) -> Need<'_> {
        let contract = self.serving.as_ref().map(|serving| &serving.contract.contract);
        match (contract, &self.examined) {
            (Some(contract), Some(examined)) => {
                Need::of(contract, &self.loaded.operation, &examined.arguments)
            }
            (Some(_) | None, _) => Need::nothing(&self.loaded.operation),
        }
    }
}

/// What has to be read before an operation may be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need<'a> {
    operation: &'a Operation,
    arguments: Option<&'a Json>,
    grant: bool,
    approval: bool,
    permission: bool,
}

impl<'a> Need<'a> {
    /// What `contract` asks of the database for this request.
    pub(super) fn of(contract: &Contract, operation: &'a Operation, arguments: &'a Json) -> Self {
        let approval = contract.approval.as_ref();
        Self {
            operation,
            arguments: Some(arguments),
            grant: contract.asks_grants(),
            approval: approval.is_some_and(|approval| {
                approval_needed(approval, arguments, &contract.fingerprint)
            }),
            permission: contract.authorization.is_some(),
        }
    }

    /// Whether a send needs somebody's permission at all, the database's or another's.
    pub(super) fn asks(&self) -> bool {
        self.permission || self.approval
    }

    fn nothing(operation: &'a Operation) -> Self {
        Self { operation, arguments: None, grant: false, approval: false, permission: false }
    }

    fn grantee(&self) -> Option<Grantee> {
        let Operation { tenant, actor, tool, .. } = self.operation;
        let actor = actor.as_ref().filter(|_| self.grant)?;
        Some((tenant.clone(), actor.clone(), tool.clone()))
    }
}

/// The grants and approvals of a batch.
#[derive(Debug, Default)]
pub(super) struct Permits {
    grants: HashMap<Grantee, Vec<Grant>>,
    approvals: HashMap<Uuid, ApprovalState>,
}

impl Permits {
    /// Reads what `needs` need.
    pub(super) async fn read(
        connection: &mut Connection,
        needs: &[Need<'_>],
    ) -> Result<Self, StoreError> {
        let mut grantees: Vec<Grantee> = needs.iter().filter_map(Need::grantee).collect();
        grantees.sort_unstable();
        grantees.dedup();
        let approved: Vec<Uuid> =
            needs.iter().filter(|need| need.approval).map(|need| need.operation.id).collect();
        Ok(Self {
            grants: store::grants(connection, &grantees).await?,
            approvals: store::approvals(connection, &approved).await?,
        })
    }

    /// Whether the operation of `need` may be sent at `now`.
    pub(super) fn permission(
        &self,
        need: &Need<'_>,
        now: Timestamp,
        margin: Duration,
    ) -> Permission {
        let grants = || {
            let known = need.grantee().and_then(|grantee| self.grants.get(&grantee));
            let arguments = need.arguments.unwrap_or(&Json::Null);
            granted(known.map_or(&[][..], Vec::as_slice), arguments)
        };
        let approval = || self.approvals.get(&need.operation.id).copied();
        permission(need.grant.then(grants), need.approval.then(approval), now, margin)
    }
}

/// What was read for a batch of claims.
#[derive(Debug)]
pub(super) struct Known {
    twins: HashMap<Uuid, Twins>,
    permits: Permits,
}

impl Known {
    pub(super) async fn read(
        connection: &mut Connection,
        candidates: &[Candidate],
    ) -> Result<Self, StoreError> {
        let asks: Vec<TwinAsk> = candidates.iter().filter_map(Candidate::twin_ask).collect();
        let needs: Vec<Need<'_>> = candidates.iter().map(Candidate::need).collect();
        let others: Vec<&str> = candidates.iter().filter_map(Candidate::may_free).collect();
        let twins = store::twins(connection, &asks, &others).await?;
        Ok(Self { twins, permits: Permits::read(connection, &needs).await? })
    }

    pub(super) fn around(&self, candidate: &Candidate, predecessor: Predecessor) -> Around {
        let Loaded { operation, now, .. } = &candidate.loaded;
        let serving = candidate.serving.as_ref();
        let margin = serving.map(|serving| serving.rule.margin).unwrap_or_default();
        let approval = serving.and_then(|serving| serving.contract.contract.approval.as_ref());
        Around {
            predecessor,
            twins: self.twins.get(&operation.id).copied().unwrap_or(Twins::Free),
            permission: self.permits.permission(&candidate.need(), *now, margin),
            approval_wait: approval.map(|approval| approval.wait).unwrap_or_default(),
        }
    }
}
