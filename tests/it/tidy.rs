//! The tree keeps its own rules: what a layer may not know, what a page must name, what no file holds.
//!
//! Each rule lists every breach at once. Test code (`tests.rs`, `*_tests.rs`, what follows
//! `#[cfg(test)]`) and comments are not held to the rules about layers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use oncebox::config::SETTINGS;
use oncebox::domain::reason::Reason;
use regex::Regex;

/// Longest Rust file that needs no reason.
const MOST_LINES: usize = 400;

/// Longer files, each with the reason why it is one noun all the same.
const LONG_FILES: &[(&str, &str)] = &[
    ("src/config/read.rs", "one reader: each setting's rule stands beside the others it is like"),
    (
        "src/consumer/intake.rs",
        "one loop: deliveries that wait, claims, starts and the drain share its queues",
    ),
    (
        "src/ingress/submit.rs",
        "one door: insert, read, compare and reopen are passes of one answer",
    ),
];

/// Lines outside `src/store` that name sqlx: types of the caller's own transaction, no statement.
const SQLX_ELSEWHERE: &[(&str, &str)] = &[
    ("src/ingress/submit.rs", "use sqlx::PgConnection;"),
    ("src/tool/transactional.rs", "pub type SettlingConnection = sqlx::PgConnection;"),
];

/// What the pure half may be built from.
const DOMAIN_CRATES: &[&str] = &[
    "std",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "uuid",
    "backoff",
    "unicode_normalization",
    "super",
    "self",
    "crate",
];

/// The ways an operation travels. None knows another; they meet in the record.
const FLOWS: &[&str] = &["ingress", "relay", "consumer", "maintain", "operator"];

