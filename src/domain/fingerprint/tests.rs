use proptest::prelude::*;

use super::*;
use crate::domain::samples::{document, json, respelled};

/// A rule from its contract text, so that the cases read like contracts.
fn rule(text: &str) -> FingerprintRule {
    let text = json(text);
    let part = |name: &str| text.member(name).cloned();
    let members =
        |name: &str| part(name).map_or(Vec::new(), |part| part.as_object().unwrap().to_vec());
    let pointer = |text: &str| Pointer::parse(text).unwrap();
    let serde = |part: &Json| part.to_value();
    FingerprintRule {
        fields: part("fields")
            .map_or(Vec::new(), |part| serde_json::from_value(serde(&part)).unwrap()),
        defaults: members("defaults")
            .into_iter()
            .map(|(place, value)| (pointer(&place), value))
            .collect(),
        text: members("text")
            .iter()
            .map(|(place, rules)| (pointer(place), serde_json::from_value(serde(rules)).unwrap()))
            .collect(),
        numbers: part("numbers")
            .map_or(NumberRule::Exact, |part| serde_json::from_value(serde(&part)).unwrap()),
    }
}

fn fingerprint(arguments: &str, rule: &FingerprintRule) -> Fingerprint {
    material("tickets.create", "1", "acme", &json(arguments), rule).fingerprint
}

fn check(under: &str, a: &str, b: &str, same: bool) {
    let rule = rule(under);
    assert_eq!(fingerprint(a, &rule) == fingerprint(b, &rule), same, "{a} {b} under {under}");
    let digests = |text: &str| material("t", "1", "acme", &json(text), &rule).digests;
    assert_eq!(differing(&digests(a), &digests(b)).is_empty(), same, "{a} {b} under {under}");
}

const WHOLE: &str = r#"{"fields":[""]}"#;
const NUMERIC: &str = r#"{"fields":[""],"numbers":"numeric"}"#;

