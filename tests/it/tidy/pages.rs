//! Pages name what is there: files, settings, tests, reasons, decisions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use oncebox::config::SETTINGS;
use oncebox::domain::reason::Reason;
use regex::Regex;

use super::{files, none, root, sources, text};

/// That each code has a page and each page a code is the domain's own test.
#[test]
fn every_reasons_page_is_in_the_index() {
    let index = text("docs/errors/README.md");
    let unlisted: Vec<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.code())
        .filter(|code| !index.contains(&format!("({code}.md)")))
        .collect();
    assert!(unlisted.is_empty(), "docs/errors/README.md links every page: {unlisted:?}");
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
        if path.ends_with("Cargo.lock") || path == "tests/it/tidy/pages.rs" {
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
