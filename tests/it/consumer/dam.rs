//! A way to a server on which what clients send can be held back.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP way to a server that holds back what clients send while it is dammed.
pub(crate) struct Dam {
    pub(crate) address: std::net::SocketAddr,
    closed: watch::Sender<bool>,
}

impl Dam {
    pub(crate) async fn before(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closed = watch::Sender::new(false);
        let (target, gate) = (target.to_owned(), closed.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                tokio::spawn(pass(client, server, gate.clone()));
            }
        });
        Self { address, closed }
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn open(&self) {
        self.closed.send_replace(false);
    }
}

/// Ends with either side; what is held back when the client leaves is lost.
async fn pass(client: TcpStream, server: TcpStream, mut closed: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let forth = async {
        let mut held = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            tokio::select! {
                read = from_client.read(&mut buffer) => match read {
                    Ok(count @ 1..) => held.extend_from_slice(&buffer[..count]),
                    Ok(_) | Err(_) => return,
                },
                changed = closed.changed() => if changed.is_err() { return },
            }
            if !*closed.borrow() && to_server.write_all(&std::mem::take(&mut held)).await.is_err() {
                return;
            }
        }
    };
    let back = async {
        tokio::io::copy(&mut from_server, &mut to_client).await.ok();
    };
    tokio::select! { () = forth => {}, () = back => {} }
}
