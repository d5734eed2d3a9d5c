//! One HTTP request, written by hand: a test sees what really came back, or that nothing did.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Downstream;

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// 0: the connection ended without a status line.
    pub(crate) status: u16,
    /// Status line and header fields.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// One text member of the body.
    pub(crate) fn text(&self, member: &str) -> String {
        self.json()[member].as_str().unwrap_or_default().to_owned()
    }
}

impl Downstream {
    /// Asks the service as any client would; `headers` are whole lines without their end.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> Answer {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut lines = vec![
            format!("{method} {path} HTTP/1.1"),
            format!("host: {address}"),
            "connection: close".to_owned(),
            "content-type: application/json".to_owned(),
            format!("content-length: {}", body.len()),
        ];
        lines.extend(headers.iter().map(ToString::to_string));
        let request = format!("{}\r\n\r\n{body}", lines.join("\r\n"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A connection that is reset is an answer too: none.
        stream.read_to_end(&mut answer).await.ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        Answer { status: status.unwrap_or(0), head: head.to_owned(), body: body.to_owned() }
    }

    pub(super) async fn get(&self, path: &str) -> serde_json::Value {
        let answer = self.ask("GET", path, &[], "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }
}
