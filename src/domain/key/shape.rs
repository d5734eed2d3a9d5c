//! Shapes that a key must not hold: well-known secrets, e-mail addresses.
//!
//! Each shape is one POSIX extended regular expression, searched anywhere in the unescaped part,
//! case-sensitively; that text is what the SQL door uses. Here the same shapes are matched by hand
//! (a test holds the two together). A secret begins where a word begins, so that `task_live_x`
//! does not look like `sk_live_x`: after anything but an ASCII letter or digit.

/// One shape of a secret.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whose secret it is.
    pub name: &'static str,
    /// The shape as a POSIX extended regular expression.
    pub posix: &'static str,
    /// Whether a text holds it.
    found: fn(&str) -> bool,
}

/// Every secret shape that is refused.
pub const SECRETS: &[Shape] = &[
    Shape {
        name: "Stripe secret or restricted key",
        posix: "(^|[^A-Za-z0-9])(sk|rk)_(live|test)_[A-Za-z0-9]",
        found: |text| {
            words(text, &["sk_live_", "sk_test_", "rk_live_", "rk_test_"])
                .any(|rest| starts(rest, 1, alnum))
        },
    },
    Shape {
        name: "webhook signing secret",
        posix: "(^|[^A-Za-z0-9])whsec_[A-Za-z0-9+/]",
        found: |text| {
            words(text, &["whsec_"])
                .any(|rest| starts(rest, 1, |c| alnum(c) || matches!(c, '+' | '/')))
        },
    },
    Shape {
        name: "HTTP bearer credential",
        posix: "(^|[^A-Za-z0-9])Bearer +[A-Za-z0-9._~+/-]",
        found: |text| words(text, &["Bearer"]).any(|rest| credential(rest, 1)),
    },
    // In another case it may be an English word, so what follows must be as long as a credential.
    Shape {
        name: "HTTP bearer credential, any case",
        posix: "(^|[^A-Za-z0-9])[Bb][Ee][Aa][Rr][Ee][Rr] +[A-Za-z0-9._~+/-]{16}",
        found: |text| {
            words(&text.to_ascii_lowercase(), &["bearer"]).any(|rest| credential(rest, 16))
        },
    },
    Shape {
        name: "JSON Web Token",
        posix: r"(^|[^A-Za-z0-9])eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.",
        found: |text| words(text, &["eyJ"]).any(|rest| segment(rest).and_then(segment).is_some()),
    },
    Shape {
        name: "GitHub token",
        posix: "(^|[^A-Za-z0-9])(gh[oprsu]|github_pat)_[A-Za-z0-9]",
        found: |text| {
            words(text, &["gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_"])
                .any(|rest| starts(rest, 1, alnum))
        },
    },
    Shape {
        name: "AWS access key id",
        posix: "(^|[^A-Za-z0-9])A(KI|SI)A[A-Z0-9]{16}",
        found: |text| {
            words(text, &["AKIA", "ASIA"])
                .any(|rest| starts(rest, 16, |c| c.is_ascii_uppercase() || c.is_ascii_digit()))
        },
    },
    Shape {
        name: "Slack token",
        posix: "(^|[^A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9]",
        found: |text| {
            words(text, &["xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"])
                .any(|rest| starts(rest, 1, alnum))
        },
    },
    Shape { name: "PEM block", posix: "-----BEGIN", found: |text| text.contains("-----BEGIN") },
];

/// An e-mail address, also percent-encoded: something, an at sign, labels with dots, and a last
/// label that begins with two characters that are no digits, so that `pkg@1.2.3` is none.
pub const EMAIL: &str = r"[^ @](@|%40)([^ @.]+\.)+[^ @.0-9]{2}";

/// Whether a text holds a well-known secret shape ([`SECRETS`]).
#[must_use]
pub fn holds_secret(text: &str) -> bool {
    SECRETS.iter().any(|shape| (shape.found)(text))
}

/// Whether a text holds an e-mail address ([`EMAIL`]).
#[must_use]
pub fn holds_email(text: &str) -> bool {
    ["@", "%40"]
        .iter()
        .any(|sign| text.match_indices(sign).any(|(at, _)| is_address(text, at, sign)))
}

fn is_address(text: &str, at: usize, sign: &str) -> bool {
    let Some((mailbox, host)) = text.split_at_checked(at) else { return false };
    let host =
        host.strip_prefix(sign).unwrap_or_default().split([' ', '@']).next().unwrap_or_default();
    let mut labels = host.split('.').take_while(|label| !label.is_empty());
    let after_host = labels.next().is_some();
    let top_level =
        |label: &str| label.chars().take(2).filter(|c| !c.is_ascii_digit()).count() == 2;
    mailbox.ends_with(|c| !matches!(c, ' ' | '@')) && after_host && labels.any(top_level)
}

/// What follows each place where one of `prefixes` begins a word.
fn words<'a>(text: &'a str, prefixes: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    prefixes.iter().flat_map(move |prefix| {
        text.match_indices(prefix).filter_map(move |(at, found)| {
            let (before, rest) = text.split_at_checked(at)?;
            if before.ends_with(alnum) { None } else { rest.strip_prefix(found) }
        })
    })
}

/// Whether `rest` begins with `count` characters of a kind.
fn starts(rest: &str, count: usize, kind: impl Fn(char) -> bool) -> bool {
    rest.chars().take(count).filter(|c| kind(*c)).count() == count
}

/// Spaces, then at least `count` characters of a bearer token (RFC 6750, section 2.1).
fn credential(rest: &str, count: usize) -> bool {
    let token = rest.trim_start_matches(' ');
    token.len() < rest.len()
        && starts(token, count, |c| alnum(c) || matches!(c, '.' | '_' | '~' | '+' | '/' | '-'))
}

/// What follows a base64url segment and its dot.
fn segment(rest: &str) -> Option<&str> {
    let after = rest.trim_start_matches(|c| alnum(c) || matches!(c, '_' | '-'));
    if after.len() < rest.len() { after.strip_prefix('.') } else { None }
}

fn alnum(c: char) -> bool {
    c.is_ascii_alphanumeric()
}