/// The command line submits like any other caller, through the one door.
const FLOW_EXCEPTIONS: &[(&str, &str)] = &[("operator", "ingress")];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `dir`, by its path from the root; build output and git's own files left out.
fn files(dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root().join(dir)];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "__pycache__" | "node_modules") {
                    left.push(path);
                }
            } else if name != ".git" {
                found.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn text(path: &str) -> String {
    let bytes = fs::read(root().join(path)).unwrap();
    String::from_utf8(bytes).unwrap_or_default()
}

/// The code of a source file with its line numbers: no comments, no tests.
fn code(path: &str) -> Vec<(usize, String)> {
    if path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/tests/") {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for (number, line) in text(path).lines().enumerate() {
        if line.trim() == "#[cfg(test)]" && !lines.is_empty() {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        if !code.trim().is_empty() {
            lines.push((number + 1, code.to_owned()));
        }
    }
    lines
}

fn sources(under: &str) -> Vec<String> {
    files(under).into_iter().filter(|path| path.ends_with(".rs")).collect()
}

/// Lines of code below `under` that `breaks` objects to.
fn breaches(under: &str, breaks: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(under) {
        for (number, line) in code(&path) {
            if breaks(&path, &line) {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    found
}

fn none(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n{}", breaches.join("\n"));
}

/// The module of a source file: `src/relay/mark.rs` and `src/relay.rs` are of `relay`.
fn module(path: &str) -> &str {
    let inner = path.strip_prefix("src/").unwrap_or(path);
    inner.split(['/', '.']).next().unwrap_or(inner)
}

#[test]
fn the_domain_knows_no_clock_no_database_no_broker_and_nothing_asynchronous() {
    let forbidden = Regex::new(
        r"\b(sqlx|lapin|tokio|futures|tracing|Instant|SystemTime|OffsetDateTime|async|await|println|eprintln)\b|std::(fs|net|env|process|thread|io)\b",
    )
    .unwrap();
    none(
        "the domain decides from data and `now`",
        &breaches("src/domain", |_, line| forbidden.is_match(line)),
    );
    let import = Regex::new(r"^\s*(?:pub )?use ([a-z_0-9]+)").unwrap();
    let elsewhere = Regex::new(r"crate::([a-z_]+)").unwrap();
    let foreign = |_: &str, line: &str| {
        let crates = import.captures(line).is_some_and(|c| !DOMAIN_CRATES.contains(&&c[1]));
        crates || elsewhere.captures_iter(line).any(|c| &c[1] != "domain")
    };
    none("the domain is built from a few crates and from itself", &breaches("src/domain", foreign));
}

#[test]
fn an_unmaintained_crate_stays_behind_one_module() {
    let rule = |path: &str, line: &str| line.contains("backoff::") && path != "src/domain/retry.rs";
    none("the crate backoff is used in domain::retry only (ADR 0002)", &breaches("src", rule));
}

#[test]
fn sql_is_written_in_the_store_only() {
    let sqlx = |path: &str, line: &str| {
        line.contains("sqlx")
            && module(path) != "store"
            && !SQLX_ELSEWHERE.contains(&(path, line.trim()))
    };
    none("sqlx is the store's; others hand its connection on", &breaches("src", sqlx));
    let statement = Regex::new(r#"(?i)"\s*(select|insert into|update|delete from|with [a-z]+ as|begin|commit|rollback|savepoint)\b[^"]*\b(oncebox\.|from |set |into )"#).unwrap();
    none(
        "statements stand in the store",
        &breaches("src", |path, line| module(path) != "store" && statement.is_match(line)),
    );
}

#[test]
fn amqp_is_spoken_in_the_broker_layer_only() {
    none(
        "lapin is the broker layer's",
        &breaches("src", |path, line| line.contains("lapin") && module(path) != "broker"),
    );
}

#[test]
fn the_layers_below_do_not_know_each_other_nor_those_above() {
    let allowed = |of: &str| -> &[&str] {
        match of {
            "store" => &["store", "domain"],
            "broker" => &["broker"],
            "tool" => &["tool", "domain"],
            "contract_file" => &["contract_file", "domain"],
            _ => &[],
        }
    };
    let path_of = Regex::new(r"crate::([a-z_]+)").unwrap();
    for layer in ["store", "broker", "tool", "contract_file"] {
        let rule = |path: &str, line: &str| {
            module(path) == layer
                && path_of.captures_iter(line).any(|c| !allowed(layer).contains(&&c[1]))
        };
        none(&format!("{layer} imports {:?} at most", allowed(layer)), &breaches("src", rule));
    }
}

#[test]
fn the_ways_of_an_operation_meet_in_its_record_only() {
    let path_of = Regex::new(r"crate::(?:\{[^}]*)?\b([a-z_]+)").unwrap();
    let rule = |path: &str, line: &str| {
        let of = module(path);
        FLOWS.contains(&of)
            && path_of.captures_iter(line).any(|c| {
                let other = &c[1];
                FLOWS.contains(&other) && other != of && !FLOW_EXCEPTIONS.contains(&(of, other))
            })
    };
    none("flow modules do not import each other", &breaches("src", rule));
}

#[test]
fn the_environment_is_read_by_the_configuration_only() {
    let rule = |path: &str, line: &str| line.contains("env::var") && module(path) != "config";
    none("settings are read in config", &breaches("src", rule));
}

#[test]
fn a_long_file_has_a_reason() {
    let mut long = Vec::new();
    for path in ["src", "tests", "examples"].into_iter().flat_map(sources) {
        let lines = text(&path).lines().count();
        let excused = LONG_FILES.iter().any(|(file, _)| *file == path);
        if lines > MOST_LINES && !excused {
            long.push(format!("{path}: {lines} lines"));
        }
        if lines <= MOST_LINES && excused {
            long.push(format!("{path}: {lines} lines, and still in the list of long files"));
        }
    }
    none("a file is one noun; split it by meaning, or say why not", &long);
}

#[test]
fn every_reason_has_a_page_and_every_page_a_reason() {
    let pages: BTreeSet<String> = files("docs/errors")
        .iter()
        .filter_map(|path| {
            path.strip_prefix("docs/errors/")?.strip_suffix(".md").map(str::to_owned)
        })
        .filter(|name| name != "README")
        .collect();
    let codes: BTreeSet<String> =
        Reason::ALL.iter().map(|reason| reason.code().to_owned()).collect();
    assert_eq!(codes, pages, "reasons on the left, pages in docs/errors on the right");
    let index = text("docs/errors/README.md");
    let unlisted: Vec<String> =
        pages.into_iter().filter(|page| !index.contains(&format!("({page}.md)"))).collect();
    none("docs/errors/README.md links every page", &unlisted);
}

#[test]
fn every_decision_is_in_the_index() {
    let index = text("docs/adr/README.md");
    let mut wrong = Vec::new();
    let mut numbers = BTreeSet::new();
    let named = Regex::new(r"^(\d{4})-[a-z0-9-]+\.md$").unwrap();
    for path in files("docs/adr") {
        let name = path.strip_prefix("docs/adr/").unwrap();
        if name == "README.md" {
            continue;
        }
        match named.captures(name) {
            None => wrong.push(format!("{path}: not named NNNN-words.md")),
            Some(parts) if !numbers.insert(parts[1].to_owned()) => {
                wrong.push(format!("{path}: its number is taken"))
            }
            Some(parts) => {
                let number = parts[1].parse::<u32>().unwrap();
                if !text(&path).starts_with(&format!("# {number}. ")) {
                    wrong.push(format!("{path}: does not begin with its number and title"));
                }
            }
        }
        if !index.contains(&format!("({name})")) {
            wrong.push(format!("{path}: not in docs/adr/README.md"));
        }
    }
    none("docs/adr", &wrong);
}

#[test]
fn no_file_holds_unfinished_work_or_another_machines_paths() {
    // Put together here, so that this file does not hold them.
    let words = ["TO", "FIX", "XX"].map(|start| {
        format!(
            r"\b{start}{}\b",
            if start == "TO" {
                "DO"
            } else if start == "FIX" {
                "ME"
            } else {
                "X"
            }
        )
    });
    let unfinished =
        Regex::new(&format!("{}|{}!|unimplemented!|#\\[ignore\\]", words.join("|"), "todo"))
            .unwrap();
    let paths =
        Regex::new(&format!("(^|[^A-Za-z0-9_.])(/{}/|/tmp/{}/|/tmp/{}/)", "work", "wt", "tgt"))
            .unwrap();
    let mut found = Vec::new();
    for path in files(".") {
        if path.ends_with("Cargo.lock") || path == "tests/it/tidy.rs" {
            continue;
        }
        for (number, line) in text(&path).lines().enumerate() {
            if unfinished.is_match(line) || paths.is_match(line) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none("unfinished work has an issue, not a mark; paths are relative", &found);
}

#[test]
fn the_pages_name_only_what_is_there() {
    let ticked = Regex::new(r"`([^`\n]+)`").unwrap();
    let linked = Regex::new(r"\]\(([^)#\s]+)[^)]*\)").unwrap();
    let ours = Regex::new(
        r"^(src|tests|docs|examples|contracts|migrations|deploy|\.ci)/[A-Za-z0-9_./-]*$",
    )
    .unwrap();
    let mut missing = Vec::new();
    for page in pages() {
        let words = text(&page);
        let folder = Path::new(&page).parent().unwrap().to_owned();
        for name in
            ticked.captures_iter(&words).map(|c| c[1].to_owned()).filter(|name| ours.is_match(name))
        {
            if !root().join(&name).exists() {
                missing.push(format!("{page}: `{name}`"));
            }
        }
        for link in linked.captures_iter(&words).map(|c| c[1].to_owned()) {
            if !link.contains("://")
                && !link.starts_with("mailto:")
                && !root().join(&folder).join(&link).exists()
            {
                missing.push(format!("{page}: ({link})"));
            }
        }
    }
    none("a page names a file that is not there", &missing);
}

fn pages() -> Vec<String> {
    let mut pages: Vec<String> =
        files(".").into_iter().filter(|path| path.ends_with(".md")).collect();
    pages.retain(|page| page != "LICENSE.md");
    pages
}

#[test]
fn the_pages_name_only_settings_that_exist() {
    let variable = Regex::new(r"ONCEBOX_[A-Z_]*[A-Z]").unwrap();
    let mut unknown = Vec::new();
    let more = ["docker-compose.yml", "Makefile"].map(str::to_owned);
    for page in pages().into_iter().chain(more) {
        for name in variable.find_iter(&text(&page)) {
            if !SETTINGS.iter().any(|setting| setting.environment == name.as_str()) {
                unknown.push(format!("{page}: {}", name.as_str()));
            }
        }
    }
    none("a page names a setting that is not there", &unknown);
}

#[test]
fn the_pages_name_only_tests_that_exist() {
    let test = Regex::new(r"(?m)^\s*(?:async )?fn ([a-z0-9_]+)\(").unwrap();
    let mut known = BTreeSet::new();
    for path in ["src", "tests"].into_iter().flat_map(sources) {
        known.extend(test.captures_iter(&text(&path)).map(|c| c[1].to_owned()));
    }
    // A name of four words and more is a sentence, and only tests are named so.
    let sentence = Regex::new(r"`(?:[a-z0-9_]+::)*([a-z0-9]+(?:_[a-z0-9]+){4,})`").unwrap();
    let mut missing = Vec::new();
    for page in ["tests/README.md", "ARCHITECTURE.md"] {
        for name in sentence.captures_iter(&text(page)).map(|c| c[1].to_owned()) {
            if !known.contains(&name) && Reason::from_code(&name).is_none() {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    none("a page names a test that is not there", &missing);
}

#[test]
fn the_map_stays_a_map() {
    let lines = text("ARCHITECTURE.md").lines().count();
    assert!(lines <= 200, "ARCHITECTURE.md has {lines} lines; a map has 200 at most");
    let unmapped: Vec<String> = fs::read_dir(root().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !text("ARCHITECTURE.md").contains(&format!("src/{name}")))
        .filter(|name| {
            Path::new(name).extension().is_some()
                || !root().join("src").join(format!("{name}.rs")).exists()
        })
        .collect();
    none("ARCHITECTURE.md's code map has every part of src", &unmapped);
}
