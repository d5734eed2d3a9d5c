//! The known name that a misspelt one most likely stands for: for settings and for contract fields.

/// Longest name that is compared: a hostile one would cost time, and resembles nothing anyway.
const MAX_NAME_BYTES: usize = 64;

/// The nearest of `known`, when it is near enough to be meant.
#[must_use]
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let (distance, near) = known.map(|candidate| (distance(name, candidate), candidate)).min()?;
    (distance * 3 <= near.len().max(3)).then_some(near)
}

/// Levenshtein's distance between bytes; names are ASCII.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (place, y) in row.iter_mut().skip(1).zip(b) {
            let replaced = before + usize::from(x != *y);
            before = *place;
            left = replaced.min(left + 1).min(before + 1);
            *place = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_understood_and_others_are_not() {
        let known = ["relay.window", "relay.batch", "worker.batch"];
        let check = |name: &str, meant: Option<&str>| {
            assert_eq!(nearest(name, known.into_iter()), meant, "{name}");
        };
        check("relay.windw", Some("relay.window"));
        check("realy.window", Some("relay.window"));
        check("workers.batch", Some("worker.batch"));
        check("relay_window", Some("relay.window"));
        check("telemetry.endpoint", None);
        let fields = ["timeout", "applied", "accepted", "url", "job"];
        let check = |name: &str, meant: Option<&str>| {
            assert_eq!(nearest(name, fields.into_iter()), meant, "{name}");
        };
        check("timeuot", Some("timeout"));
        check("time_out", Some("timeout"));
        check("aplied", Some("applied"));
        check("uri", Some("url"));
        check("jobs", Some("job"));
        check("retries", None);
        check("", None);
        check(&"x".repeat(1000), None);
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        let check = |a, b, far| assert_eq!(distance(a, b), far, "{a} {b}");
        check("kitten", "sitting", 3);
        check("", "abc", 3);
        check("abc", "", 3);
        check("abc", "abc", 0);
        check("flaw", "lawn", 2);
    }
}
