//! `oncebox contract activate`: all of the files, or none.

use std::path::PathBuf;

use serde_json::json;

use super::{read, some};
use crate::contract_file::LoadedContract;
use crate::operator::Context;
use crate::operator::failure::{Failure, say};
use crate::store::{self, Connection, StoreError};

/// One file's verdict.
enum Activated {
    Current { served: bool },
    Differs,
}

pub(super) async fn run(context: &Context, files: &[PathBuf]) -> Result<(), Failure> {
    let found = read(context, files);
    some(&found)?;
    let (contracts, bad) = found;
    if bad > 0 {
        return Err(Failure::failed("nothing was activated; correct the files above first"));
    }
    if let Some(refused) = contracts.iter().find_map(refusal) {
        return Err(Failure::failed(format!("nothing was activated: {refused}")));
    }
    let mut link = context.link();
    let mut done: Vec<Activated> = Vec::new();
    let committed = link
        .transaction(async |connection| {
            let served = store::served_anywhere(connection).await?;
            for loaded in &contracts {
                let contract = &loaded.contract;
                let live = (contract.tool.to_string(), contract.version.to_string());
                done.push(activate(connection, loaded, served.contains(&live)).await?);
                if matches!(done.last(), Some(Activated::Differs)) {
                    // Rolls back what was activated before it.
                    return Err(StoreError::Fenced);
                }
            }
            Ok(())
        })
        .await;
    let differing = contracts.iter().zip(&done).find(|(_, one)| matches!(one, Activated::Differs));
    if let Some((loaded, _)) = differing {
        let (tool, version) = (&loaded.contract.tool, &loaded.contract.version);
        return Err(Failure::failed(format!(
            "nothing was activated: {tool} {version} is registered with another material part (digest differs) than {}; give the file a new version",
            loaded.path.display()
        )));
    }
    committed?;
    for (loaded, activated) in contracts.iter().zip(&done) {
        let (tool, version) = (&loaded.contract.tool, &loaded.contract.version);
        let served = matches!(activated, Activated::Current { served: true });
        let object = json!({ "tool": tool.as_str(), "tool_version": version.as_str(), "current": true, "served": served });
        context.output.either(&object, &format!("{tool} {version} is current"))?;
        if let Some(why) = loaded.contract.kept_manual() {
            say(&format!("no worker will serve {tool} {version}: {why}"));
        } else if !served {
            say(&format!(
                "no live worker serves {tool} {version} yet; start one with this contract"
            ));
        }
    }
    Ok(())
}

/// Why a contract must not become current.
fn refusal(loaded: &LoadedContract) -> Option<String> {
    let section = loaded.contract.unsupported().into_iter().next()?;
    let file = loaded.path.display();
    Some(format!(
        "{file}: {}: {}, so no worker would serve it; leave the section out",
        section.pointer, section.sentence
    ))
}

async fn activate(
    connection: &mut Connection,
    loaded: &LoadedContract,
    served: bool,
) -> Result<Activated, StoreError> {
    let contract = &loaded.contract;
    let (tool, version) = (contract.tool.as_str(), contract.version.as_str());
    let digest = contract.material_digest();
    let stands = store::register(
        connection,
        tool,
        version,
        &loaded.text,
        &digest,
        store::Immaterial::of(contract),
    )
    .await?;
    if stands.material_digest != digest {
        return Ok(Activated::Differs);
    }
    store::activate(connection, tool, version).await?;
    Ok(Activated::Current { served })
}
