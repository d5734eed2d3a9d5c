//! A submission on its way to a row.

use serde_json::json;
use uuid::Uuid;

use super::Submission;
use super::contracts::Fitting;
use crate::domain::fingerprint::twin_digest;
use crate::domain::key::OperationKey;
use crate::store::NewOperation;

/// A submission that may be written, and its place in the caller's list.
pub(super) struct Candidate<'a> {
    pub(super) place: usize,
    pub(super) submission: &'a Submission,
    pub(super) key: OperationKey,
}

impl Candidate<'_> {
    /// The row that it would be under the contract that it fits.
    pub(super) fn row(&self, Fitting { contract, examined }: &Fitting) -> NewOperation {
        let (submission, contract) = (self.submission, &contract.contract);
        let digest = || {
            let Submission { tenant, environment, tool, .. } = submission;
            twin_digest(tenant, environment, tool, &examined.material.digests)
        };
        NewOperation {
            id: Uuid::now_v7(),
            tenant: submission.tenant.clone(),
            environment: submission.environment.clone(),
            key: self.key.as_str().to_owned(),
            tool: submission.tool.clone(),
            tool_version: contract.version.to_string(),
            fingerprint: examined.material.fingerprint.as_str().to_owned(),
            digests: json!(examined.material.digests).to_string(),
            arguments: submission.arguments.clone(),
            metadata: submission.metadata.clone(),
            actor: submission.actor.clone(),
            ordering_key: submission.ordering_key.clone(),
            not_before: submission.not_before,
            distinct_from: submission.distinct_from.clone(),
            traceparent: submission.traceparent.clone(),
            twin_digest: contract.twins.hold.then(digest),
        }
    }
}
