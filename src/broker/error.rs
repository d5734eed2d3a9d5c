//! What a failure in this layer lets its caller conclude.

use std::time::Duration;

use lapin::{ErrorKind, protocol::AMQPErrorKind};

/// A failure of the broker layer.
///
/// No variant carries a payload, a key or a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The settings cannot work. Nothing was sent; trying again without a change is useless.
    #[error("broker setting {setting} is not usable: {reason}")]
    Settings {
        /// Which setting.
        setting: &'static str,
        /// What is wrong with it, without its value.
        reason: &'static str,
    },
    /// No connection came about. Nothing was sent; try again with backoff.
    #[error("no connection to the broker: {reason}")]
    Connect {
        /// What the network or the broker said.
        reason: String,
    },
    /// The broker refused the login, the virtual host or a permission. Nothing was done; a person
    /// has to change something, so try again slowly.
    #[error("the broker refused {action}: {reason}")]
    Refused {
        /// What was being done.
        action: &'static str,
        /// The broker's own words.
        reason: String,
    },
    /// The connection is gone. Whatever had no answer yet may or may not have been done; connect
    /// again, then repeat what is safe to repeat.
    #[error("the connection to the broker was lost during {action}: {reason}")]
    ConnectionLost {
        /// What was being done.
        action: &'static str,
        /// Why, as far as it is known.
        reason: String,
    },
    /// The channel is gone, the connection still stands. Whatever had no answer on this channel may
    /// or may not have been done; open another channel and try again.
    #[error("the broker closed the channel during {action}: {code} {reason}")]
    ChannelClosed {
        /// What was being done.
        action: &'static str,
        /// AMQP reply code; 0 when the channel had been closed before.
        code: u16,
        /// The broker's own words.
        reason: String,
    },
    /// No answer in time. The request may or may not have been carried out.
    #[error("the broker did not answer {action} within {waited:?}")]
    Timeout {
        /// What was being done.
        action: &'static str,
        /// How long the answer was awaited.
        waited: Duration,
    },
    /// The broker has blocked this connection (memory or disk alarm). Nothing was sent; try again
    /// with backoff, consumers go on.
    #[error("the broker has blocked publishing")]
    Blocked,
    /// A queue or exchange of that name exists with other properties. It is left as it is; only
    /// what uses it is unserved until a person renames, deletes or redeclares it.
    #[error("{name} exists on the broker with other properties: {difference}")]
    Differs {
        /// The queue or exchange.
        name: String,
        /// The broker's own words: which argument, what was wanted, what is there.
        difference: String,
    },
    /// The queue or exchange does not exist (any more). Declare it, then try again.
    #[error("{name} does not exist on the broker")]
    Missing {
        /// The queue or exchange.
        name: String,
    },
}

impl BrokerError {
    /// Reads an error that came back from a request on a channel.
    pub(super) fn from_lapin(error: &lapin::Error, action: &'static str) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(amqp) => {
                let (code, reason) = (amqp.get_id(), broker_text(amqp.get_message().as_str()));
                match amqp.kind() {
                    AMQPErrorKind::Soft(_) if code == ACCESS_REFUSED => {
                        Self::Refused { action, reason }
                    }
                    AMQPErrorKind::Soft(_) => Self::ChannelClosed { action, code, reason },
                    AMQPErrorKind::Hard(_) if code == NOT_ALLOWED => {
                        Self::Refused { action, reason }
                    }
                    AMQPErrorKind::Hard(_) => Self::ConnectionLost { action, reason },
                }
            }
            ErrorKind::InvalidChannelState(..)
            | ErrorKind::InvalidChannel(_)
            | ErrorKind::ChannelsLimitReached
            | ErrorKind::FutureCompleted => {
                Self::ChannelClosed { action, code: 0, reason: error.to_string() }
            }
            // The kinds left are all about the connection, and lapin may add more of them.
            _ => Self::ConnectionLost { action, reason: error.to_string() },
        }
    }

    /// Puts a name to the closed channel that a declaration or a passive look led to.
    pub(super) fn about(self, name: &str) -> Self {
        match self {
            Self::ChannelClosed { code: PRECONDITION_FAILED, reason, .. } => {
                Self::Differs { name: name.to_owned(), difference: reason }
            }
            Self::ChannelClosed { code: NOT_FOUND, .. } => Self::Missing { name: name.to_owned() },
            other => other,
        }
    }
}

pub(super) const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// The broker's reply text without its code name, on one line.
pub(super) fn broker_text(text: &str) -> String {
    let told = text.split_once(" - ").map_or(text, |(_, told)| told);
    told.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
