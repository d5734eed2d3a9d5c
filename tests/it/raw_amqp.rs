//! A few frames of AMQP 0-9-1 by hand, to publish what no proper client library would.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// A connection with one channel in confirm mode.
pub(crate) struct RawChannel(TcpStream);

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;

impl RawChannel {
    /// Logs in as guest; `amqp_url` may carry another login.
    pub(crate) fn open(amqp_url: &str) -> Self {
        let rest = amqp_url.strip_prefix("amqp://").expect("a plain AMQP URL");
        let authority = rest.split('/').next().unwrap();
        let (login, host) = authority.rsplit_once('@').unwrap_or(("guest:guest", authority));
        let (user, password) = login.split_once(':').unwrap();
        let stream = TcpStream::connect(host).expect("the broker is there");
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut raw = Self(stream);
        raw.0.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
        raw.expect(10, 10);
        let response = format!("\0{user}\0{password}");
        raw.method(
            0,
            10,
            11,
            &[&table(b""), &short("PLAIN"), &long(response.as_bytes()), &short("en_US")],
        );
        raw.expect(10, 30);
        raw.method(
            0,
            10,
            31,
            &[&2047_u16.to_be_bytes(), &131_072_u32.to_be_bytes(), &0_u16.to_be_bytes()],
        );
        raw.method(0, 10, 40, &[&short("/"), &[0, 0]]);
        raw.expect(10, 41);
        raw.method(1, 20, 10, &[&[0]]);
        raw.expect(20, 11);
        raw.method(1, 85, 10, &[&[0]]);
        raw.expect(85, 11);
        raw
    }

    /// Publishes with property bytes as given (flags and values) and says whether the broker took
    /// it: a broker that cannot read the properties itself closes the connection.
    pub(crate) fn publish(
        &mut self,
        exchange: &str,
        key: &str,
        properties: &[u8],
        body: &[u8],
    ) -> bool {
        self.publish_bytes(exchange, key.as_bytes(), properties, body)
    }

    /// [`RawChannel::publish`] with a routing key that may be any bytes.
    pub(crate) fn publish_bytes(
        &mut self,
        exchange: &str,
        key: &[u8],
        properties: &[u8],
        body: &[u8],
    ) -> bool {
        self.method(1, 60, 40, &[&[0, 0], &short(exchange), &short_bytes(key), &[0]]);
        let mut header = vec![0, 60, 0, 0];
        header.extend(u64::try_from(body.len()).unwrap().to_be_bytes());
        header.extend(properties);
        self.frame(HEADER, 1, &header);
        if !body.is_empty() {
            self.frame(BODY, 1, body);
        }
        self.read_method() == Some((60, 80))
    }

    fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[&[u8]]) {
        let mut payload = class.to_be_bytes().to_vec();
        payload.extend(method.to_be_bytes());
        payload.extend(arguments.concat());
        self.frame(METHOD, channel, &payload);
    }

    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let mut frame = vec![kind];
        frame.extend(channel.to_be_bytes());
        frame.extend(length(payload));
        frame.extend(payload);
        frame.push(0xce);
        self.0.write_all(&frame).expect("the broker reads");
    }

    fn expect(&mut self, class: u16, method: u16) {
        assert_eq!(self.read_method(), Some((class, method)));
    }

    fn read_method(&mut self) -> Option<(u16, u16)> {
        loop {
            let mut head = [0; 7];
            self.0.read_exact(&mut head).ok()?;
            let length =
                usize::try_from(u32::from_be_bytes(head[3..7].try_into().unwrap())).unwrap();
            let mut payload = vec![0; length + 1];
            self.0.read_exact(&mut payload).ok()?;
            if head[0] == METHOD {
                let number = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
                return Some((number(0), number(2)));
            }
        }
    }
}

/// Property flags: content type, headers, delivery mode, message id, type.
pub(crate) const CONTENT_TYPE: u16 = 1 << 15;
pub(crate) const HEADERS: u16 = 1 << 13;
pub(crate) const DELIVERY_MODE: u16 = 1 << 12;
pub(crate) const TIMESTAMP: u16 = 1 << 6;
pub(crate) const MESSAGE_ID: u16 = 1 << 7;
pub(crate) const TYPE: u16 = 1 << 5;

/// Properties with a persistent delivery mode and a raw header table.
pub(crate) fn with_headers(raw_table: &[u8]) -> Vec<u8> {
    let mut out = (HEADERS | DELIVERY_MODE).to_be_bytes().to_vec();
    out.extend(table(raw_table));
    out.push(2);
    out
}

pub(crate) fn short(text: &str) -> Vec<u8> {
    short_bytes(text.as_bytes())
}

pub(crate) fn short_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(bytes.len()).unwrap()];
    out.extend(bytes);
    out
}

pub(crate) fn long(bytes: &[u8]) -> Vec<u8> {
    let mut out = length(bytes).to_vec();
    out.extend(bytes);
    out
}

pub(crate) fn table(raw: &[u8]) -> Vec<u8> {
    long(raw)
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap().to_be_bytes()
}
