//! A database role of one test, cluster-wide like every role, and gone with it.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Executor as _};
use std::str::FromStr as _;
use uuid::Uuid;

use super::world::World;

/// A login role; drop it before its world.
pub(crate) struct Login {
    pub(crate) name: String,
    database: String,
}

impl Login {
    /// A role that may log in, with the membership that `more` grants: `in role oncebox_publisher`.
    pub(crate) async fn new(world: &World, more: &str) -> Self {
        let name = format!("it_role_{}", Uuid::now_v7().simple());
        let create = format!("create role {name} login password 'it' {more}");
        world.connect().await.execute(sqlx::AssertSqlSafe(create)).await.unwrap();
        Self { name, database: world.database.clone() }
    }

    /// A connection as this role.
    pub(crate) async fn connect(&self) -> PgConnection {
        let options = PgConnectOptions::from_str(&self.database).unwrap();
        PgConnection::connect_with(&options.username(&self.name).password("it")).await.unwrap()
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        let (name, database) = (self.name.clone(), self.database.clone());
        let gone = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                if let Ok(mut connection) = PgConnection::connect(&database).await {
                    let drop = format!("drop owned by {name} cascade; drop role {name}");
                    connection.execute(sqlx::AssertSqlSafe(drop)).await.ok();
                }
            });
        });
        gone.join().ok();
    }
}
