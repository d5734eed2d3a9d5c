//! A tool that holds no twins pays nothing for them: no digest, no row, no statement.

use sqlx::Executor as _;

use super::Stage;
use crate::support::doors::Door;

/// Every statement on `twins` of any connection leaves its mark.
const COUNTED: &str = "create table public.touched (n int); \
    create function public.touch() returns trigger language plpgsql as $$ begin insert into public.touched values (1); return null; end $$; \
    create trigger touch before insert or update or delete on oncebox.twins for each statement execute function public.touch()";

async fn life(stage: &Stage) {
    stage.execute(COUNTED).await;
    let roles = stage.run();
    for (step, door) in [("a", Door::Rust), ("b", Door::Sql)] {
        stage.through(door, &stage.asking(step, "s")).await;
    }
    stage.world.settled(20).await;
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_and_nothing_is_asked() {
    let stage = Stage::new(|contract| contract.more("twins: {hold: false}")).await;
    life(&stage).await;
    let digests = "select count(*) from oncebox.operations where twin_digest is not null";
    assert_eq!(stage.world.count(digests).await, 0);
    assert_eq!(stage.world.count("select count(*) from public.touched").await, 0);
    assert_eq!(stage.downstream.total().await, 2);
}

/// The same count sees a tool that holds them; and nothing is left when all have ended.
#[tokio::test(flavor = "multi_thread")]
async fn who_holds_them_leaves_nothing_behind() {
    let stage = Stage::new(|contract| contract).await;
    life(&stage).await;
    assert!(stage.world.count("select count(*) from public.touched").await > 0);
    let digests = "select count(*) from oncebox.operations where twin_digest is not null";
    assert_eq!(stage.world.count(digests).await, 2);
    assert_eq!(stage.world.count("select count(*) from oncebox.twins").await, 0);
}

/// What a contract that is silent means, by its class.
#[tokio::test(flavor = "multi_thread")]
async fn classes_that_hold_them_by_default() {
    for (class, holds) in [("key_based", true), ("irreversible", true), ("append", false)] {
        let stage = Stage::new(|contract| contract.effect_class(class)).await;
        stage.submit("a").await;
        let digest = "select count(*) from oncebox.operations where twin_digest is not null";
        assert_eq!(stage.world.count(digest).await, i64::from(holds), "{class}");
        let mut connection = stage.world.connect().await;
        connection.execute("truncate oncebox.operations, oncebox.outbox").await.unwrap();
    }
}
