//! A broker killed seconds after a queue was declared may never serve that queue again (seen with
//! RabbitMQ 3.10.8: no confirm, no answer to consume, also after another restart). Nothing is lost by
//! it: the other tools go on, and once an operator has deleted the queue everything ends.

use super::stage::Stage;
use crate::support::eventually;
use crate::support::management::delete_queue;
use crate::support::servers::{Ending, Server, Servers};

#[tokio::test]
async fn a_queue_that_its_broker_has_broken_costs_no_operation_once_it_is_deleted() {
    let mut servers = Servers::start().await;
    let stage = Stage::on(servers.world().await).await;
    let roles = stage.run("relay,worker,maintain", &[]);
    stage.round("before").await;
    servers.restart(Server::Rabbit, Ending::Abrupt).await;
    let three = stage.three("after");
    stage.history.publish_at_last(&stage.world.database, &three).await;
    eventually("the tool whose queue is whole goes on", 60, async || {
        let ended =
            stage.world.count("select count(*) from oncebox.operations where status = 'applied'");
        (ended.await > 3).then_some(())
    })
    .await;
    for tool in ["tickets.create", "mail.send"] {
        let queue = format!("{}oncebox.{tool}", stage.world.prefix);
        delete_queue(&servers.variable("RABBITMQ_API"), &queue).await;
    }
    let report = stage.end(vec![roles]).await;
    assert_eq!(report.by_ending.get("applied"), Some(&6));
}
