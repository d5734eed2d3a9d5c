//! What the broker says of itself before anybody logs in. The client library keeps it to itself.
//!
//! The first frame of a connection is `connection.start` with the server's properties (AMQP 0-9-1,
//! section 1.4.2.1). Only texts at the top of that table are read.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use lapin::uri::AMQPScheme;
use rustls::pki_types::ServerName;

use super::{BrokerError, BrokerSettings, socket};

/// Larger than any `connection.start`: brokers announce some hundred bytes.
const MAX_FRAME_BYTES: usize = 16 * 1024;

/// The broker's product and version, such as ("RabbitMQ", "4.0.5"); empty where it does not tell.
///
/// # Errors
/// It cannot be reached, or does not speak AMQP 0-9-1.
pub async fn broker_version(settings: &BrokerSettings) -> Result<(String, String), BrokerError> {
    let uri = settings.url.parse(settings.heartbeat)?;
    super::connection::install_crypto_provider();
    let asked = timeout(settings.connect_timeout, async {
        let host = uri.authority.host.as_str();
        let stream = TcpStream::connect((host, uri.authority.port)).await?;
        match uri.scheme {
            AMQPScheme::AMQP => first_frame(stream).await,
            AMQPScheme::AMQPS => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                first_frame(socket::tls_connector()?.connect(name, stream).await?).await
            }
        }
    });
    let failed = |reason: String| BrokerError::Connect { reason };
    let frame = match asked.await {
        Ok(frame) => frame.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("no answer within {:?}", settings.connect_timeout))),
    };
    let told = properties(&frame).ok_or_else(|| failed("no AMQP 0-9-1 is spoken there".into()))?;
    let property = |wanted: &str| {
        let found = told.iter().find(|(name, _)| name == wanted);
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    };
    Ok((property("product"), property("version")))
}

async fn first_frame(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Vec<u8>> {
    stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
    stream.flush().await?;
    // Type, channel, and the size of what follows.
    let mut head = [0; 7];
    stream.read_exact(&mut head).await?;
    let [_, _, _, size @ ..] = head;
    let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
    let mut payload = vec![0; size.min(MAX_FRAME_BYTES)];
    stream.read_exact(&mut payload).await?;
    Ok(payload)
}

/// The texts of the server's properties; `None`: this is no `connection.start`.
fn properties(payload: &[u8]) -> Option<Vec<(String, String)>> {
    // Class 10, method 10, protocol version 0-9.
    let rest = payload.strip_prefix(&[0, 10, 0, 10, 0, 9])?;
    let (mut table, _) = long(rest)?;
    let mut texts = Vec::new();
    while let Some((&length, rest)) = table.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(length))?;
        let (&kind, rest) = rest.split_first()?;
        table = match kind {
            b'S' | b'F' => {
                let (value, rest) = long(rest)?;
                if kind == b'S' {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    texts.push((text(name), text(value)));
                }
                rest
            }
            b't' => rest.split_first()?.1,
            // A kind whose size is not known here: what was read so far has to do.
            _ => break,
        };
    }
    Some(texts)
}

/// Bytes behind their length of four bytes, and what follows.
fn long(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_text(text: &[u8]) -> Vec<u8> {
        [&u32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
    }

    fn entry(name: &str, kind: u8, value: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        [&[length], name.as_bytes(), &[kind], value].concat()
    }

    #[test]
    fn texts_of_the_servers_properties_are_found() {
        let capabilities = entry("basic.nack", b't', &[1]);
        let table = [
            entry("capabilities", b'F', &long_text(&capabilities)),
            entry("product", b'S', &long_text(b"RabbitMQ")),
            entry("flag", b't', &[0]),
            entry("version", b'S', &long_text(b"3.10.8")),
        ]
        .concat();
        let start = [&[0, 10, 0, 10, 0, 9][..], &long_text(&table), b"more"].concat();
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            properties(&start),
            Some(vec![text("product", "RabbitMQ"), text("version", "3.10.8")])
        );
        for cut in 0..start.len() - 4 {
            assert_eq!(properties(&start[..cut]), None, "{cut}");
        }
        assert_eq!(properties(b"HTTP/1.1 400 Bad Request"), None);
    }
}
