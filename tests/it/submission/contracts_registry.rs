//! The registry keeps every contract version for ever. The first version of a tool is current until
//! somebody says otherwise; a version is never overwritten; a worker whose file has another material
//! part under a registered version does not serve that tool, and serves the others.

use std::time::Duration;

use oncebox::contract_file;
use oncebox::store::{self, DatabaseUrl, Link};

use super::{NOWHERE, asking, refund};
use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::world::World;

fn link(world: &World) -> Link {
    Link::new(&DatabaseUrl::new(&world.database), "test", Duration::from_secs(30))
}

async fn current(world: &World) -> Vec<String> {
    sqlx::query_scalar("select tool_version from oncebox.contracts where is_current")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap()
}

async fn register(world: &World, version: &str, text: &str, digest: &str) -> store::Registered {
    let (version, text, digest) = (version.to_owned(), text.to_owned(), digest.to_owned());
    link(world)
        .transaction(async move |connection| {
            store::register(
                connection,
                "tickets.create",
                &version,
                &text,
                &digest,
                store::Immaterial::default(),
            )
            .await
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn the_first_version_becomes_current_and_the_next_does_not() {
    let world = World::new().await;
    assert!(register(&world, "1", "one", "d1").await.current);
    assert!(!register(&world, "2", "two", "d2").await.current);
    assert_eq!(current(&world).await, ["1"]);
}

#[tokio::test]
async fn a_registered_version_is_never_overwritten() {
    let world = World::new().await;
    let first = register(&world, "1", "one", "d1").await;
    assert_eq!(register(&world, "1", "another text", "d9").await, first);
    assert_eq!(world.count("select count(*) from oncebox.contracts").await, 1);
}

#[tokio::test]
async fn workers_that_start_at_once_agree_on_the_first() {
    let world = World::new().await;
    let versions: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    let all = versions.iter().map(|version| register(&world, version, version, version));
    let registered = futures::future::join_all(all).await;
    assert_eq!(registered.iter().filter(|registered| registered.current).count(), 1);
    assert_eq!(current(&world).await.len(), 1);
    assert_eq!(world.count("select count(*) from oncebox.contracts").await, 12);
    // The same version with different texts: one of them stands, for all.
    let texts: Vec<String> = (0..12).map(|n| format!("text {n}")).collect();
    let all = texts.iter().map(|text| register(&world, "same", text, text));
    let mut registered = futures::future::join_all(all).await;
    registered.dedup();
    assert_eq!(registered.len(), 1);
}

#[tokio::test]
async fn activate_moves_the_one_mark_and_knows_registered_versions_only() {
    let world = World::new().await;
    for version in ["1", "2", "3"] {
        register(&world, version, version, version).await;
    }
    let all = ["2", "3", "2", "1", "3", "2"].map(|version| {
        let world = &world;
        async move {
            link(world)
                .transaction(async move |connection| {
                    store::activate(connection, "tickets.create", version).await
                })
                .await
                .unwrap()
        }
    });
    assert!(futures::future::join_all(all).await.into_iter().all(|known| known));
    assert_eq!(current(&world).await.len(), 1);
    let activate = async |version: &'static str| {
        link(&world)
            .transaction(async move |connection| {
                store::activate(connection, "tickets.create", version).await
            })
            .await
            .unwrap()
    };
    assert!(activate("2").await);
    assert_eq!(current(&world).await, ["2"]);
    assert!(!activate("9").await);
    assert_eq!(current(&world).await, ["2"], "an unknown version changes nothing");
}

#[tokio::test]
async fn a_changed_material_part_leaves_its_tool_unserved_and_the_others_run() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    world.contract(&mails(&downstream.url, "")).await;
    // The file changed and its version did not.
    let changed =
        tickets(&downstream.url, "").replace("fields: [/subject, /body]", "fields: [/subject]");
    std::fs::write(world.contracts.join("tickets.create@1.yaml"), &changed).unwrap();
    let roles = world.run("relay,worker,maintain");
    world.submit(&refund(&world, "ticket")).await.unwrap();
    world
        .submit(&world.submission("mail.send", "mail", r#"{"to":"a","subject":"b"}"#))
        .await
        .unwrap();
    crate::support::eventually("the mail is sent", 30, async || {
        (world.status("mail").await.0 == "applied").then_some(())
    })
    .await;
    let served: Vec<String> = sqlx::query_scalar("select tool_name from oncebox.workers")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap();
    assert_eq!(served, ["mail.send"]);
    roles.stop().await;
    assert_eq!(world.status("ticket").await.0, "pending");
    assert_eq!(downstream.total().await, 1);
    // The registered text still stands, and submissions are compared under it.
    let other = world.submit(&asking(&world, "ticket", super::OTHER)).await.unwrap();
    assert_eq!(other.reason, Some("operation_key_reused_with_different_request"));
}

#[tokio::test]
async fn a_changed_word_beside_the_material_part_is_served() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let reworded = tickets(&downstream.url, "").replace("purpose: Create", "purpose: Make");
    std::fs::write(world.contracts.join("tickets.create@1.yaml"), &reworded).unwrap();
    let roles = world.run("relay,worker,maintain");
    world.submit(&refund(&world, "s1")).await.unwrap();
    world.settled(30).await;
    roles.stop().await;
    assert_eq!(world.status("s1").await.0, "applied");
    let text: String = sqlx::query_scalar("select contract_text from oncebox.contracts")
        .fetch_one(&mut world.connect().await)
        .await
        .unwrap();
    assert!(text.contains("purpose: Create"), "the registry keeps the first text");
}

#[tokio::test]
async fn a_registered_contract_that_cannot_be_read_refuses_its_own_submissions_only() {
    let world = super::world().await;
    let text = mails(NOWHERE, "");
    let read = contract_file::read(&text, Duration::from_secs(5)).unwrap();
    sqlx::query("insert into oncebox.contracts values ('mail.send', '1', 'from: a later release', $1, true)")
        .bind(read.material_digest())
        .execute(&mut world.connect().await)
        .await
        .unwrap();
    // A record by SQL, which reads no contracts; then a list that meets it.
    let mail = world.submission("mail.send", "mail", r#"{"to":"a","subject":"b"}"#);
    crate::support::doors::Door::Sql.submit(&world, &mail).await.unwrap();
    let mut connection = world.connect().await;
    let list = [mail, refund(&world, "s1")];
    let told =
        oncebox::ingress::Publisher::default().submit_many(&mut connection, &list).await.unwrap();
    assert!(told[0].as_ref().unwrap_err().to_string().contains("cannot be read by this release"));
    assert!(told[1].is_ok());
}
