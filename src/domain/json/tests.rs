use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::domain::samples::{document, json, respelled};

fn problem(bytes: &[u8]) -> (String, JsonProblem) {
    let error = parse(bytes, &JsonLimits::default()).unwrap_err();
    (error.pointer.to_string(), error.problem)
}

/// What two readers could read in two ways, and what cannot be stored, is refused with its place.
#[test]
fn refusals_name_the_place() {
    let check = |text: &str, pointer: &str, expected: JsonProblem| {
        assert_eq!(problem(text.as_bytes()), (pointer.to_owned(), expected), "{text}");
    };
    use JsonProblem::{DuplicateName, LoneSurrogate, Nul, TrailingData};
    check(r#"{"amount":1,"amount":100}"#, "/amount", DuplicateName);
    check(r#"{"a":[{"b":{"to":"alice","x":1,"to":"mallory"}}]}"#, "/a/0/b/to", DuplicateName);
    check(r#"{"to":1,"\u0074o":2}"#, "/to", DuplicateName);
    check(r#"{"a/b":{"~":1,"~":1}}"#, "/a~1b/~0", DuplicateName);
    check(r#"{"s":"\ud800"}"#, "/s", LoneSurrogate);
    check(r#"{"s":"\udc00"}"#, "/s", LoneSurrogate);
    check(r#"{"s":"\ud800\n"}"#, "/s", LoneSurrogate);
    check(r#"{"s":"\ud800\u0041"}"#, "/s", LoneSurrogate);
    check(r#"{"s":"\ud800\ud800"}"#, "/s", LoneSurrogate);
    check(r#"{"o":{"\udfff":1}}"#, "/o", LoneSurrogate);
    check(r#"{"s":"a\u0000b"}"#, "/s", Nul);
    check("{\"s\":\"a\0b\"}", "/s", Nul);
    check(r#"{"k\u0000":1}"#, "", Nul);
    check(r#"[0,{"s":[1,"\u0000"]}]"#, "/1/s/1", Nul);
    check(r#"{"a":1} {"a":2}"#, "", TrailingData);
    check("null null", "", TrailingData);
    check("[1]]", "", TrailingData);
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let check = |bytes: &[u8], pointer: &str, expected: JsonProblem| {
        assert_eq!(problem(bytes), (pointer.to_owned(), expected), "{bytes:?}");
    };
    check(b"\xef\xbb\xbf{\"a\":1}", "", JsonProblem::ByteOrderMark);
    check(b"{\"a\":\"\xff\"}", "/a", JsonProblem::InvalidUtf8);
    check(b"{\"a\":[1,\xc3\x28]}", "/a/1", JsonProblem::InvalidUtf8);
    // A surrogate encoded as UTF-8, and a solidus encoded too long.
    check(b"[\"\xed\xa0\x80\"]", "/0", JsonProblem::InvalidUtf8);
    check(b"[\"\xc0\xaf\"]", "/0", JsonProblem::InvalidUtf8);
    check(b"[1]\xff", "", JsonProblem::InvalidUtf8);
    check(b"\xff\xfe[\0]\0", "", JsonProblem::InvalidUtf8);
}

/// Only the grammar of RFC 8259, none of the habits of producers.
#[test]
fn other_grammars_are_refused() {
    let check = |text: &str, pointer: &str| {
        let (place, problem) = problem(text.as_bytes());
        assert!(matches!(problem, JsonProblem::Syntax { .. }), "{text}: {problem}");
        assert_eq!(place, pointer, "{text}");
    };
    for text in [
        "", " ", "{", "\"", "tru", "nul", "NaN", "-", "+1", ".5", "1.", "1e", "1e+", "-a", "01",
        "-00",
    ] {
        check(text, "");
    }
    for text in [
        r#"{"a":NaN}"#,
        r#"{"a":-Infinity}"#,
        r#"{"a":+1}"#,
        r#"{"a":'x'}"#,
        r#"{"a" 1}"#,
        r#"{"a":}"#,
    ] {
        check(text, "/a");
    }
    for text in
        [r#"{"a":"\x"}"#, r#"{"a":"\u12"}"#, r#"{"a":"\u+123"}"#, "{\"a\":\"\n\"}", r#"{"a":"#]
    {
        check(text, "/a");
    }
    for text in [r#"{"a":1,}"#, "{a:1}", r#"{"a":1 "b":2}"#, "{,}", "[1 2]", "{1:2}", r#"{"\x":1}"#]
    {
        check(text, "");
    }
    for text in ["[", "[,]", "[NaN]", "[01]"] {
        check(text, "/0");
    }
    check("[1,]", "/1");
    check("[1,,2]", "/1");
    check("[/* */1]", "/0");
    assert_eq!(problem(b"{}//"), (String::new(), JsonProblem::TrailingData));
    assert_eq!(problem(b"0x1"), (String::new(), JsonProblem::TrailingData));
    assert_eq!(problem("\u{a0}1".as_bytes()).1, JsonProblem::Syntax { expected: "a value" });
}

#[test]
fn numbers_keep_their_text() {
    let check = |text: &str| {
        assert_eq!(json(text).as_number().map(Number::as_str), Some(text));
        assert_eq!(json(text).to_value().to_string(), text);
        assert_eq!(Json::from_value(&json(text).to_value()), json(text));
        assert_eq!(Number::new(text).as_ref(), json(text).as_number());
    };
    for text in
        ["0", "-0", "10", "10.0", "1e1", "1E+1", "1e-1", "-0.0e-0", "1e400", "9007199254740993"]
    {
        check(text);
    }
    check("18446744073709551617");
    check(&format!("{}.{}e{}", "9".repeat(3000), "1".repeat(3000), "7".repeat(3000)));
    for text in ["", "1 ", " 1", "1a", "--1", "1e5.0", "null"] {
        assert_eq!(Number::new(text), None, "{text:?}");
    }
}

#[test]
fn limits_hold_on_both_sides() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let check = |text: &str, limits: JsonLimits, expected: Option<JsonProblem>| {
        assert_eq!(
            parse(text.as_bytes(), &limits).err().map(|e| e.problem),
            expected,
            "{} bytes",
            text.len()
        );
    };
    let standard = JsonLimits::default();
    check(&nested(64), standard, None);
    check(&nested(65), standard, Some(JsonProblem::TooDeep { limit: 64 }));
    check(
        &format!("{}1{}", r#"{"a":"#.repeat(65), "}".repeat(65)),
        standard,
        Some(JsonProblem::TooDeep { limit: 64 }),
    );
    check("[]", JsonLimits { max_depth: 0, ..standard }, Some(JsonProblem::TooDeep { limit: 0 }));
    check("1", JsonLimits { max_depth: 0, ..standard }, None);
    check("[10]", JsonLimits { max_bytes: 4, ..standard }, None);
    check(
        "[100]",
        JsonLimits { max_bytes: 4, ..standard },
        Some(JsonProblem::TooLarge { limit: 4 }),
    );
    let boundless = JsonLimits { max_bytes: usize::MAX, max_depth: usize::MAX };
    check(&nested(100_000), boundless, Some(JsonProblem::TooDeep { limit: JsonLimits::DEEPEST }));
    let error = parse(nested(65).as_bytes(), &standard).unwrap_err();
    assert_eq!(error.pointer.tokens().len(), 64);
}

/// A quarter of what a thread of the runtime gets, in a build without optimisation.
#[test]
fn the_deepest_document_fits_on_a_small_stack() {
    let read = || {
        let depth = JsonLimits::DEEPEST / 2;
        let text = r#"[{"a":"#.repeat(depth) + "1" + &"}]".repeat(depth);
        let limits = JsonLimits { max_depth: usize::MAX, ..JsonLimits::default() };
        let document = parse(text.as_bytes(), &limits).unwrap();
        assert_eq!(document.to_text(), text);
        assert_eq!(Json::from_value(&document.to_value()), document);
    };
    std::thread::Builder::new().stack_size(512 * 1024).spawn(read).unwrap().join().unwrap();
}

/// Quadratic reading of 100,000 members would take minutes.
#[test]
fn a_hundred_thousand_members_are_read_at_once() {
    let members: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":0")).collect();
    let limits = JsonLimits { max_bytes: usize::MAX, ..JsonLimits::default() };
    let began = Instant::now();
    let document = parse(format!("{{{}}}", members.join(",")).as_bytes(), &limits).unwrap();
    assert_eq!(document.as_object().map(<[_]>::len), Some(100_000));
    let error =
        parse(format!("{{{},\"77777\":0}}", members.join(",")).as_bytes(), &limits).unwrap_err();
    assert_eq!(
        (error.pointer.to_string().as_str(), error.problem),
        ("/77777", JsonProblem::DuplicateName)
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn an_error_is_one_line_without_values() {
    let check = |text: &str, expected: &str| {
        assert_eq!(
            parse(text.as_bytes(), &JsonLimits::default()).unwrap_err().to_string(),
            expected
        );
    };
    check(
        r#"{"card":{"no":"4242","no":"4242"}}"#,
        "JSON refused at /card/no (byte 33): this member name stands twice in its object; send it once",
    );
    check(
        r#"["secret"x]"#,
        "JSON refused at the top level (byte 9): not JSON: expected a comma or ']'",
    );
    check(r#"{"a\nb":}"#, "JSON refused at /a\\u{a}b (byte 8): not JSON: expected a value");
    let long = format!(r#"{{"{}":tru}}"#, "n".repeat(100_000));
    assert!(parse(long.as_bytes(), &JsonLimits::default()).unwrap_err().to_string().len() < 300);
}

#[test]
fn a_pointer_finds_its_place() {
    let document = json(r#"{"a":[{"b/c":null},1],"":2,"01":{"-":3}}"#);
    let check = |pointer: &str, expected: Option<&str>| {
        let pointer = Pointer::parse(pointer).unwrap();
        assert_eq!(document.at(&pointer).map(Json::to_text).as_deref(), expected, "{pointer}");
        assert_eq!(
            document.clone().at_tokens_mut(pointer.tokens()).map(|p| p.to_text()).as_deref(),
            expected
        );
    };
    check("", Some(document.to_text().as_str()));
    check("/", Some("2"));
    check("/a/0/b~1c", Some("null"));
    check("/a/1", Some("1"));
    check("/01/-", Some("3"));
    check("/a/2", None);
    check("/a/01", None);
    check("/a/-", None);
    check("/a/+1", None);
    check("/a/", None);
    check("/a/99999999999999999999999999", None);
    check("/a/1/x", None);
    check("/b", None);
}

#[test]
fn text_is_compact_and_keeps_the_order() {
    let check = |text: &str, expected: &str| assert_eq!(json(text).to_text(), expected);
    check(" { \"b\" : [ 1 , true ] , \"a\" : { } } ", r#"{"b":[1,true],"a":{}}"#);
    check(r#""\u0041\/\u00e9\ud83d\ude00""#, "\"A/é😀\"");
    check(
        r#""\u0001\u001F\b\f\n\r\t\"\\\u007f""#,
        "\"\\u0001\\u001f\\b\\f\\n\\r\\t\\\"\\\\\u{7f}\"",
    );
}

/// With arbitrary precision `serde_json` gives numbers a map form of this name; a document that
/// uses the name must stay an object.
#[test]
fn the_private_name_of_numbers_is_only_a_name() {
    let text = r#"{"$serde_json::private::Number":"1"}"#;
    assert!(json(text).to_value().is_object());
    assert_eq!(Json::from_value(&json(text).to_value()).to_text(), text);
}

proptest! {
    #[test]
    fn reading_undoes_writing(document in document()) {
        prop_assert_eq!(&json(&document.to_text()), &document);
    }

    #[test]
    fn a_general_reader_agrees(document in document(), seed in 1u64..) {
        let text = respelled(&document, &mut { seed });
        // Numbers aside, whose exponents the other reader respells.
        let strip = |value: &Json| without_numbers(value).to_value();
        let theirs: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(strip(&json(&text)), strip(&Json::from_value(&theirs)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let general = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes);
        if parse(&bytes, &JsonLimits::default()).is_ok() {
            prop_assert!(general.is_ok());
        }
    }

    /// Every text near JSON is judged as the general reader judges it, but for what is refused
    /// on purpose.
    #[test]
    fn near_misses_are_judged_by_the_grammar(text in "[\\[\\]{}:,\"\\\\ua0-1.eE+ -]{0,12}") {
        let general = serde_json::from_str::<serde_json::Value>(&text);
        match parse(text.as_bytes(), &JsonLimits::default()) {
            Ok(_) => prop_assert!(general.is_ok(), "{}", text),
            Err(error) => prop_assert!(
                general.is_err() || matches!(error.problem, JsonProblem::DuplicateName | JsonProblem::Nul),
                "{}", error
            ),
        }
    }
}

fn without_numbers(value: &Json) -> Json {
    match value {
        Json::Number(_) => Json::Null,
        Json::Array(items) => Json::Array(items.iter().map(without_numbers).collect()),
        Json::Object(members) => Json::Object(
            members.iter().map(|(name, value)| (name.clone(), without_numbers(value))).collect(),
        ),
        Json::Null | Json::Bool(_) | Json::String(_) => value.clone(),
    }
}
