use proptest::prelude::*;
use regex::Regex;

use super::shape::{EMAIL, SECRETS, holds_email, holds_secret};
use super::*;
use crate::domain::samples::text;

const ANY_EMAIL: KeyPolicy = KeyPolicy { refuse_email: false };

fn key(workflow_id: &str, step_id: &str) -> Result<OperationKey, KeyError> {
    OperationKey::new("acme", "prod", workflow_id, step_id, &KeyPolicy::default())
}

/// Two actions never share a key: the separator inside a part is not a separator.
#[test]
fn only_percent_and_colon_are_escaped() {
    let check = |workflow_id: &str, step_id: &str, expected: &str| {
        let made = key(workflow_id, step_id).unwrap();
        assert_eq!(made.as_str(), expected);
        let parsed = OperationKey::parse(expected).unwrap();
        assert_eq!(parsed, made);
        assert_eq!((parsed.tenant(), parsed.environment()), ("acme", "prod"));
        assert_eq!(
            (parsed.workflow_id().as_str(), parsed.step_id().as_str()),
            (workflow_id, step_id)
        );
    };
    check("run1", "step1", "acme:prod:run1:step1");
    check("a:b", "c", "acme:prod:a%3Ab:c");
    check("a", "b:c", "acme:prod:a:b%3Ac");
    check("a%3Ab", "c", "acme:prod:a%253Ab:c");
    check("100%", "%25", "acme:prod:100%25:%2525");
    check(" Größe/ü ", "task_live_x", "acme:prod: Größe/ü :task_live_x");
    check("::", "%", "acme:prod:%3A%3A:%25");
}

#[test]
fn names_and_ids_have_a_form() {
    use KeyPart::{Environment, StepId, Tenant, WorkflowId};
    let check = |parts: [&str; 4], expected: Option<(KeyPart, KeyRule)>| {
        let [tenant, environment, workflow_id, step_id] = parts;
        let made =
            OperationKey::new(tenant, environment, workflow_id, step_id, &KeyPolicy::default());
        assert_eq!(made.err().map(|e| (e.part, e.rule)), expected, "{parts:?}");
    };
    let (longest_name, longest_id) = ("a".repeat(63), ":".repeat(200));
    check([&longest_name, "0_-", &longest_id, &longest_id], None);
    check([&format!("{longest_name}a"), "e", "w", "s"], Some((Tenant, KeyRule::Name)));
    for name in ["", "-a", "_a", "A", "a.b", "a:b", "ä", "a b", "a\n", "a%"] {
        check([name, "e", "w", "s"], Some((Tenant, KeyRule::Name)));
        check(["t", name, "w", "s"], Some((Environment, KeyRule::Name)));
    }
    check(["t", "e", "", "s"], Some((WorkflowId, KeyRule::Empty)));
    check(["t", "e", "w", ""], Some((StepId, KeyRule::Empty)));
    check(["t", "e", &format!("{longest_id}a"), "s"], Some((WorkflowId, KeyRule::TooLong)));
    check(["t", "e", "w", &"é".repeat(100)], None);
    check(["t", "e", "w", &"é".repeat(101)], Some((StepId, KeyRule::TooLong)));
    for control in
        ["\0", "a\0", "\u{1}", "\t", "\n", "\r", "\u{1f}", "\u{7f}", "\u{80}", "\u{85}", "\u{9f}"]
    {
        check(["t", "e", control, "s"], Some((WorkflowId, KeyRule::Control)));
        check(["t", "e", "w", control], Some((StepId, KeyRule::Control)));
    }
    check(["t", "e", "\u{a0}\u{200b}\u{2028}", "😀"], None);
}

