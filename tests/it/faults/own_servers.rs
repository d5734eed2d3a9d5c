//! A test's own servers can be stopped, paused and emptied, and nothing of them is left afterwards.

use std::path::Path;

use sqlx::{Connection as _, PgConnection};

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
        assert!(!Path::new("/proc").join(&process).exists(), "process {process} is still there");
    }
}
