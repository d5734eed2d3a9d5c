//! Behind PgBouncer nothing changes: submissions at both doors, relays, workers, the sweep and
//! migrations share a few server connections. In transaction mode from version 1.21 on, which tracks
//! prepared statements; an older one in session mode.
//!
//! They run with the PgBouncer that is installed (Debian 12: 1.18, so in session mode), or with the one
//! that `PGBOUNCER` names. On a machine without one they say that they did not run.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr as _;
use std::time::Duration;

use oncebox::ingress::Publisher;
use oncebox::store::{self, DatabaseUrl, PublisherRole};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Executor as _};

use super::refund;
use crate::support::doors::Door;
use crate::support::downstream::{Downstream, tickets};
use crate::support::eventually;
use crate::support::process::{Process, oncebox};
use crate::support::world::World;

/// Operations in all, a hundred a transaction.
const OPERATIONS: usize = 2000;

/// A PgBouncer of its own before this test's database; it ends with its handle.
struct Bouncer {
    url: String,
    transactions: bool,
    directory: PathBuf,
    _process: Process,
}

impl Bouncer {
    /// `None`, and a printed line, where there is no PgBouncer.
    async fn before(world: &World) -> Option<Self> {
        let named = std::env::var_os("PGBOUNCER").map(PathBuf::from);
        let installed = || {
            let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].map(PathBuf::from);
            places.into_iter().find(|place| place.exists())
        };
        let Some(binary) = named.or_else(installed) else {
            println!("NOT RUN: no PgBouncer is installed, and PGBOUNCER names none");
            return None;
        };
        let version = Command::new(&binary).arg("--version").output().unwrap();
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let minor: u32 = version.split(['.', '\n']).nth(1).unwrap().parse().unwrap();
        let transactions = version.starts_with("PgBouncer 1.") && minor >= 21;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = PgConnectOptions::from_str(&world.database).unwrap();
        let directory = world.contracts.with_extension("bouncer");
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("pgbouncer.ini");
        // Two server connections for everybody is the harshest that still lets a submission wait
        // for another; in session mode every client needs one.
        let (mode, size) = if transactions { ("transaction", 2) } else { ("session", 100) };
        let as_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let settings = format!(
            "[databases]\n* = host={} port={} user={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 300\n\
             ignore_startup_parameters = extra_float_digits\n{}{}",
            server.get_host(),
            server.get_port(),
            server.get_username(),
            if transactions { "max_prepared_statements = 200\n" } else { "" },
            if as_root { "user = nobody\n" } else { "" },
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(binary);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        let process = Process::start(command);
        let (_, place) = world.database.split_once('@').unwrap();
        let (_, database) = place.split_once('/').unwrap();
        let url = format!("postgres://{}@127.0.0.1:{port}/{database}", server.get_username());
        eventually("PgBouncer answers", 20, async || PgConnection::connect(&url).await.ok()).await;
        println!("ran with {} in {mode} mode", version.lines().next().unwrap());
        Some(Self { url, transactions, directory, _process: process })
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// Four whole processes that know no other road to the database.
fn processes(world: &World, bouncer: &Bouncer) -> Vec<Process> {
    (0..4)
        .map(|_| {
            let mut command = oncebox(world, &["run", "--role", "relay,worker,maintain"]);
            command.env("DATABASE_URL", &bouncer.url).stdout(Stdio::null());
            if bouncer.transactions {
                // LISTEN needs a session of its own; without one the relay polls.
                command.env("ONCEBOX_DATABASE_LISTEN_URL", "off");
            }
            Process::start(command)
        })
        .collect()
}

async fn publish(world: &World, bouncer: &Bouncer, lane: usize) {
    let publisher = Publisher::default();
    let mut connection = PgConnection::connect(&bouncer.url).await.unwrap();
    for batch in 0..OPERATIONS / 400 {
        let step = |n: usize| refund(world, &format!("{lane}-{batch}-{n}"));
        connection.execute("begin").await.unwrap();
        if lane.is_multiple_of(2) {
            let list: Vec<_> = (0..100).map(step).collect();
            let told = publisher.submit_many(&mut connection, &list).await.unwrap();
            assert!(told.iter().all(Result::is_ok));
        } else {
            for n in 0..100 {
                Door::Sql.ask(&mut connection, &step(n)).await.unwrap();
            }
        }
        connection.execute("commit").await.unwrap();
        // A second submission on whatever server connection comes.
        connection.execute("begin").await.unwrap();
        for door in Door::BOTH {
            door.ask(&mut connection, &step(0)).await.unwrap();
        }
        connection.execute("commit").await.unwrap();
    }
}

#[tokio::test]
async fn four_processes_and_four_publishers_share_a_pool() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "twins: {hold: false}")).await;
    let Some(bouncer) = Bouncer::before(&world).await else { return };
    let mut running = processes(&world, &bouncer);
    let lanes = (0..4).map(|lane| publish(&world, &bouncer, lane));
    futures::future::join_all(lanes).await;
    world.settled(120).await;
    for process in &mut running {
        assert_eq!(process.stop(60), Some(0), "drains");
    }
    let applied = "select count(*) from oncebox.operations where status = 'applied'";
    assert_eq!(world.count(applied).await, i64::try_from(OPERATIONS).unwrap());
    assert_eq!(downstream.total().await, u64::try_from(OPERATIONS).unwrap());
    assert_eq!(downstream.most_per_key().await, 1);
}

#[tokio::test]
async fn migrations_race_through_a_pool_and_a_killed_one_leaves_no_lock() {
    let world = World::new().await;
    let Some(bouncer) = Bouncer::before(&world).await else { return };
    world.connect().await.execute("drop schema oncebox cascade").await.unwrap();
    let mut holder = world.connect().await;
    holder
        .execute("begin; select pg_advisory_xact_lock(hashtextextended('oncebox migrate', 0))")
        .await
        .unwrap();
    let mut command = oncebox(&world, &["migrate"]);
    command.env("DATABASE_URL", &bouncer.url).stdout(Stdio::null());
    let mut killed = Process::start(command);
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
    eventually("the migrator waits", 30, async || (world.count(waits).await == 1).then_some(()))
        .await;
    killed.kill();
    holder.execute("rollback").await.unwrap();
    let url = DatabaseUrl::new(&bouncer.url);
    let all = (0..8).map(|_| tokio::time::timeout(Duration::from_secs(60), store::migrate(&url)));
    let mut applied = 0;
    for told in futures::future::join_all(all).await {
        let told = told.expect("does not hang").unwrap();
        assert_eq!(told.publisher, PublisherRole::Ready);
        applied += told.versions.iter().filter(|(_, _, applied)| *applied).count();
    }
    let versions = world.count("select count(*) from oncebox.schema_migrations").await;
    assert!(
        i64::try_from(applied).unwrap() <= versions,
        "each version once (the killed one may have been first)"
    );
    let left = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())";
    eventually("no lock is left", 30, async || (world.count(left).await == 0).then_some(())).await;
}
