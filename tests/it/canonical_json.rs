//! Equal requests have one text: order and escapes are RFC 8785's, as another program has them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use oncebox::domain::canonical::{NumberRule, canonical};
use oncebox::domain::json::{JsonLimits, parse};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/jcs.mjs");
const DOCUMENTS: usize = 600;

#[test]
fn node_agrees_on_order_and_escapes() {
    // Deterministic, so that a failure repeats.
    let mut runner = TestRunner::deterministic();
    let texts: Vec<String> =
        (0..DOCUMENTS).map(|_| document().new_tree(&mut runner).unwrap().current()).collect();
    assert!(
        texts.iter().map(String::len).sum::<usize>() > 100 * DOCUMENTS,
        "the documents are too small to prove much"
    );

    let mut node = Command::new("node")
        .arg(ORACLE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs `node` on the PATH: it is the independent program that canonical forms are compared with");
    // The oracle reads everything before it writes, so neither pipe can fill up unread.
    node.stdin.take().unwrap().write_all((texts.join("\n") + "\n").as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "the oracle failed: {}", output.status);
    let theirs = String::from_utf8(output.stdout).unwrap();

    assert_eq!(theirs.split_terminator('\n').count(), DOCUMENTS);
    for (text, theirs) in texts.iter().zip(theirs.split_terminator('\n')) {
        let document = parse(text.as_bytes(), &JsonLimits::default()).unwrap();
        assert_eq!(canonical(&document, NumberRule::Exact), theirs, "{text}");
    }
}

/// JSON texts on one line: unique names in no order, each character raw or escaped at random.
fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        any::<i32>().prop_map(|number| number.to_string()),
        string().prop_map(|(_, spelled)| spelled),
    ];
    let composite = leaf.prop_recursive(4, 80, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8)
                .prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((string(), inner), 2..12).prop_map(object),
        ]
    });
    proptest::collection::vec((string(), composite), 1..12).prop_map(object)
}

/// Keeps the first of equal names: an ordered map would hide an order that is wrong.
fn object(members: Vec<((String, String), String)>) -> String {
    let mut names = std::collections::HashSet::new();
    let unique = members.into_iter().filter(|((name, _), _)| names.insert(name.clone()));
    let members: Vec<String> =
        unique.map(|((_, spelled), value)| format!("{spelled}:{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// A string and a spelling of it.
fn string() -> impl Strategy<Value = (String, String)> {
    // Neighbours whose order differs between code points and UTF-16, everything with an escape of
    // its own, names that JavaScript treats in a special way, and any other character.
    let odd = "\"\\/\u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f} \u{7f}\u{80}\u{2028}\u{d7ff}\u{e000}\u{fb33}\u{ffff}\u{10000}\u{10ffff}😀éö€019aA";
    let character = prop_oneof![
        3 => proptest::sample::select(odd.chars().collect::<Vec<_>>()),
        1 => any::<char>().prop_filter("U+0000 is refused", |c| *c != '\0'),
    ];
    let wild = proptest::collection::vec(character, 0..6).prop_map(String::from_iter);
    let special = proptest::sample::select(vec![
        "__proto__".to_owned(),
        "constructor".into(),
        "10".into(),
        "9".into(),
    ]);
    (prop_oneof![9 => wild, 1 => special], any::<u64>()).prop_map(|(text, escaped)| {
        let spelled =
            text.chars().enumerate().map(|(place, c)| spell(c, escaped >> (place % 64) & 1 == 1));
        let spelled = format!("\"{}\"", spelled.collect::<String>());
        (text, spelled)
    })
}

fn spell(character: char, escaped: bool) -> String {
    if escaped || character < ' ' || matches!(character, '"' | '\\') {
        character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    } else {
        character.to_string()
    }
}
