//! What RabbitMQ's management API says of queues.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// `guest:guest`, as `services.sh` leaves it.
const GUEST: &str = "Z3Vlc3Q6Z3Vlc3Q=";

/// Messages of the queues whose names begin with `prefix`: ready and unacknowledged ones together.
/// The API's counts are up to five seconds old; `None` while it has none.
pub(crate) async fn messages(api: &str, prefix: &str) -> Option<u64> {
    let queues: Value = serde_json::from_str(&ask(api, "GET", "queues").await?).ok()?;
    let ours = queues
        .as_array()?
        .iter()
        .filter(|queue| queue["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
    ours.map(|queue| queue["messages"].as_u64()).sum()
}

/// Deletes a queue of the default virtual host, as an operator would.
pub(crate) async fn delete_queue(api: &str, queue: &str) {
    ask(api, "DELETE", &format!("queues/%2F/{queue}")).await.expect("the API answers");
}

/// The answer's body.
async fn ask(api: &str, method: &str, call: &str) -> Option<String> {
    let place = api.strip_prefix("http://guest:guest@").expect("RABBITMQ_API of services.sh");
    let (host, path) = place.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).await.ok()?;
    // HTTP/1.0: an answer in one piece that ends with the connection.
    let request = format!(
        "{method} /{path}/{call} HTTP/1.0\r\nhost: {host}\r\nauthorization: Basic {GUEST}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}