#[test]
fn a_whole_key_is_read_only_in_its_one_form() {
    let check = |text: &str, part: KeyPart, rule: KeyRule| {
        assert_eq!(OperationKey::parse(text), Err(KeyError { part, rule }), "{text}");
    };
    check("", KeyPart::Key, KeyRule::FourParts);
    check("acme:prod:run", KeyPart::Key, KeyRule::FourParts);
    check("acme:prod:a:b:c", KeyPart::Key, KeyRule::FourParts);
    check("Acme:prod:a:b", KeyPart::Tenant, KeyRule::Name);
    check("acme::a:b", KeyPart::Environment, KeyRule::Name);
    check("acme:prod::b", KeyPart::WorkflowId, KeyRule::Empty);
    check("acme:prod:a:", KeyPart::StepId, KeyRule::Empty);
    check("acme:prod:a%3ab:c", KeyPart::WorkflowId, KeyRule::Escape);
    check("acme:prod:a:%", KeyPart::StepId, KeyRule::Escape);
    check("acme:prod:a:%2", KeyPart::StepId, KeyRule::Escape);
    check("acme:prod:a:%41", KeyPart::StepId, KeyRule::Escape);
    check("acme:prod:a\n:b", KeyPart::WorkflowId, KeyRule::Control);
    check(&format!("acme:prod:a:{}", "%3A".repeat(201)), KeyPart::StepId, KeyRule::TooLong);
}

/// Texts that hold a secret, and texts that only look near one.
const SECRET_CASES: &[(&str, bool)] = &[
    ("sk_live_51HxYz", true),
    ("order-sk_test_4eC39", true),
    ("my_rk_live_4eC39", true),
    ("key=sk_live_a", true),
    ("task_live_x", false),
    ("risk_test_1", false),
    ("desk_live_1", false),
    ("sk_live_", false),
    ("sk_live_-x", false),
    ("sk_lively_1", false),
    ("whsec_AAECAwQFBgcI", true),
    ("whsec_", false),
    ("Bearer abc", true),
    ("Authorization: Bearer  x.y", true),
    ("bearer 0123456789abcdef", true),
    ("BEARER 0123456789abcdef", true),
    ("the bearer of news", false),
    ("Bearer", false),
    ("Bearer-token", false),
    ("Forbearer abc", false),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", true),
    ("run_eyJh.eyJz.", true),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0", false),
    ("eyJ.a.b", false),
    ("eyJh..b", false),
    ("heyJude.song.mp3", false),
    ("ghp_0123456789abcdef", true),
    ("x/gho_a", true),
    ("ghs_a ghu_ ghr_", true),
    ("github_pat_11AA", true),
    ("high_ghp", false),
    ("sighp_abc", false),
    ("AKIAIOSFODNN7EXAMPLE", true),
    ("id ASIAIOSFODNN7EXAMPLE", true),
    ("AKIAIOSFODNN7EXAMPL", false),
    ("AKIAIOSFODNN7EXAMPLe", false),
    ("MAKIAIOSFODNN7EXAMPLE", false),
    ("xoxb-17653672481-abc", true),
    ("xoxp-1", true),
    ("xoxa-1", true),
    ("xoxz-1", false),
    ("foxoxb-1", false),
    ("xoxb-", false),
    ("-----BEGIN RSA PRIVATE KEY-----", true),
    ("a-----BEGIN", true),
    ("-----END", false),
    ("step-2026-08-19T10.30.00Z", false),
    ("0198f0c5-7c1e-7d3a-9d4e-1c1b8f4f2a11", false),
    ("größe_sk_live_a", true),
    ("ßsk_live_a", true),
];

const EMAIL_CASES: &[(&str, bool)] = &[
    ("alice@example.com", true),
    ("mailto:a.b+c@mail.example.co.uk;", true),
    ("alice%40example.com", true),
    ("müller@exämple.de", true),
    ("иван@пример.рф", true),
    ("git@github.com/x", true),
    ("user@localhost", false),
    ("pkg@1.2.3", false),
    ("pkg@1.2.3-rc", false),
    ("@example.com", false),
    ("a @example.com", false),
    ("a@ example.com", false),
    ("a@example.c", false),
    ("a@.com", false),
    ("a@b..com", false),
    ("a@@b.com", false),
    ("run@2026-01-01T10.30.00Z", false),
    ("a@x@mail.org", true),
    ("a%40", false),
    ("@scope/pkg", false),
];

#[test]
fn secrets_are_refused_in_every_part() {
    for (part, secret) in SECRET_CASES {
        let expected =
            |at| if *secret { Some(KeyError { part: at, rule: KeyRule::Secret }) } else { None };
        assert_eq!(key(part, "s").err(), expected(KeyPart::WorkflowId), "{part}");
        assert_eq!(key("w", part).err(), expected(KeyPart::StepId), "{part}");
        let whole = OperationKey::parse(&format!("acme:prod:w:{}", escape(part))).unwrap();
        assert_eq!(whole.check(&ANY_EMAIL).err(), expected(KeyPart::StepId), "{part}");
    }
    let in_tenant = OperationKey::new("sk_live_abc", "prod", "w", "s", &ANY_EMAIL);
    assert_eq!(in_tenant, Err(KeyError { part: KeyPart::Tenant, rule: KeyRule::Secret }));
    let in_environment = OperationKey::new("acme", "x-ghp_abc", "w", "s", &ANY_EMAIL);
    assert_eq!(in_environment, Err(KeyError { part: KeyPart::Environment, rule: KeyRule::Secret }));
}

