//! A ticket and mail service to aim oncebox at: the downstream of the demo and of the tests.
//!
//! It is a program of its own because what is tested is the boundary where knowledge is lost: it
//! counts its effects apart from its answers, so a test can ask what *happened* instead of what
//! was *said*. It deduplicates tickets on `Idempotency-Key` (not with `--no-dedup`) and mail never.
//!
//! | call | answers |
//! |---|---|
//! | `POST /tickets` `{queue, subject, body, reference?}`, optional headers `Idempotency-Key`, `X-Reference` | 201 `{ticket_id, status}`; 200 for a repeated key (with `idempotent-replayed: true`); 422 when the body differs; 400 |
//! | `GET /tickets?key=K`, `?reference=R`, `GET /tickets/ID` | 200 the ticket (the first, when there are several), or 404; unless told otherwise this look-up is authoritative |
//! | `POST /jobs`, as `POST /tickets` | 202 `{job_id}`; the ticket is made when the job ends, and only then counts; the same key: the same job; 201 the ticket when jobs take no time |
//! | `GET /jobs/ID` | 202 while it runs; 200 the ticket; 410 when it failed; 404 |
//! | `POST /mail` `{to, subject, body}`, optional header `X-Reference` | 200 `{message_id}` |
//! | `POST /v1/data/oncebox/allow` `{"input": {"actor": …, …}}` | 200 `{"result": true}` |
//! | `GET /queues/QUEUE/open` | 200 |
//! | `GET /tickets/ID/verified`, `GET /tickets/verified?key=K`, `?reference=R` | 200 when there is such a ticket, else 404 |
//! | `GET /effects` | `{total, by_key, requests, most_at_once}`; an effect counts under its `Idempotency-Key` (tickets), else its reference, else its subject |
//! | `GET /calls` | `{call: {subject: n}}`, every call counted as it arrived |
//! | `GET /jobs` | `{job: {key, state}}` |
//! | `GET /inputs` | the last inputs of the policy, oldest first |
//! | `POST /control` | adds a fault rule ([`faults::Rule`]) or carries out an order ([`control`]), such as `{"pause": true}` |
//! | `POST /reset` | removes all rules and settings and resumes; effects are never forgotten |
//!
//! With `--journal FILE` each effect is one line, on disk before anything is answered; a service
//! that was killed and started again with the same file goes on with what it had done. Jobs have a file of their own beside it, `FILE.jobs`, and start again.

mod service;
mod effects;
mod lookups;
mod job_calls;
mod policy;
mod control;
mod calls;
mod gauge;
mod faults;
mod answers;
mod ledger;
mod jobs;
mod journal;
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
    service.resume_jobs();
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
