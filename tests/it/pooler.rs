//! Behind PgBouncer every operation gets through in session mode; in transaction mode a PgBouncer that
//! loses prepared statements is refused by `doctor`, with the reason.
//!
//! Both run with the PgBouncer that the machine has (Debian 12: 1.18, which loses them). On a machine
//! without one there is nothing to hold; `.ci/run` installs it.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::downstream::{Downstream, tickets};
use crate::support::eventually;
use crate::support::process::{Process, oncebox};
use crate::support::world::World;

/// A PgBouncer before a test's database, with two server connections in transaction mode.
struct Pooler {
    _process: Process,
    directory: PathBuf,
    url: String,
}

impl Pooler {
    async fn before(world: &World, mode: &str, size: u32) -> Option<Self> {
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"];
        let program = program.into_iter().find(|path| PathBuf::from(path).exists())?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let rest = world.database.split_once("://").unwrap().1;
        let (login, place) = rest.rsplit_once('@').unwrap();
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let password =
            if password.is_empty() { String::new() } else { format!(" password='{password}'") };
        let (server, database) = place.split_once('/').unwrap();
        let (host, server_port) = server.split_once(':').unwrap_or((server, "5432"));
        let directory = std::env::temp_dir().join(format!("pooler-{database}"));
        std::fs::create_dir_all(&directory).unwrap();
        let readable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&directory, readable).unwrap();
        let settings = directory.join("pgbouncer.ini");
        std::fs::write(
            &settings,
            format!(
                "[databases]\n{database} = host={host} port={server_port} user={user}{password}\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 200\n\
                 ignore_startup_parameters = extra_float_digits\n"
            ),
        )
        .unwrap();
        // It refuses to run as root.
        let mut command = Command::new("setpriv");
        if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.arg(program).arg(&settings).stdin(Stdio::null()).stdout(Stdio::null());
        let process = Process::start(command);
        eventually("the pooler listens", 10, async || {
            TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        })
        .await;
        let url = format!("postgres://{login}@127.0.0.1:{port}/{database}");
        Some(Self { _process: process, directory, url })
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

#[tokio::test]
async fn a_pooler_that_loses_prepared_statements_is_refused_by_doctor() {
    let world = World::new().await;
    let Some(pooler) = Pooler::before(&world, "transaction", 2).await else { return };
    let looked = oncebox(&world, &["doctor"])
        .env("DATABASE_URL", &pooler.url)
        .env("ONCEBOX_DATABASE_LISTEN_URL", &world.database)
        .output()
        .unwrap();
    let said = [looked.stdout, looked.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let keeps = said.contains("a transaction pooler that keeps prepared statements");
    let refused = looked.status.code() == Some(1)
        && said.contains("loses prepared statements")
        && said.contains("1.21");
    assert!(keeps || refused, "{said}");
}

#[tokio::test]
async fn operations_get_through_a_pooler_in_session_mode() {
    let (world, downstream) = (World::new().await, Downstream::start());
    let Some(pooler) = Pooler::before(&world, "session", 40).await else { return };
    world.contract(&tickets(&downstream.url, "")).await;
    let through = |arguments: &[&str]| {
        let mut command = oncebox(&world, arguments);
        command
            .env("DATABASE_URL", &pooler.url)
            .env("ONCEBOX_DATABASE_LISTEN_URL", &world.database);
        command
    };
    let _roles: Vec<Process> = (0..2).map(|_| Process::start(through(&["run"]))).collect();
    for step in 0..50 {
        let arguments = format!(r#"{{"subject":"{step}","body":"text"}}"#);
        let step = format!("s{step}");
        world.submit(&world.submission("tickets.create", &step, &arguments)).await.unwrap();
    }
    world.settled(60).await;
    let applied = "select count(*) from oncebox.operations where status = 'applied'";
    assert_eq!(world.count(applied).await, 50);
    assert_eq!((downstream.total().await, downstream.most_per_key().await), (50, 1));
}