#[test]
fn addresses_are_refused_unless_the_deployment_allows_them() {
    for (part, address) in EMAIL_CASES {
        let expected = if *address {
            Some(KeyError { part: KeyPart::StepId, rule: KeyRule::Email })
        } else {
            None
        };
        assert_eq!(key("w", part).err(), expected, "{part}");
        let allowed = OperationKey::new("acme", "prod", "w", part, &ANY_EMAIL).unwrap();
        assert_eq!(allowed.check(&KeyPolicy::default()).err(), expected, "{part}");
    }
}

/// What was refused, and what was accepted, is shown nowhere.
#[test]
fn nothing_is_echoed() {
    let error = key("sk_live_51HxYz", "s").unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation key refused: the workflow_id holds what looks like a secret; use an id from the workflow's own state"
    );
    assert!(!format!("{error:?}").contains("51HxYz"));
    assert_eq!(format!("{:?}", key("order-77", "s").unwrap()), "OperationKey(acme:prod:…)");
}

/// The SQL door searches by the expressions, this one by hand: they must agree.
fn check_shapes(text: &str) {
    let expression = |posix: &str| Regex::new(posix).unwrap().is_match(text);
    assert_eq!(holds_secret(text), SECRETS.iter().any(|shape| expression(shape.posix)), "{text:?}");
    assert_eq!(holds_email(text), expression(EMAIL), "{text:?}");
}

#[test]
fn the_expressions_say_the_same() {
    for (text, _) in SECRET_CASES.iter().chain(EMAIL_CASES) {
        check_shapes(text);
    }
}

/// Pieces of the shapes in any order, so that near misses are as likely as hits.
fn near_shape() -> impl Strategy<Value = String> {
    let pieces = [
        "sk_",
        "rk_",
        "live_",
        "test_",
        "whsec_",
        "Bearer",
        "bEARER",
        " ",
        "eyJ",
        ".",
        "-",
        "_",
        "ghp_",
        "github_pat_",
        "AKIA",
        "ABCDEFGH",
        "01234567",
        "xoxb-",
        "-----",
        "BEGIN",
        "@",
        "%40",
        "com",
        "a",
        "Z",
        "9",
        "é",
        "/",
        "+",
        "~",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..10)
        .prop_map(|pieces| pieces.concat())
}

fn id() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("i{}", text.replace(char::is_control, "%")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn hand_and_expression_agree(text in near_shape()) {
        check_shapes(&text);
    }

    #[test]
    fn parsing_undoes_making(workflow_id in id(), step_id in id()) {
        let made = OperationKey::new("t", "e", &workflow_id, &step_id, &ANY_EMAIL).unwrap();
        let parsed = OperationKey::parse(made.as_str()).unwrap();
        prop_assert_eq!(&parsed, &made);
        prop_assert_eq!((parsed.workflow_id(), parsed.step_id()), (workflow_id, step_id));
    }

    #[test]
    fn different_parts_make_different_keys(a in "[a:%23A]{1,4}", b in "[a:%23A]{1,4}", c in "[a:%23A]{1,4}", d in "[a:%23A]{1,4}") {
        let (one, other) = (key(&a, &b).unwrap(), key(&c, &d).unwrap());
        prop_assert_eq!(one == other, (a, b) == (c, d));
    }

    #[test]
    fn what_parses_is_in_its_one_form(text in "t:e:[a:%23A]{1,8}:[a%253A]{1,8}") {
        if let Ok(key) = OperationKey::parse(&text) {
            let (workflow_id, step_id) = (key.workflow_id(), key.step_id());
            let again = OperationKey::new(key.tenant(), key.environment(), &workflow_id, &step_id, &ANY_EMAIL).unwrap();
            prop_assert_eq!(again.as_str(), text);
        }
    }
}
