//! A test's own servers can be stopped, paused and emptied, and nothing of them is left afterwards.

use std::path::Path;

use sqlx::{Connection as _, PgConnection};

use crate::support::eventually;
use crate::support::servers::{Ending, Server, Servers};

#[tokio::test]
async fn own_servers_come_back_with_their_data_and_end_with_the_test() {
    let mut servers = Servers::start().await;
    let world = servers.world().await;
    servers.restart(Server::Postgres, Ending::Abrupt).await;
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 0);
    servers.stop(Server::Rabbit, Ending::Abrupt).await;
    servers.empty_broker();
    servers.start_again(Server::Rabbit).await;
    servers.pause(Server::Postgres);
    let frozen = std::time::Duration::from_millis(300);
    let asked = tokio::time::timeout(frozen, PgConnection::connect(&world.database)).await;
    assert!(asked.is_err(), "a paused server answers nothing");
    servers.resume(Server::Postgres);
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 0);
    let processes = ["POSTGRES_PID", "RABBITMQ_PID"].map(|name| servers.variable(name));
    drop(world);
    drop(servers);
    for process in processes {
        // Its parent may take a moment to hear of its end.
        eventually("the process is gone", 10, async || gone(&process).then_some(())).await;
    }
}

/// Whether a process has ended, heard of by its parent or not.
fn gone(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    stat.map_or(true, |stat| {
        stat.rsplit_once(')').is_some_and(|(_, state)| state.trim_start().starts_with('Z'))
    })
}
