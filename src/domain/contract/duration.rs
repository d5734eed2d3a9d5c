//! Spans of time as contracts write them: `500ms`, `10s`, `5m`, `24h`, `30d`.

use std::time::Duration;

use thiserror::Error;

/// Longest span, a hundred years: every sum of a few of them still fits PostgreSQL's timestamps.
const MAX_MILLIS: u64 = 36_500 * 86_400_000;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A text that is no span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a duration is a whole number and ms, s, m, h or d, up to 36500d: 500ms, 10s, 5m, 24h, 30d"
)]
pub struct DurationError;

/// Reads a span of time.
///
/// # Errors
/// When the text is not digits and a unit, or longer than a hundred years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or(DurationError)?;
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError)?;
    let number: u64 = number.parse().map_err(|_| DurationError)?;
    let millis = number.checked_mul(*factor).filter(|millis| *millis <= MAX_MILLIS);
    millis.map(Duration::from_millis).ok_or(DurationError)
}

/// The shortest text of a span, in the largest unit that divides it; below a millisecond is cut.
#[must_use]
pub fn duration_text(span: Duration) -> String {
    let millis = span.as_millis();
    let fits = |(_, factor): &&(&str, u64)| millis.is_multiple_of(u128::from(*factor));
    let zero = ("s", 1000);
    let (unit, factor) =
        if millis == 0 { &zero } else { UNITS.iter().rev().find(fits).unwrap_or(&zero) };
    format!("{}{unit}", millis / u128::from(*factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_with_a_unit() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(parse_duration(text).ok(), millis.map(Duration::from_millis), "{text:?}");
        };
        check("500ms", Some(500));
        check("10s", Some(10_000));
        check("5m", Some(300_000));
        check("24h", Some(86_400_000));
        check("30d", Some(2_592_000_000));
        check("0s", Some(0));
        check("36500d", Some(MAX_MILLIS));
        check("36501d", None);
        check("18446744073709551615d", None);
        check("18446744073709551616ms", None);
        check("10", None);
        check("s", None);
        check("", None);
        check("-1s", None);
        check("+1s", None);
        check("1.5s", None);
        check("1 s", None);
        check("1h30m", None);
        check("1H", None);
        check("١s", None);
    }

    #[test]
    fn the_shortest_text_reads_back() {
        let check = |text: &str, shortest: &str| {
            let span = parse_duration(text).unwrap();
            assert_eq!(duration_text(span), shortest);
            assert_eq!(parse_duration(shortest), Ok(span));
        };
        check("1000ms", "1s");
        check("60s", "1m");
        check("90s", "90s");
        check("24h", "1d");
        check("0d", "0s");
        check("1500ms", "1500ms");
    }
}
