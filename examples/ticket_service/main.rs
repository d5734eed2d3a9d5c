//! A ticket and mail service to aim oncebox at: the downstream of the demo and of the tests.
//!
//! It is a program of its own because what is tested is the boundary where knowledge is lost: it
//! counts its effects apart from its answers, so a test can ask what *happened* instead of what
//! was *said*. It deduplicates tickets on `Idempotency-Key` (not with `--no-dedup`) and mail never.
//!
//! | call | answers |
//! |---|---|
//! | `POST /tickets` `{queue, subject, body}`, header `Idempotency-Key` | 201 `{ticket_id, status}`; 200 for a repeated key (with `idempotent-replayed: true`); 422 when the body differs; 400 |
//! | `GET /tickets?key=K` | 200 the ticket, or 404; this look-up is authoritative |
//! | `POST /mail` `{to, subject, body}`, optional header `X-Reference` | 200 `{message_id}` |
//! | `GET /effects` | `{total, by_key, requests, most_at_once}`; a mail counts under its reference, else its subject |
//! | `POST /control` | adds a fault rule (see [`faults::Rule`]), or pauses with `{"pause": true}` |
//! | `POST /reset` | removes all rules and resumes; effects are never forgotten |
//!
//! With `--journal FILE` each effect is one line, on disk before anything is answered; a service
//! that was killed and started again with the same file goes on with what it had done.

mod faults;
mod gauge;
mod journal;
mod ledger;
mod service;
mod wire;

use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::service::Service;
use crate::wire::Wire;

/// A ticket and mail service with its own effect counter and with faults to order.
#[derive(Parser)]
struct Flags {
    /// Address to listen on; port 0 takes a free one. The address in use is printed as one line.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Treat every call as a new effect, whatever its Idempotency-Key.
    #[arg(long)]
    no_dedup: bool,
    /// File that gets one line for each effect, and from which an earlier run is continued.
    #[arg(long)]
    journal: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    let service = Arc::new(Service::open(flags.journal.as_deref(), !flags.no_dedup)?);
    let listener = TcpListener::bind(flags.listen).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on http://{}", listener.local_addr()?)?;
    out.flush()?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, Arc::clone(&service)))),
            // Out of file descriptors, or a client that left at once: neither ends the service.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>) {
    let (wire, script) = Wire::new(stream);
    let answer = service_fn(move |request| {
        let (service, script) = (Arc::clone(&service), script.clone());
        // A task of its own: hyper drops the handler when the client hangs up, but a service does
        // not undo its work because nobody waits for the answer any more.
        async move { tokio::spawn(async move { service.handle(request, &script).await }).await }
    });
    // A connection that ends badly is what this program is for; there is nobody to tell.
    drop(http1::Builder::new().serve_connection(TokioIo::new(wire), answer).await);
}
