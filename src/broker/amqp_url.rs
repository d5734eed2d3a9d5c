//! Where the broker is, without ever showing the password.

use std::{fmt, time::Duration};

use lapin::uri::AMQPUri;

use super::BrokerError;

/// An AMQP URL. Its password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl(String);

impl AmqpUrl {
    /// Takes a URL as it stands in the settings; it is checked when a connection is made.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// Whether the text can be used as a URL at all. Nothing is connected.
    ///
    /// # Errors
    /// [`BrokerError::Settings`], without the URL.
    pub fn check(&self) -> Result<(), BrokerError> {
        self.parse(Duration::from_secs(1)).map(drop)
    }

    pub(super) fn parse(&self, heartbeat: Duration) -> Result<AMQPUri, BrokerError> {
        let bad = |reason| BrokerError::Settings { setting: "AMQP_URL", reason };
        // The parser's own message may repeat the URL, so it is dropped.
        let mut uri: AMQPUri =
            self.0.parse().map_err(|_unsafe_to_show| bad("not an amqp:// or amqps:// URL"))?;
        // The parser answers `localhost` for a literal IPv6 address.
        if let Some(host) = ipv6_host(&self.0) {
            uri.authority.host = host.to_owned();
        }
        // `amqp://host/` means the default virtual host nearly everywhere; an empty name exists
        // hardly anywhere.
        if uri.vhost.is_empty() {
            uri.vhost = "/".to_owned();
        }
        let seconds = u16::try_from(heartbeat.as_secs().max(1)).map_err(|_too_long| {
            BrokerError::Settings { setting: "heartbeat", reason: "more than 65535 seconds" }
        })?;
        uri.query.heartbeat.get_or_insert(seconds);
        Ok(uri)
    }

    /// The URL with its password masked.
    #[must_use]
    pub fn masked(&self) -> String {
        let Some((scheme, rest)) = self.0.split_once("://") else { return "***".to_owned() };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        // A password may hold anything up to the last `@`, even a `/` that somebody forgot to
        // encode; then nothing can be told apart and everything is masked.
        if tail.contains('@') {
            return format!("{scheme}://***");
        }
        let path = tail.split(['?', '#']).next().unwrap_or_default();
        match authority.rsplit_once('@') {
            None => format!("{scheme}://{authority}{path}"),
            Some((login, host)) => {
                let user = login.split(':').next().unwrap_or_default();
                format!("{scheme}://{user}:***@{host}{path}")
            }
        }
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

fn ipv6_host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.get(..rest.find(['/', '?', '#']).unwrap_or(rest.len()))?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.strip_prefix('[')?.split(']').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        let check = |url: &str, shown: &str| assert_eq!(AmqpUrl::new(url).to_string(), shown);
        check("amqp://guest:pw@host:5672/%2f", "amqp://guest:***@host:5672/%2f");
        check("amqp://guest:p@w@host/v?heartbeat=3", "amqp://guest:***@host/v");
        check("amqps://host/v", "amqps://host/v");
        check("amqp://guest:p/w@host/v", "amqp://***");
        check("guest:pw@host", "***");
        assert!(!format!("{:?}", AmqpUrl::new("amqp://u:pw@h")).contains("pw"));
    }

    #[test]
    fn urls_mean_what_people_mean() {
        let parse = |url: &str| AmqpUrl::new(url).parse(Duration::from_secs(7)).unwrap();
        assert_eq!(parse("amqp://u:p@h/").vhost, "/");
        assert_eq!(parse("amqp://u:p@h/%2fa").vhost, "/a");
        assert_eq!(parse("amqp://u:p@[2001:db8::1]:5673/v").authority.host, "2001:db8::1");
        assert_eq!(parse("amqp://127.0.0.1").authority.host, "127.0.0.1");
        assert_eq!(parse("amqp://h").query.heartbeat, Some(7));
        assert_eq!(parse("amqp://h?heartbeat=3").query.heartbeat, Some(3));
        assert!(AmqpUrl::new("http://h").parse(Duration::ZERO).is_err());
    }
}
