use std::cmp::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::domain::samples::{document, json, number, respelled};

/// A digest may change only with a new [`CANON_VERSION`]. Another Unicode version can normalise
/// newly assigned characters in another way, so an update of the crate is a change of the form.
#[test]
fn the_unicode_version_is_part_of_the_form() {
    assert_eq!((CANON_VERSION, unicode_normalization::UNICODE_VERSION), (1, (18, 0, 0)));
}

#[test]
fn the_order_is_by_utf16_and_the_escapes_are_the_fewest() {
    let check = |text: &str, expected: &str| {
        assert_eq!(canonical(&json(text), NumberRule::Exact), expected)
    };
    check(
        r#"{"tenant":"acme","subject":"Refund","queue":"support"}"#,
        r#"{"queue":"support","subject":"Refund","tenant":"acme"}"#,
    );
    check(
        r#"{"m":{"z":1,"a":{"y":2,"b":3}},"l":[{"s":"A","q":1}]}"#,
        r#"{"l":[{"q":1,"s":"A"}],"m":{"a":{"b":3,"y":2},"z":1}}"#,
    );
    check("{ \"a\" : 1 ,\n\t\"b\":[ ] }", r#"{"a":1,"b":[]}"#);
    check(r#"["b","a",3,1]"#, r#"["b","a",3,1]"#);
    // RFC 8785, section 3.2.3.
    check(
        r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
        "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
    );
    check(r#"{"aa":1,"a":2,"":3,"A":4}"#, r#"{"":3,"A":4,"a":2,"aa":1}"#);
    check(r#""\u000f\n\u003c\/\u20ac""#, "\"\\u000f\\n</€\"");
}

#[test]
fn numbers_are_compared_by_the_rule() {
    let check = |a: &str, b: &str, same_text: bool, same_value: bool| {
        let same = |rule| canonical(&json(a), rule) == canonical(&json(b), rule);
        assert_eq!(
            (same(NumberRule::Exact), same(NumberRule::Numeric)),
            (same_text, same_value),
            "{a} {b}"
        );
    };
    check("10", "10", true, true);
    check("10", "10.0", false, true);
    check("10", "1e1", false, true);
    check("10", "100e-1", false, true);
    check("1E1", "1e+01", false, true);
    check("1e2", "100", false, true);
    check("0", "-0", false, true);
    check("0e99999999999999999999999999", "0.000", false, true);
    check("-1", "1", false, false);
    check("9007199254740992", "9007199254740993", false, false);
    check("18446744073709551616", "18446744073709551617", false, false);
    check("1e400", "1e401", false, false);
    check("1e400", "10e399", false, true);
    check("0.1", "0.1000000000000000055511151231257827", false, false);
    check(
        "1e99999999999999999999999999999999999999999",
        "0.1e100000000000000000000000000000000000000000",
        false,
        true,
    );
    check("1e9223372036854775807", "10e9223372036854775806", false, true);
    check("100e9223372036854775807", "10e9223372036854775808", false, true);
    check("0.001e-9223372036854775808", "1e-9223372036854775811", false, true);
    check("1e-9223372036854775808", "10e-9223372036854775809", false, true);
    check("1e-100000000000000000000000000", "10e-100000000000000000000000001", false, true);
    check("1e-100000000000000000000000000", "0.1e-99999999999999999999999999", false, true);
    check("\"10\"", "10", false, false);
}

#[test]
fn a_decimal_has_one_text() {
    let check = |text: &str, expected: &str| assert_eq!(decimal(text), expected);
    check("-0.0e5", "0");
    check("1", "1e0");
    check("1200", "12e2");
    check("-0.0120", "-12e-3");
    check("5e00000000000000000000000000007", "5e7");
    check("5e-0", "5e0");
    check(&format!("1e+{}", "9".repeat(40)), &format!("1e{}", "9".repeat(40)));
    check(&format!("10e{}", "9".repeat(40)), &format!("1e1{}", "0".repeat(40)));
    check(&format!("0.1e1{}", "0".repeat(40)), &format!("1e{}", "9".repeat(40)));
    check(&format!("10e-1{}", "0".repeat(40)), &format!("1e-{}", "9".repeat(40)));
}

/// The cost is that of the text, whatever the exponent says and however long the carry runs.
#[test]
fn absurd_exponents_cost_nothing() {
    let began = Instant::now();
    assert_eq!(decimal("1e999999999999999999"), "1e999999999999999999");
    assert_eq!(decimal(&format!("10e{}", "9".repeat(1_000_000))).len(), 1_000_003);
    assert_eq!(decimal(&format!("1{}e5", "0".repeat(1_000_000))), "1e1000005");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// Another way to compare: both numbers written out in full around the decimal point.
fn written_out(number: &str) -> (bool, String) {
    const ROOM: usize = 120;
    let unsigned = number.trim_start_matches('-');
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let point = mantissa.find('.').unwrap_or(mantissa.len());
    let before: i32 = i32::try_from(point).unwrap() + exponent.parse::<i32>().unwrap();
    let lead = usize::try_from(i32::try_from(ROOM).unwrap() - before).unwrap();
    let digits = "0".repeat(lead) + &mantissa.replace('.', "");
    let digits = format!("{digits:0<width$}", width = 3 * ROOM);
    (number.starts_with('-') && digits.bytes().any(|b| b != b'0'), digits)
}

proptest! {
    #[test]
    fn spelling_does_not_matter(document in document(), seed in 1u64..) {
        for rule in [NumberRule::Exact, NumberRule::Numeric] {
            let other = json(&respelled(&document, &mut { seed }));
            prop_assert_eq!(canonical(&other, rule), canonical(&document, rule));
        }
    }

    #[test]
    fn the_form_is_its_own_form(document in document()) {
        for rule in [NumberRule::Exact, NumberRule::Numeric] {
            let once = canonical(&document, rule);
            prop_assert_eq!(&canonical(&json(&once), rule), &once);
        }
    }

    #[test]
    fn one_value_has_one_text(a in "-?(0|[1-9]0{0,3})(\\.[01]{1,4})?(e[+-]?[0-9])?", b in "-?(0|[1-9]0{0,3})(\\.[01]{1,4})?(e[+-]?[0-9])?") {
        prop_assert_eq!(decimal(&a) == decimal(&b), written_out(&a) == written_out(&b), "{} {}", a, b);
    }

    #[test]
    fn moving_the_point_keeps_the_value(digits in "[1-9][0-9]{0,30}", zeros in 0usize..40, exponent in -50i32..50) {
        let moved = format!("{digits}{}e{}", "0".repeat(zeros), exponent - i32::try_from(zeros).unwrap());
        let plain = format!("{digits}e{exponent}");
        prop_assert_eq!(written_out(&moved).cmp(&written_out(&plain)), Ordering::Equal);
        prop_assert_eq!(decimal(&moved), decimal(&plain));
    }

    #[test]
    fn a_decimal_keeps_sign_and_form(number in number()) {
        let text = decimal(&number);
        prop_assert_eq!(decimal(&text), text.clone());
        prop_assert!(text == "0" || text.starts_with('-') == number.starts_with('-'));
    }
}
