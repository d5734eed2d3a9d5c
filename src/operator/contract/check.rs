//! `oncebox contract check`

use std::path::PathBuf;

use serde_json::json;

use super::{read, some};
use crate::domain::contract::Severity;
use crate::operator::Context;
use crate::operator::failure::Failure;
use crate::operator::output::{counted, shown};

pub(super) fn run(context: &Context, files: &[PathBuf]) -> Result<(), Failure> {
    let found = read(context, files);
    some(&found)?;
    let (contracts, mut bad) = found;
    for loaded in &contracts {
        let contract = &loaded.contract;
        let findings = contract.review(context.config.worker.margin);
        let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
        let (errors, flags) = (count(Severity::Error), count(Severity::RedFlag));
        bad += usize::from(errors > 0);
        if context.output.json() {
            let listed = findings.iter().map(|finding| {
                json!({
                    "severity": finding.severity.as_str(),
                    "pointer": finding.pointer.to_string(),
                    "message": finding.message,
                })
            });
            context.output.object(&json!({
                "file": loaded.path.display().to_string(),
                "tool": contract.tool.as_str(),
                "tool_version": contract.version.as_str(),
                "material_digest": contract.material_digest(),
                "ok": errors == 0,
                "findings": listed.collect::<Vec<_>>(),
            }))?;
            continue;
        }
        let (tool, version, file) = (&contract.tool, &contract.version, loaded.path.display());
        let mut lines = vec![format!(
            "{tool} {version} ({file}): {}, {}",
            counted(errors, "error"),
            counted(flags, "red flag")
        )];
        lines.extend(findings.iter().map(|finding| {
            let root = finding.pointer.is_root();
            let place = if root { String::new() } else { format!("{}: ", finding.pointer) };
            shown(&format!("  {:<8} {place}{}", finding.severity.as_str(), finding.message))
        }));
        context.output.line(&lines.join("\n"))?;
    }
    if bad > 0 { Err(Failure::Told) } else { Ok(()) }
}
