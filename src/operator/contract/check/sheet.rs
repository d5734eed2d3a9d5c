//! The worksheet for people and for programs.

use serde_json::{Value, json};

use crate::contract_file::LoadedContract;
use crate::domain::contract::{
    Coverage, Evidence, Finding, Judgement, Origin, Question, Row, Severity, Verdict, Worksheet,
};
use crate::operator::output::{counted, shown};

/// Everything as one object; the ids and codes in it are stable.
pub(super) fn object(loaded: &LoadedContract, sheet: &Worksheet) -> Value {
    let contract = &loaded.contract;
    let judgement = &sheet.judgement;
    let answers = sheet.answers.iter().map(|answer| {
        json!({
            "id": answer.id,
            "question": answer.question,
            "answer": answer.code,
            "explanation": answer.text,
        })
    });
    let reasons = judgement.reasons.iter().map(|why| {
        let (id, sentence) = why.told();
        json!({ "id": id, "reason": sentence })
    });
    let findings =
        sheet.findings().into_iter().map(|(question, finding)| finding_object(question, finding));
    json!({
        "file": loaded.path.display().to_string(),
        "tool": contract.tool.as_str(),
        "tool_version": contract.version.as_str(),
        "material_digest": contract.material_digest(),
        "ok": sheet.passes(),
        "verdict": judgement.verdict.code(),
        "reasons": reasons.collect::<Vec<_>>(),
        "approval": {
            "covers": judgement.approval.code(),
            "needed": judgement.needed.code(),
            "suffices": judgement.approval_suffices(),
        },
        "worksheet": sheet.rows.iter().map(row_object).collect::<Vec<_>>(),
        "queue_contract": answers.collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn row_object(row: &Row) -> Value {
    let (id, question) = row.question.told();
    let evidence = row.evidence.iter().map(|evidence| match &evidence.origin {
        Origin::Contract(place) => json!({ "text": evidence.text, "pointer": place.to_string() }),
        Origin::Oncebox { documented, tested } => {
            json!({ "text": evidence.text, "documented": documented, "tested": tested })
        }
    });
    json!({
        "id": id,
        "question": question,
        "mark": row.mark.as_str(),
        "evidence": evidence.collect::<Vec<_>>(),
    })
}

fn finding_object(question: Question, finding: &Finding) -> Value {
    json!({
        "id": question.told().0,
        "severity": finding.severity.as_str(),
        "pointer": finding.pointer.to_string(),
        "message": finding.message,
    })
}

/// The same for people.
pub(super) fn page(loaded: &LoadedContract, sheet: &Worksheet) -> String {
    let contract = &loaded.contract;
    let mut lines = vec![format!(
        "{} {} ({}): {}, {}, verdict: {}",
        contract.tool,
        contract.version,
        loaded.path.display(),
        counted(sheet.count(Severity::Error), "error"),
        counted(sheet.count(Severity::RedFlag), "red flag"),
        sheet.judgement.verdict.as_str()
    )];
    for (number, row) in sheet.rows.iter().enumerate() {
        let (_, question) = row.question.told();
        lines.push(format!("  {:>2}. {question:<36} {}", number + 1, row.mark.as_str()));
        lines.extend(row.evidence.iter().map(evidence_line));
        lines.extend(row.findings.iter().map(finding_line));
    }
    for answer in &sheet.answers {
        lines.push(format!("  {}", answer.question));
        lines.push(format!("      {}: {}", answer.code.replace('_', " "), answer.text));
    }
    lines.extend(verdict_lines(&sheet.judgement, sheet.count(Severity::Error)));
    lines.iter().map(|line| shown(line)).collect::<Vec<_>>().join("\n")
}

fn evidence_line(evidence: &Evidence) -> String {
    match &evidence.origin {
        Origin::Contract(place) => format!("      {} ({place})", evidence.text),
        Origin::Oncebox { documented, tested } => {
            format!("      {} [oncebox: {documented}; test: {tested}]", evidence.text)
        }
    }
}

fn finding_line(finding: &Finding) -> String {
    let severity = finding.severity.as_str();
    format!("      {severity:<8} {}: {}", finding.pointer, finding.message)
}

fn verdict_lines(judgement: &Judgement, errors: usize) -> Vec<String> {
    let mut lines = vec![format!("  VERDICT: {}", judgement.verdict.as_str())];
    lines.extend(judgement.reasons.iter().map(|why| format!("      {}", why.told().1)));
    let approval = match (judgement.verdict, judgement.approval) {
        (Verdict::Automate, _) => None,
        (Verdict::WithApproval | Verdict::Manual, Coverage::Every) => {
            Some("every request waits for an approval")
        }
        (Verdict::Manual, Coverage::None | Coverage::Some) if judgement.is_unserved() => Some(
            "no worker serves it: give it an approval section without `when`, so that every request waits for a person",
        ),
        (Verdict::Manual, Coverage::None | Coverage::Some) => Some(
            "a worker serves it all the same: give it an approval section without `when`, or close the gaps",
        ),
        (Verdict::WithApproval, Coverage::None) => {
            Some("give it an approval section without `when`, or close the gaps")
        }
        (Verdict::WithApproval, Coverage::Some) => {
            Some("requests with the values that the approval section names wait for an approval")
        }
    };
    lines.extend(approval.map(|told| format!("      {told}")));
    if errors > 0 {
        lines.push(format!("      not served as it stands: {}", counted(errors, "error")));
    }
    lines
}
