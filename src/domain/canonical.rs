//! The one text of a document, so that equal requests have equal digests.
//!
//! Order of members and escaping of strings are RFC 8785's (sections 3.2.3 and 3.2.2.2). Its number
//! rule is not: it goes through IEEE doubles, which folds 9007199254740993 into ...992. Here
//! numbers are compared as text, by [`NumberRule`].
//!
//! Whatever changes a byte of this form changes every stored fingerprint: then [`CANON_VERSION`]
//! must rise and the old form must stay readable.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;

use super::json::{Json, write_list, write_string};

/// Version of this form, stored in every fingerprint. It stands for the order, the escapes, the
/// number rules, the text rules and the Unicode version of [`nfc`].
pub const CANON_VERSION: u32 = 1;

/// When two numbers are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberRule {
    /// When their texts are: 10, 10.0 and 1e1 differ, and so do 0 and -0.
    #[default]
    Exact,
    /// When their decimal values are: 10 = 10.0 = 1e1, 0 = -0. Any size, any precision.
    Numeric,
}

/// Writes a document in its canonical form. The result is JSON too.
#[must_use]
pub fn canonical(document: &Json, numbers: NumberRule) -> String {
    let mut text = String::new();
    write(&mut text, document, numbers);
    text
}

/// Unicode normalisation form C, by the Unicode version that [`CANON_VERSION`] stands for.
#[must_use]
pub fn nfc(text: &str) -> String {
    text.nfc().collect()
}

fn write(out: &mut String, value: &Json, numbers: NumberRule) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Json::Number(number) => match numbers {
            NumberRule::Exact => out.push_str(number.as_str()),
            NumberRule::Numeric => out.push_str(&decimal(number.as_str())),
        },
        Json::String(text) => write_string(out, text),
        Json::Array(items) => {
            write_list(out, ['[', ']'], items, |out, item| write(out, item, numbers))
        }
        Json::Object(members) => {
            let mut members: Vec<&(String, Json)> = members.iter().collect();
            // By UTF-16 code units, not code points: U+10000 sorts before U+E000.
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            write_list(out, ['{', '}'], members, |out, (name, value)| {
                write_string(out, name);
                out.push(':');
                write(out, value, numbers);
            });
        }
    }
}

/// The one text of a decimal value: `0`, or `<digits>e<exponent>` without zeros at either end of
/// the digits. Arithmetic on text only, in time and space of the order of the text itself, so that
/// 1e999999999 costs no more than 1e9.
fn decimal(number: &str) -> String {
    let (sign, unsigned) = split_sign(number);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let dropped_zeros = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    // Both lengths are at most isize::MAX: they are lengths of strings.
    let shift = dropped_zeros.cast_signed() - fraction.len().cast_signed();
    let exponent = match exponent.parse::<isize>().ok().and_then(|e| e.checked_add(shift)) {
        Some(exponent) => exponent.to_string(),
        None => add_to_huge(exponent, shift),
    };
    format!("{sign}{significant}e{exponent}")
}

/// `exponent + shift` for an exponent beyond the machine's integers. Its sign cannot change: it is
/// larger than any length of a text.
fn add_to_huge(exponent: &str, shift: isize) -> String {
    let (sign, digits) = split_sign(exponent);
    let mut rest = digits.trim_start_matches(['+', '0']);
    let mut carry = if sign.is_empty() { shift } else { -shift };
    let mut changed = String::new();
    while carry != 0 {
        let Some(digit) = rest.chars().next_back().and_then(|c| c.to_digit(10)) else { break };
        rest = rest.get(..rest.len() - 1).unwrap_or_default();
        let sum = carry.saturating_add_unsigned(usize::try_from(digit).unwrap_or_default());
        carry = sum.div_euclid(10);
        changed.extend(char::from_digit(u32::try_from(sum.rem_euclid(10)).unwrap_or_default(), 10));
    }
    let carried = if carry > 0 { carry.to_string() } else { String::new() };
    let all = carried + rest + &changed.chars().rev().collect::<String>();
    format!("{sign}{}", all.trim_start_matches('0'))
}

fn split_sign(number: &str) -> (&str, &str) {
    match number.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", number),
    }
}
