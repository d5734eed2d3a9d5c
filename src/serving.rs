//! A contract version with all that carrying it out takes: the contract, its numbers, its tool.

use std::sync::Arc;

use crate::contract_file::CheckedContract;
use crate::domain::rule::AttemptRule;
use crate::tool::ServedTool;

/// One contract version that this process carries out.
#[derive(Debug)]
pub struct Serving {
    /// The contract, ready to examine requests.
    pub contract: CheckedContract,
    /// What it says about claiming, sending again and giving up.
    pub rule: AttemptRule,
    /// What makes the effect, and asks about it.
    pub tool: Arc<ServedTool>,
}

impl Serving {
    /// The (tool, version).
    #[must_use]
    pub fn version(&self) -> (String, String) {
        let contract = &self.contract.contract;
        (contract.tool.to_string(), contract.version.to_string())
    }
}
