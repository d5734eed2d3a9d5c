//! Contracts: what this deployment has in files, what the registry has, who serves it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Findings, Verdict};
use crate::config::contract_secret;
use crate::contract_file::{self, LoadedContract, load_all};
use crate::domain::contract::HttpRequest;
use crate::domain::contract::template::SecretRef;
use crate::operator::Context;
use crate::operator::failure::chain;
use crate::operator::output::counted;
use crate::store::{self, Registered};

/// Checks the contracts; answers the names of all tools there are.
pub(super) async fn check(
    context: &Context,
    database_usable: bool,
    findings: &mut Findings,
) -> BTreeSet<String> {
    let (local, errors) = load_all(&context.config.contracts, context.config.worker.margin);
    for line in errors.iter().flat_map(|error| error.lines()) {
        findings.note("contract file", Verdict::Fail, line, "correct it; the tool is not served");
    }
    if local.is_empty() && errors.is_empty() {
        let fix = "a worker here would serve nothing; name files with ONCEBOX_CONTRACTS";
        findings.note("contract files", Verdict::Warn, "none".to_owned(), fix);
    }
    let secret = context.config.downstream_secret.is_some();
    let seen = if secret { "set" } else { "not set" };
    let verdict = Verdict::first(&[(Verdict::Warn, !secret)]);
    let fix = "role worker does not start without it: set ONCEBOX_DOWNSTREAM_SECRET to id:secret";
    findings.note("downstream secret", verdict, seen.to_owned(), fix);
    let mut registered = Vec::new();
    if database_usable {
        let mut link = context.link();
        let read = link
            .transaction(async |connection| {
                let live = store::live_workers(connection).await?;
                let granted = store::granted_tools(connection).await?;
                Ok((store::registry(connection).await?, live, granted))
            })
            .await;
        match read {
            Ok((registry, live, granted)) => {
                current(&registry, &live, findings);
                grants(&registry, &granted, context.config.worker.margin, findings);
                registered = registry;
            }
            Err(error) => {
                findings.note("registry", Verdict::Fail, chain(&error), "run doctor again");
            }
        }
    }
    for loaded in &local {
        compare(loaded, &registered, database_usable, findings);
    }
    let local = local.into_iter().map(|loaded| loaded.contract.tool.to_string());
    registered.into_iter().map(|registered| registered.tool).chain(local).collect()
}

/// Whether somebody serves what submissions get.
fn current(registry: &[Registered], live: &[(String, String, i64)], findings: &mut Findings) {
    for Registered { tool, version, .. } in registry.iter().filter(|registered| registered.current)
    {
        let workers = live.iter().find(|(t, v, _)| t == tool && v == version);
        let workers = workers.map_or(0, |(_, _, workers)| *workers);
        let verdict = Verdict::first(&[(Verdict::Warn, workers == 0)]);
        let seen = format!("{tool} {version} (current): {}", counted(workers, "live worker"));
        findings.note("workers", verdict, seen, "start a worker with this contract version");
    }
}

/// Tools that nobody may use: their contract asks for grants, and there is none.
fn grants(registry: &[Registered], granted: &[String], margin: Duration, findings: &mut Findings) {
    for Registered { tool, version, text, .. } in registry.iter().filter(|r| r.current) {
        let asks = contract_file::read(text, margin).is_ok_and(|contract| contract.asks_grants());
        if !asks {
            continue;
        }
        let verdict = Verdict::first(&[(Verdict::Warn, !granted.contains(tool))]);
        let some = if verdict == Verdict::Ok { "there are grants" } else { "nobody has a grant" };
        let fix =
            "every operation of it ends rejected, not_authorized: `oncebox grants add` gives one";
        findings.note("grants", verdict, format!("{tool} {version}: {some}"), fix);
    }
}

fn compare(
    loaded: &LoadedContract,
    registry: &[Registered],
    database_usable: bool,
    findings: &mut Findings,
) {
    let contract = &loaded.contract;
    let (tool, version) = (contract.tool.as_str(), contract.version.as_str());
    let name = format!("{tool} {version} ({})", loaded.path.display());
    let check = "contract";
    if let Some(section) = contract.unsupported().into_iter().next() {
        let seen = format!("{name}: {}: {}", section.pointer, section.sentence);
        return findings.note(
            check,
            Verdict::Fail,
            seen,
            "leave the section out; the tool is not served",
        );
    }
    if let Some(why) = contract.kept_manual() {
        let fix = "let a person approve every request; the tool is not served";
        return findings.note(check, Verdict::Fail, format!("{name}: {why}"), fix);
    }
    let lost: Vec<String> = contract
        .http()
        .map(HttpRequest::secrets)
        .unwrap_or_default()
        .into_iter()
        .filter(|secret| contract_secret(secret).is_none())
        .map(named)
        .collect();
    if !lost.is_empty() {
        let seen = format!("{name}: not found here: {}", lost.join(", "));
        findings.note(
            check,
            Verdict::Warn,
            seen,
            "set it where workers run; without it nothing is sent",
        );
    }
    let stands = registry.iter().find(|r| r.tool == tool && r.version == version);
    match stands {
        Some(stands) if stands.material_digest != contract.material_digest() => {
            let seen = format!("{name}: its material part differs from the registered version's");
            findings.note(
                check,
                Verdict::Fail,
                seen,
                "give the file a new version; the tool is not served",
            );
        }
        Some(_) => findings.note(check, Verdict::Ok, format!("{name}: as registered"), ""),
        None if database_usable => {
            let seen = format!("{name}: not registered yet");
            findings.note(
                check,
                Verdict::Warn,
                seen,
                "a worker registers it at its start, `oncebox contract activate` makes it current",
            );
        }
        None => findings.note(check, Verdict::Ok, format!("{name}: readable"), ""),
    }
}

/// The reference as the contract writes it. A name is no secret.
fn named(secret: &SecretRef) -> String {
    match secret {
        SecretRef::Env(name) => format!("${{env:{name}}}"),
        SecretRef::File(path) => format!("${{file:{path}}}"),
    }
}
