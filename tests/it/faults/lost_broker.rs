//! Losing every message in the broker loses no operation.

use std::process::Stdio;

use super::stage::Stage;
use crate::support::eventually;
use crate::support::process::oncebox;
use crate::support::servers::{Ending, Server, Servers};

#[tokio::test]
async fn a_broker_that_lost_all_its_data_costs_no_operation() {
    let mut servers = Servers::start().await;
    let stage = Stage::on(servers.world().await).await;
    let relay = stage.run("relay", &[]);
    for n in 0..20 {
        let three = stage.three(&format!("before-{n}"));
        stage.history.publish_at_last(&stage.world.database, &three).await;
    }
    eventually("every message is in the broker", 30, async || {
        let left = stage.world.count("select count(*) from oncebox.outbox").await;
        (left == 0).then_some(())
    })
    .await;
    servers.stop(Server::Rabbit, Ending::Abrupt).await;
    servers.empty_broker();
    // Transactions commit without a broker.
    for n in 0..5 {
        let three = stage.three(&format!("without-{n}"));
        stage.history.publish_at_last(&stage.world.database, &three).await;
    }
    servers.start_again(Server::Rabbit).await;
    let others = stage.run("worker,maintain", &[]);
    let mut republish = oncebox(&stage.world, &["republish", "--json"]);
    let said = republish.stderr(Stdio::inherit()).output().unwrap();
    assert!(said.status.success());
    println!("{}", String::from_utf8_lossy(&said.stdout).trim());
    let report = stage.end(vec![relay, others]).await;
    assert_eq!(report.by_ending.get("applied"), Some(&75));
}
