//! A publisher may call `oncebox.submit`, perhaps for some tenants only, and nothing else; nothing it
//! creates runs behind the door.

use sqlx::{Executor as _, PgConnection};

use oncebox::ingress::Submission;

use super::{REFUND, refund, world};
use crate::support::doors::Door;
use crate::support::login::Login;

async fn code(connection: &mut PgConnection, statement: &'static str) -> String {
    let refused = connection.execute(statement).await.unwrap_err();
    refused.as_database_error().and_then(|e| e.code()).unwrap_or_default().into_owned()
}

#[tokio::test]
async fn it_may_submit_and_has_no_other_right() {
    let world = world().await;
    let login = Login::new(&world, "in role oncebox_publisher").await;
    let mut connection = login.connect().await;
    let told = Door::Sql.ask(&mut connection, &refund(&world, "s1")).await.unwrap();
    assert_eq!(told["status"], "in_flight");
    for statement in [
        "select from oncebox.operations",
        "insert into oncebox.outbox select * from oncebox.outbox",
        "update oncebox.operations set status = 'applied'",
        "delete from oncebox.operations",
        "select from oncebox.publishers",
        "select oncebox.reopen_operation(null, null, null, null, null, null, null, null, null, null, null, null, null, null)",
        "select nextval('oncebox.order_numbers')",
        "create table oncebox.mine ()",
        "select oncebox.operation_key('a', 'b', 'c', 'd')",
    ] {
        assert_eq!(code(&mut connection, statement).await, "42501", "{statement}");
    }
    let functions: Vec<String> = sqlx::query_scalar(
        "select proname::text from pg_proc where pronamespace = 'oncebox'::regnamespace \
           and has_function_privilege('oncebox_publisher', oid, 'execute')",
    )
    .fetch_all(&mut world.connect().await)
    .await
    .unwrap();
    assert_eq!(functions, ["submit"]);
    let tables = world
        .count(
            "select count(*) from pg_class c where relnamespace = 'oncebox'::regnamespace and relkind in ('r', 'S', 'v') \
               and case when relkind = 'S' then has_sequence_privilege('oncebox_publisher', oid, 'usage, select, update') \
                   else has_table_privilege('oncebox_publisher', oid, 'select, insert, update, delete, truncate, references, trigger') end",
        )
        .await;
    assert_eq!(tables, 0);
}

#[tokio::test]
async fn a_role_outside_may_not_even_submit() {
    let world = world().await;
    let login = Login::new(&world, "").await;
    let refused =
        Door::Sql.ask(&mut login.connect().await, &refund(&world, "s1")).await.unwrap_err();
    assert_eq!(refused.code.as_deref(), Some("42501"));
}

#[tokio::test]
async fn a_role_with_tenants_submits_for_them_only() {
    let world = world().await;
    let (limited, free) = (
        Login::new(&world, "in role oncebox_publisher").await,
        Login::new(&world, "in role oncebox_publisher").await,
    );
    for tenant in ["acme", "beta"] {
        sqlx::query("insert into oncebox.publishers (role, tenant_id) values ($1::name, $2)")
            .bind(&limited.name)
            .bind(tenant)
            .execute(&mut world.connect().await)
            .await
            .unwrap();
    }
    let of = |tenant: &str| Submission { tenant: tenant.into(), ..refund(&world, "s1") };
    let (mut limited, mut free) = (limited.connect().await, free.connect().await);
    for tenant in ["acme", "beta"] {
        Door::Sql.ask(&mut limited, &of(tenant)).await.unwrap();
    }
    // A tenant that is not a well-formed name is somebody else's too.
    for tenant in ["gamma", "ACME", "", "acme "] {
        let refused = Door::Sql.ask(&mut limited, &of(tenant)).await.unwrap_err();
        assert_eq!(refused.code.as_deref(), Some("42501"), "{tenant:?}");
        assert!(refused.text.contains("oncebox.publishers"), "says what to do: {}", refused.text);
    }
    // What stands under a stranger's key is not told either.
    Door::Sql.ask(&mut free, &of("gamma")).await.unwrap();
    let refused = Door::Sql.ask(&mut limited, &of("gamma")).await.unwrap_err();
    assert!(!refused.text.contains("gamma"));
}

