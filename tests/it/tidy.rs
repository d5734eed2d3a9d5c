//! The tree keeps its own rules: what a layer may not know, what a page must name, what no file holds.
//!
//! Each rule lists every breach at once. Test code (what `#[cfg(test)]`
//! stands before) and comments are not held to the rules about layers.

mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Longest Rust file that needs no reason.
const MOST_LINES: usize = 400;

/// Longer files, each with the reason why it is one noun all the same.
const LONG_FILES: &[(&str, &str)] = &[
    (
        "src/consumer/intake.rs",
        "one loop: deliveries that wait, claims, starts and the drain share its queues",
    ),
    ("src/domain/lifecycle.rs", "one table: a line for each state and event"),
    ("src/domain/recovery/tests.rs", "every case of one decision"),
    ("src/domain/settle/tests.rs", "every case of one decision"),
    ("src/domain/settle/tests/walk.rs", "one life: its moves, its world and what must hold"),
    ("src/domain/trace_review/tests.rs", "every flag, with a trace that raises it"),
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
const FLOWS: &[&str] = &["ingress", "relay", "consumer", "reconcile", "maintain", "operator"];

/// The command line submits like any other caller, through the one door.
const FLOW_EXCEPTIONS: &[(&str, &str)] = &[("operator", "ingress")];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `dir`, by its path from the root; build output and hidden folders but `.ci` left out.
fn files(dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root().join(dir)];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | "__pycache__")
                    && (name == ".ci" || !name.starts_with('.'))
                {
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
    let whole = text(path);
    let mut lines = Vec::new();
    let mut rest = whole.lines().enumerate().peekable();
    while let Some((number, line)) = rest.next() {
        if line.trim() == "#[cfg(test)]" {
            // A module of its own is one line; one written out here is the rest of the file.
            match rest.peek() {
                Some((_, next)) if next.trim_end().ends_with(';') => drop(rest.next()),
                _ => break,
            }
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        if !code.trim().is_empty() {
            lines.push((number + 1, code.to_owned()));
        }
    }
    lines
}

/// Files that are built for tests only: declared after `#[cfg(test)]`, and what lies below them.
fn test_files() -> BTreeSet<String> {
    let declared =
        Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z]+\))? )?mod ([a-z_0-9]+);").unwrap();
    let mut found = BTreeSet::new();
    for path in sources("src") {
        let folder = match path.strip_suffix("/mod.rs").or(path.strip_suffix("/lib.rs")) {
            Some(folder) => folder.to_owned(),
            None => path.trim_end_matches(".rs").to_owned(),
        };
        for name in declared.captures_iter(&text(&path)) {
            let module = format!("{folder}/{}", &name[1]);
            let below = |path: &String| {
                *path == format!("{module}.rs") || path.starts_with(&format!("{module}/"))
            };
            found.extend(sources("src").into_iter().filter(below));
        }
    }
    found
}

fn sources(under: &str) -> Vec<String> {
    files(under).into_iter().filter(|path| path.ends_with(".rs")).collect()
}

/// Lines of code below `under` that `breaks` objects to.
fn breaches(under: &str, breaks: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let tests = test_files();
    let mut found = Vec::new();
    for path in sources(under).into_iter().filter(|path| !tests.contains(path)) {
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

fn stem(path: &str) -> String {
    Path::new(path).file_stem().unwrap().to_string_lossy().into_owned()
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
    let own: BTreeSet<String> = sources("src/domain").iter().map(|path| stem(path)).collect();
    let import = Regex::new(r"^\s*(?:pub )?use ([a-z_0-9]+)").unwrap();
    let elsewhere = Regex::new(r"crate::([a-z_]+)").unwrap();
    let known = |name: &str| DOMAIN_CRATES.contains(&name) || own.contains(name);
    let foreign = |_: &str, line: &str| {
        import.captures(line).is_some_and(|c| !known(&c[1]))
            || elsewhere.captures_iter(line).any(|c| &c[1] != "domain")
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
            "broker" => &["broker", "domain"],
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