#[test]
fn spelling_is_not_material_and_data_is() {
    let check = |a: &str, b: &str, same: bool| check(WHOLE, a, b, same);
    check(
        r#"{"queue":"s","subject":"R","tenant":"a"}"#,
        r#"{"tenant":"a","subject":"R","queue":"s"}"#,
        true,
    );
    check(
        r#"{"lines":[{"sku":"A","qty":1}],"meta":{"z":1,"a":{"y":2,"b":3}}}"#,
        r#"{"meta":{"a":{"b":3,"y":2},"z":1},"lines":[{"qty":1,"sku":"A"}]}"#,
        true,
    );
    check(r#"{"steps":["hold","capture"]}"#, r#"{"steps":["capture","hold"]}"#, false);
    check("{ \"a\" : 1 ,\n\t\"b\":[ ] }", r#"{"a":1,"b":[]}"#, true);
    check(r#"{"n":"caf\u00e9"}"#, r#"{"n":"café"}"#, true);
    check(r#"{"n":"cafe\u0301"}"#, r#"{"n":"café"}"#, false);
    check(r#"{"u":"a\/b"}"#, r#"{"u":"a/b"}"#, true);
    check(r#"{"note":null}"#, "{}", false);
    check(r#"{"amount":"10"}"#, r#"{"amount":10}"#, false);
    check(r#"{"a":{}}"#, r#"{"a":[]}"#, false);
    check(r#"{"price":"0.1"}"#, r#"{"price":"0.10"}"#, false);
    check(r#"{"a":{"b":1},"c":2}"#, r#"{"a":{"b":1,"c":2}}"#, false);
}

#[test]
fn numbers_follow_the_rule() {
    let check = |a: &str, b: &str, exact: bool, numeric: bool| {
        check(WHOLE, a, b, exact);
        check(NUMERIC, a, b, numeric);
    };
    check(r#"{"amount":10}"#, r#"{"amount":10.0}"#, false, true);
    check(r#"{"n":1e2}"#, r#"{"n":100}"#, false, true);
    check(r#"{"n":0}"#, r#"{"n":-0}"#, false, true);
    check(r#"{"id":9007199254740992}"#, r#"{"id":9007199254740993}"#, false, false);
    check(r#"{"id":18446744073709551616}"#, r#"{"id":18446744073709551617}"#, false, false);
    check(r#"{"amount":1e400}"#, r#"{"amount":1e401}"#, false, false);
    check(r#"{"amount":1e400}"#, r#"{"amount":null}"#, false, false);
    check(r#"{"amount":1e400}"#, r#"{"amount":"1e400"}"#, false, false);
}

#[test]
fn only_material_places_count() {
    let under = r#"{"fields":["/a","/b/c"]}"#;
    check(under, r#"{"a":1,"trace":1}"#, r#"{"a":1,"trace":2}"#, true);
    check(under, r#"{"b":{"c":1,"d":1}}"#, r#"{"b":{"c":1}}"#, true);
    check(under, r#"{"b":{"c":1}}"#, r#"{"b":{"c":2}}"#, false);
    check(under, r#"{"b":{}}"#, "{}", true);
    check(under, r#"{"b":{"c":null}}"#, "{}", false);
    check(under, r#"{"a":1}"#, r#"{"b":{"c":1}}"#, false);
    check(r#"{"fields":["/items/0"]}"#, r#"{"items":[1,2]}"#, r#"{"items":[1,3]}"#, true);
    // Arguments cannot pose as the identity around them.
    check(r#"{"fields":["","/tool"]}"#, r#"{"tool":"x"}"#, "{}", false);
    let twice = rule(r#"{"fields":["/a","/a"]}"#);
    assert_eq!(
        fingerprint(r#"{"a":1}"#, &twice),
        fingerprint(r#"{"a":1}"#, &rule(r#"{"fields":["/a"]}"#))
    );
}

#[test]
fn an_omitted_place_equals_its_default() {
    let under = r#"{"fields":["/p"],"defaults":{"/p":"normal"}}"#;
    check(under, "{}", r#"{"p":"normal"}"#, true);
    check(under, "{}", r#"{"p":null}"#, false);
    check(under, "{}", r#"{"p":"high"}"#, false);
    // A default outside the fields is material by itself.
    let under = r#"{"fields":["/q"],"defaults":{"/p":"normal"}}"#;
    check(under, r#"{"q":1}"#, r#"{"q":1,"p":"normal"}"#, true);
    check(under, r#"{"q":1}"#, r#"{"q":1,"p":"high"}"#, false);
    // Inside a field it fills in an object that is there, and makes none.
    let under = r#"{"fields":["/a"],"defaults":{"/a/b":1}}"#;
    check(under, r#"{"a":{}}"#, r#"{"a":{"b":1}}"#, true);
    check(under, r#"{"a":{"c":2}}"#, r#"{"a":{"b":1,"c":2}}"#, true);
    check(under, "{}", r#"{"a":{"b":1}}"#, false);
    check(under, r#"{"a":null}"#, r#"{"a":{"b":1}}"#, false);
    check(under, r#"{"a":[]}"#, r#"{"a":[1]}"#, false);
    check(under, r#"{"a":{"b":null}}"#, r#"{"a":{"b":1}}"#, false);
    // Defaults of object and member add up, whichever of them is the field.
    for field in ["/a", "/a/b", ""] {
        let under = format!(r#"{{"fields":["{field}"],"defaults":{{"/a":{{}},"/a/b":1}}}}"#);
        check(&under, "{}", r#"{"a":{"b":1}}"#, true);
        check(&under, r#"{"a":{}}"#, "{}", true);
        check(&under, r#"{"a":{"b":2}}"#, "{}", false);
    }
    let under = r#"{"fields":["/a/b"],"defaults":{"/a/b":1}}"#;
    check(under, "{}", r#"{"a":{"b":1}}"#, true);
    let under = r#"{"fields":["/a/b"],"defaults":{"/a":{"b":1}}}"#;
    check(under, "{}", r#"{"a":{"b":1}}"#, true);
    check(under, r#"{"a":{}}"#, r#"{"a":{"b":1}}"#, false);
    check(
        r#"{"fields":["/l"],"defaults":{"/l/0/x":1}}"#,
        r#"{"l":[{}]}"#,
        r#"{"l":[{"x":1}]}"#,
        true,
    );
    check(r#"{"fields":["/l"],"defaults":{"/l/0":1}}"#, r#"{"l":[]}"#, r#"{"l":[1]}"#, false);
    let numeric = r#"{"fields":["/n"],"defaults":{"/n":10},"numbers":"numeric"}"#;
    check(numeric, "{}", r#"{"n":1e1}"#, true);
}

#[test]
fn text_rules_apply_where_they_are_named() {
    let check = |rules: &str, a: &str, b: &str, same: bool| {
        let under = format!(r#"{{"fields":["/s"],"text":{{"/s":{rules}}}}}"#);
        check(&under, &format!(r#"{{"s":{a}}}"#), &format!(r#"{{"s":{b}}}"#), same);
    };
    check("[]", r#"" x""#, r#""x""#, false);
    check(r#"["trim"]"#, r#""\t\n\r x y \r\n""#, r#""x y""#, true);
    check(r#"["trim"]"#, r#""\u00a0x""#, r#""x""#, false);
    check(r#"["trim"]"#, r#""\u000bx""#, r#""x""#, false);
    check(r#"["trim"]"#, r#""\u2003x""#, r#""x""#, false);
    check(r#"["trim"]"#, r#""x  y""#, r#""x y""#, false);
    check(r#"["lowercase"]"#, r#""ABZ""#, r#""abz""#, true);
    check(r#"["lowercase"]"#, r#""Ä""#, r#""ä""#, false);
    check(r#"["lowercase"]"#, r#""\u212a""#, r#""k""#, false);
    check(r#"["lowercase"]"#, r#""\u0130""#, r#""i""#, false);
    check(r#"["nfc"]"#, r#""e\u0301""#, r#""é""#, true);
    check(r#"["nfc"]"#, r#""\u212b""#, r#""Å""#, true);
    check(r#"["nfc"]"#, r#""\uff21""#, r#""A""#, false);
    check(r#"["nfc"]"#, r#""ﬁ""#, r#""fi""#, false);
    // In the order given: NFC first hides the E from lowercase.
    check(r#"["trim","lowercase","nfc"]"#, r#"" E\u0301X ""#, r#""éx""#, true);
    check(r#"["nfc","trim","lowercase"]"#, r#"" E\u0301X ""#, r#""éx""#, false);
    check(r#"["nfc","trim","lowercase"]"#, r#"" E\u0301X ""#, r#""Éx""#, true);
    check(r#"["trim"]"#, "1", r#""1""#, false);
    check(r#"["trim"]"#, r#"[" x"]"#, r#"["x"]"#, false);
    check(r#"["trim"]"#, r#"{"t":" x"}"#, r#"{"t":"x"}"#, false);
}

#[test]
fn text_rules_reach_inside_fields_and_defaults() {
    let under = r#"{"fields":["/a"],"text":{"/a/s":["trim"]}}"#;
    check(under, r#"{"a":{"s":" x"}}"#, r#"{"a":{"s":"x"}}"#, true);
    check(under, r#"{"a":{"t":" x"}}"#, r#"{"a":{"t":"x"}}"#, false);
    let under = r#"{"fields":["/s"],"defaults":{"/s":"Normal"},"text":{"/s":["lowercase"]}}"#;
    check(under, "{}", r#"{"s":"NORMAL"}"#, true);
    let under = r#"{"fields":["/a"],"defaults":{"/a/s":" Normal"},"text":{"/a/s":["trim"]}}"#;
    check(under, r#"{"a":{}}"#, r#"{"a":{"s":"Normal "}}"#, true);
    let idle = rule(
        r#"{"fields":["/a"],"defaults":{"/d":1},"text":{"/a":[],"/a/b":[],"/ab":[],"/d":[],"":[]}}"#,
    );
    assert_eq!(idle.idle_text().iter().map(ToString::to_string).collect::<Vec<_>>(), ["", "/ab"]);
}

#[test]
fn tool_version_and_tenant_are_inside() {
    let under = rule(WHOLE);
    let of = |tool: &str, version: &str, tenant: &str| {
        material(tool, version, tenant, &json("{}"), &under).fingerprint
    };
    let base = of("t", "1", "acme");
    assert_eq!(base, of("t", "1", "acme"));
    for other in
        [of("u", "1", "acme"), of("t", "2", "acme"), of("t", "1", "bolt"), of("t1", "", "acme")]
    {
        assert_ne!(base, other);
    }
}

/// An operator sees which places differ, never what stands there.
#[test]
fn differences_are_pointers() {
    let under = rule(r#"{"fields":["/a","/b","/c","/a~1b"],"defaults":{"/d":1}}"#);
    let digests = |text: &str| material("t", "1", "acme", &json(text), &under).digests;
    let check = |a: &str, b: &str, expected: &[&str]| {
        assert_eq!(differing(&digests(a), &digests(b)), expected)
    };
    check("{}", "{}", &[]);
    check(r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"b":3}"#, &["/b", "/c"]);
    check(r#"{"a/b":1,"d":1}"#, r#"{"d":2}"#, &["/a~1b", "/d"]);
    let nested = rule(r#"{"fields":["/a","/a/b"]}"#);
    let digests_of = |text: &str| material("t", "1", "acme", &json(text), &nested).digests;
    assert_eq!(
        differing(&digests_of(r#"{"a":{"b":1,"c":1}}"#), &digests_of(r#"{"a":{"b":1}}"#)),
        ["/a"]
    );
    assert_eq!(
        differing(&digests_of(r#"{"a":{"b":1}}"#), &digests_of(r#"{"a":{}}"#)),
        ["/a", "/a/b"]
    );
    let equal_values = digests(r#"{"a":1,"b":1}"#);
    assert_ne!(equal_values["/a"], equal_values["/b"]);
    assert_eq!(equal_values["/a"].len(), 64);
}

#[test]
fn a_stored_fingerprint_is_read_strictly() {
    let digest = "0123456789abcdef".repeat(4);
    let check = |text: &str, good: bool| {
        assert_eq!(Fingerprint::parse(text).is_ok_and(|f| f.as_str() == text), good, "{text}");
    };
    check(&format!("sha256:1:{digest}"), true);
    check(&format!("sha256:0:{digest}"), false);
    check(&format!("sha256:2:{digest}"), false);
    check(&format!("sha256:01:{digest}"), false);
    check(&format!("sha256:1:{digest}0"), false);
    check(&format!("sha256:1:{}", &digest[1..]), false);
    check(&format!("sha256:1:{}", digest.to_uppercase()), false);
    check(&format!("sha256:{digest}"), false);
    check(&format!("sha512:1:{digest}"), false);
    check("", false);
    let computed = fingerprint("{}", &rule(WHOLE));
    assert_eq!(Fingerprint::parse(&computed.to_string()), Ok(computed.clone()));
    let text = serde_json::to_string(&computed).unwrap();
    assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), computed);
    assert!(serde_json::from_str::<Fingerprint>("\"sha256:9:00\"").is_err());
}

/// The digests in the file were computed by another program. A difference here means that every
/// stored fingerprint would stop matching: raise the canon version instead of editing the file.
#[test]
fn golden_digests_stand() {
    let golden = json(include_str!("../../../tests/golden/fingerprints.json"));
    let cases = golden.as_array().unwrap();
    assert!(cases.len() >= 25);
    for case in cases {
        let text = |name: &str| case.member(name).unwrap().as_str().unwrap();
        let under = rule(&case.member("rule").unwrap().to_text());
        let computed = material(
            text("tool"),
            text("tool_version"),
            text("tenant"),
            &json(text("arguments")),
            &under,
        );
        assert_eq!(computed.fingerprint.as_str(), text("fingerprint"), "{}", text("about"));
    }
}

/// Small arguments and rules over two names, so that they meet often.
fn small_object() -> impl Strategy<Value = Json> {
    let leaf =
        prop_oneof![Just(json("1")), Just(json("null")), Just(json("\" x\"")), Just(json("{}"))];
    let object = |value: BoxedStrategy<Json>| {
        proptest::collection::btree_map("[ab]", value, 0..3)
            .prop_map(|m| Json::Object(m.into_iter().collect()))
    };
    let inner = object(leaf.clone().boxed());
    object(prop_oneof![leaf, inner].boxed())
}

fn small_rule() -> impl Strategy<Value = FingerprintRule> {
    let place = || "(/[ab]){0,3}".prop_map(|text| Pointer::parse(&text).unwrap());
    let value = prop_oneof![small_object(), Just(json("1")), Just(json("\"x \""))];
    let text = proptest::collection::btree_map(place(), Just(vec![TextRule::Trim]), 0..2);
    let defaults = proptest::collection::btree_map(place(), value, 0..4);
    (proptest::collection::vec(place(), 0..3), defaults, text).prop_map(
        |(fields, defaults, text)| FingerprintRule {
            fields,
            defaults,
            text,
            numbers: NumberRule::Exact,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever the fields are: to send what an omission means is to send the same request.
    #[test]
    fn an_explicit_default_is_the_same_request(arguments in small_object(), rule in small_rule()) {
        for (place, default) in &rule.defaults {
            let Some((name, to_object)) = place.tokens().split_last() else { continue };
            let mut explicit = arguments.clone();
            let Some(Json::Object(members)) = explicit.at_tokens_mut(to_object) else { continue };
            if members.iter().all(|(present, _)| present != name) {
                members.push((name.clone(), default.clone()));
                prop_assert_eq!(
                    material("t", "1", "acme", &explicit, &rule),
                    material("t", "1", "acme", &arguments, &rule)
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn spelling_does_not_matter(document in document(), seed in 1u64..) {
        let whole = rule(WHOLE);
        let other = respelled(&document, &mut { seed });
        prop_assert_eq!(fingerprint(&other, &whole), fingerprint(&document.to_text(), &whole));
    }

    #[test]
    fn different_data_differs(a in document(), b in document()) {
        let whole = rule(WHOLE);
        let same = canonical(&a, NumberRule::Exact) == canonical(&b, NumberRule::Exact);
        prop_assert_eq!(fingerprint(&a.to_text(), &whole) == fingerprint(&b.to_text(), &whole), same);
    }
}