/// Everything that a name behind the door could be caught by: each writes down who it ran as.
const TRAPS: &str = r#"
create schema evil;
grant usage on schema evil to public;
create table evil.log (who name);
grant insert on evil.log to public;
create function evil.note() returns boolean language plpgsql as $$ begin insert into evil.log values (current_user); return true; end $$;
create function evil.note(anyelement) returns boolean language plpgsql as $$ begin insert into evil.log values (current_user); return true; end $$;
create function evil.texts(text, text) returns boolean language plpgsql as $$ begin insert into evil.log values (current_user); return true; end $$;
create operator evil.= (leftarg = text, rightarg = text, function = evil.texts);
create operator evil.~ (leftarg = text, rightarg = text, function = evil.texts);
create operator evil.!~ (leftarg = text, rightarg = text, function = evil.texts);
create function evil.octet_length(text) returns int language sql as $$ select case when evil.note() then 1 end $$;
create function evil.clock_timestamp() returns timestamptz language sql as $$ select case when evil.note() then pg_catalog.now() end $$;
create function evil.gen_random_uuid() returns pg_catalog.uuid language sql as $$ select case when evil.note() then '00000000-0000-7000-8000-000000000000'::pg_catalog.uuid end $$;
create function evil.replace(text, text, text) returns text language sql as $$ select case when evil.note() then $1 end $$;
create function evil.hashtextextended(text, bigint) returns bigint language sql as $$ select case when evil.note() then 1::bigint end $$;
create function evil.current_setting(text) returns text language sql as $$ select case when evil.note() then 'on' end $$;
create function evil.unnest(anyarray) returns setof anyelement language sql as $$ select null where evil.note() $$;
create temp table operations (operation_id pg_catalog.uuid, status text);
create temp table contracts (tool_name text, tool_version text, is_current boolean);
create temp table publishers (role name, tenant_id text);
create temp table settings (name text, value text);
create temp table outbox (id pg_catalog.uuid);
create domain pg_temp.uuid as pg_catalog.uuid check (evil.note(value));
create domain pg_temp.json as pg_catalog.json check (evil.note());
create domain pg_temp.text as pg_catalog.text check (evil.note(value));
create domain pg_temp.timestamptz as pg_catalog.timestamptz check (evil.note(value));
create domain pg_temp.int8 as pg_catalog.int8 check (evil.note(value));
create domain pg_temp.bytea as pg_catalog.bytea check (evil.note(value));
create domain evil.uuid as pg_catalog.uuid check (evil.note(value));
create domain evil.json as pg_catalog.json check (evil.note());
set search_path = pg_temp, evil, oncebox, pg_catalog;
"#;

#[tokio::test]
async fn nothing_that_it_creates_runs_as_the_owner() {
    let world = world().await;
    let login = Login::new(&world, "in role oncebox_publisher").await;
    let allow = format!(
        "do $$ begin execute format('grant create, temporary on database %I to {}', current_database()); end $$",
        login.name
    );
    world.connect().await.execute(sqlx::AssertSqlSafe(allow)).await.unwrap();
    let mut connection = login.connect().await;
    connection.execute(TRAPS).await.unwrap();
    let call = "select oncebox.submit('acme', 'test', 'run', $1::pg_catalog.text, 'tickets.create', null, $2::pg_catalog.text::pg_catalog.json, \
         'alice'::pg_catalog.text, '{}'::pg_catalog.json, 'order'::pg_catalog.text)::pg_catalog.text";
    for arguments in [REFUND, REFUND, super::OTHER] {
        let told: String = sqlx::query_scalar(call)
            .bind("s1")
            .bind(arguments)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert!(told.contains("operation_id"));
    }
    // The road that reopens.
    crate::support::doors::force(
        &world,
        "s1",
        oncebox::domain::lifecycle::State::Rejected,
        Some(oncebox::domain::reason::Reason::NotAuthorized),
        false,
    )
    .await;
    let told: String =
        sqlx::query_scalar(call).bind("s1").bind(REFUND).fetch_one(&mut connection).await.unwrap();
    assert!(told.contains("in_flight"));
    let ran_as: Vec<String> = sqlx::query_scalar("select distinct who::text from evil.log")
        .fetch_all(&mut world.connect().await)
        .await
        .unwrap();
    assert!(ran_as.iter().all(|who| *who == login.name), "ran as {ran_as:?}");
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 1);
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 2);
}
