//! A contract made ready to examine requests: at the doors, and again at every claim.

use std::time::Duration;

use super::{ArgumentProblem, ArgumentsCheck, ContractTextError, read};
use crate::domain::contract::Contract;
use crate::domain::fingerprint::{Material, material};
use crate::domain::json::{Json, JsonLimits, parse};
use crate::domain::pointer::Pointer;

/// A contract with its compiled argument schema.
#[derive(Debug)]
pub struct CheckedContract {
    /// The contract.
    pub contract: Contract,
    check: ArgumentsCheck,
}

/// A request that fits its contract.
#[derive(Debug)]
pub struct Examined {
    /// The arguments, numbers as they were sent.
    pub arguments: Json,
    /// The fingerprint and the digests beside it.
    pub material: Material,
}

impl CheckedContract {
    /// Reads a contract's text as the registry keeps it.
    ///
    /// # Errors
    /// The text is no contract that this release could serve.
    pub fn read(text: &str, margin: Duration) -> Result<Self, ContractTextError> {
        let contract = read(text, margin)?;
        let check = ArgumentsCheck::compile(&contract.arguments)
            .map_err(|_| ContractTextError::Problems(Vec::new()))?;
        Ok(Self { contract, check })
    }

    /// Holds arguments against the contract and digests what is material. The same answer for the
    /// same text, whoever asks.
    ///
    /// # Errors
    /// Where the arguments do not fit; never their values.
    pub fn examine(
        &self,
        tenant: &str,
        arguments: &str,
        limits: &JsonLimits,
    ) -> Result<Examined, Vec<ArgumentProblem>> {
        let json = parse(arguments.as_bytes(), limits).map_err(|error| {
            let message = format!("{} (byte {})", error.problem, error.offset);
            vec![ArgumentProblem { pointer: error.pointer, message }]
        })?;
        self.check.check(&json)?;
        if let Some(http) = self.contract.http() {
            http.check_buildable(&json).map_err(|error| {
                vec![ArgumentProblem { pointer: Pointer::root(), message: error.to_string() }]
            })?;
        }
        let Contract { tool, version, fingerprint, .. } = &self.contract;
        let material = material(tool.as_str(), version.as_str(), tenant, &json, fingerprint);
        Ok(Examined { arguments: json, material })
    }
}
