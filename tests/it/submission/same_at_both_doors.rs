//! Both doors say the same: the envelope field by field, the operation key, what is refused as a key.

use oncebox::domain::key::{KeyPolicy, OperationKey, shape};
use oncebox::domain::lifecycle::State;
use oncebox::domain::outcome::{Asked, Envelope};
use oncebox::domain::reason::Reason;
use oncebox::store::{self, Which};
use serde_json::Value;
use sqlx::{Executor as _, PgConnection};

use super::{OTHER, asking, refund, world};
use crate::support::doors::{Door, force};

fn seconds(envelope: &mut Value) -> Option<i64> {
    envelope["retry_after_seconds"].take().as_i64()
}

fn same(what: &str, mut rust: Value, mut sql: Value) {
    let names =
        |envelope: &Value| envelope.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&rust), names(&sql), "{what}: the members and their order");
    match (seconds(&mut rust), seconds(&mut sql)) {
        // Asked one after the other, on a busy machine.
        (Some(a), Some(b)) => assert!((a - b).abs() <= 20, "{what}: {a} {b}"),
        (a, b) => assert_eq!(a, b, "{what}"),
    }
    assert_eq!(rust, sql, "{what}");
}

#[tokio::test]
async fn the_two_tables_of_labels_agree_for_every_state_reason_and_time() {
    let world = world().await;
    world.submit(&refund(&world, "s1")).await.unwrap();
    let mut connection = world.connect().await;
    let which = Which::Key { tenant: "acme".into(), key: "acme:test:run:s1".into() };
    let reasons = || std::iter::once(None).chain(Reason::ALL.iter().copied().map(Some));
    for state in State::ALL {
        for (reason, sent) in reasons().flat_map(|reason| [(reason, false), (reason, true)]) {
            force(&world, "s1", state, reason, sent).await;
            for due in ["- interval '1 day'", "+ interval '90 seconds'", "+ interval '2 days'"] {
                let moved =
                    format!("update oncebox.operations set due_at = clock_timestamp() {due}");
                connection.execute(sqlx::AssertSqlSafe(moved)).await.unwrap();
                let (told, refused): (String, String) = sqlx::query_as(
                    "select oncebox.submission_envelope(o, false)::text, oncebox.submission_envelope(o, true)::text from oncebox.operations o",
                )
                .fetch_one(&mut connection)
                .await
                .unwrap();
                let loaded = store::look(&mut connection, &which).await.unwrap().unwrap();
                let record = &loaded.operation;
                let rust = Envelope::of(record, Asked::BySubmission, loaded.now).without_response();
                let what = format!("{state:?} {reason:?} sent {sent} due {due}");
                same(
                    &what,
                    serde_json::to_value(rust).unwrap(),
                    serde_json::from_str(&told).unwrap(),
                );
                let rust = serde_json::to_value(Envelope::mismatch(record)).unwrap();
                same(&what, rust, serde_json::from_str(&refused).unwrap());
            }
        }
    }
}

#[tokio::test]
async fn the_doors_themselves_agree_in_every_state() {
    let world = world().await;
    world.submit(&refund(&world, "s1")).await.unwrap();
    let mut connection = world.connect().await;
    for state in State::ALL {
        for (reason, sent) in
            [(None, false), (Some(Reason::Conflict), true), (Some(Reason::SuspectedTwin), false)]
        {
            force(&world, "s1", state, reason, sent).await;
            for submission in [refund(&world, "s1"), asking(&world, "s1", OTHER)] {
                let mut told = Vec::new();
                for door in Door::BOTH {
                    // Rolled back: a reopening by one door must not change what the other meets.
                    connection.execute("begin").await.unwrap();
                    told.push(door.ask(&mut connection, &submission).await.unwrap());
                    connection.execute("rollback").await.unwrap();
                }
                let sql = told.pop().unwrap();
                same(&format!("{state:?} {reason:?} {sent}"), told.pop().unwrap(), sql);
            }
        }
    }
}

/// A generator that gives the same parts each time (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn part(&mut self) -> String {
        (0..self.roll(5)).map(|_| PIECES[self.roll(PIECES.len())]).collect()
    }
}

/// What parts are made of: separators, escapes, controls, secrets and their near misses, addresses.
const PIECES: &[&str] = &[
    "a",
    "Z",
    "7",
    "_",
    "-",
    ".",
    "/",
    " ",
    "  ",
    ":",
    "%",
    "%25",
    "%3A",
    "%3a",
    "%%",
    "::",
    "\\",
    "'",
    "\"",
    "$1",
    "{}",
    "\u{1}",
    "\t",
    "\n",
    "\r",
    "\u{1f}",
    "\u{7f}",
    "\u{80}",
    "\u{85}",
    "\u{9f}",
    "\u{a0}",
    "\u{ad}",
    "\u{200b}",
    "\u{2028}",
    "é",
    "e\u{301}",
    "ß",
    "İ",
    "ı",
    "ſ",
    "K",
    "漢字",
    "🦀",
    "\u{feff}",
    "\u{fffd}",
    "\u{10ffff}",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "SK_LIVE_",
    "task_live_x",
    "sk_live_é",
    "whsec_",
    "whsec_+",
    "Bearer ",
    "bearer ",
    "BEARER  ",
    "Bearer\u{a0}",
    "abcdefghijklmnop",
    "eyJ",
    "eyJhbGciOi.J9.x",
    "eyJ.a.",
    "eyJa_b-c.d.",
    "ghp_",
    "ghx_",
    "ghu_",
    "ghs_a",
    "ghr_",
    "gho_1",
    "github_pat_",
    "AKIA",
    "ASIA",
    "ABCDEFGHIJKLMNOP",
    "0123456789ABCDEF",
    "xoxb-",
    "xoxz-",
    "xoxp-1",
    "-----BEGIN",
    "-----begin",
    "@",
    "%40",
    "a@b",
    "a@b.co",
    "a@b.c0",
    "a@1.2.3",
    "x@y..zz",
    " @b.co",
    "@@b.co",
    "a%40b.com",
    "a@b.é日",
    "ä@ö.üß",
    "node@10.0.0.1",
    "run",
    "step",
    "record_issue",
    "2026-08-19",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ééééééééééééééééééééééééé",
];

const NAMES: &[&str] = &[
    "acme",
    "a",
    "0",
    "a_b-c",
    "-a",
    "_a",
    "A",
    "acmE",
    "ac me",
    "ac:me",
    "é",
    "",
    "acme\n",
    "acme ",
    "ac%6de",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ſ",
    "a\u{301}",
    "sk_live_1",
    "xoxb-1",
];

/// What SQL makes of each: the key, or `refused PART`.
async fn by_sql(connection: &mut PgConnection, all: &[[String; 4]]) -> Vec<String> {
    connection
        .execute(
            "create or replace function pg_temp.try_key(a text, b text, c text, d text) returns text language plpgsql as $$ \
             begin return oncebox.operation_key(a, b, c, d); \
             exception when invalid_parameter_value then return 'refused ' || split_part(sqlerrm, ' ', 2); end $$",
        )
        .await
        .unwrap();
    let column = |n: usize| all.iter().map(|parts| parts[n].clone()).collect::<Vec<_>>();
    sqlx::query_scalar(
        "select pg_temp.try_key(a, b, c, d) from unnest($1::text[], $2::text[], $3::text[], $4::text[]) with ordinality as p(a, b, c, d, n) order by n",
    )
    .bind(column(0))
    .bind(column(1))
    .bind(column(2))
    .bind(column(3))
    .fetch_all(connection)
    .await
    .unwrap()
}

fn by_rust(parts: &[String; 4], policy: &KeyPolicy) -> String {
    let [tenant, environment, workflow, step] = parts;
    match OperationKey::new(tenant, environment, workflow, step, policy) {
        Ok(key) => key.as_str().to_owned(),
        Err(error) => format!("refused {}", error.part),
    }
}

#[tokio::test]
async fn keys_are_made_and_refused_alike() {
    let world = world().await;
    let mut connection = world.connect().await;
    let mut dice = Dice(0x6f6e_6365_626f_7821);
    let mut all: Vec<[String; 4]> = (0..6000)
        .map(|_| ["acme".to_owned(), "test".to_owned(), dice.part(), dice.part()])
        .collect();
    all.extend(NAMES.iter().flat_map(|name| {
        let ok = |text: &str| text.to_owned();
        [[ok(name), ok("test"), ok("run"), ok("s")], [ok("acme"), ok(name), ok("run"), ok("s")]]
    }));
    // Every byte length round the limit, with characters of one to four bytes.
    all.extend(
        ["a", "é", "漢", "🦀"].iter().flat_map(|c| {
            (45..=201).map(|n| ["acme".into(), "test".into(), c.repeat(n), "s".into()])
        }),
    );
    for refuse_email in [true, false] {
        let switch = format!(
            "update oncebox.settings set value = '{}' where name = 'key_allows_email'",
            if refuse_email { "off" } else { "on" }
        );
        connection.execute(sqlx::AssertSqlSafe(switch)).await.unwrap();
        let policy = KeyPolicy { refuse_email };
        let sql = by_sql(&mut connection, &all).await;
        let mut refused = 0;
        for (parts, sql) in all.iter().zip(&sql) {
            let rust = by_rust(parts, &policy);
            assert_eq!(&rust, sql, "{parts:?}");
            refused += usize::from(rust.starts_with("refused"));
        }
        assert!(refused > 500 && refused < all.len() - 500, "both kinds were tried: {refused}");
    }
}

#[tokio::test]
async fn a_setting_of_the_callers_session_changes_no_key() {
    let world = world().await;
    let mut connection = world.connect().await;
    let parts = ["eyJxyaz", "a.b", "\u{1}", "a:b%c", "x@yzz", "u001f"];
    let all: Vec<[String; 4]> = parts
        .iter()
        .map(|part| ["acme".into(), "test".into(), (*part).to_owned(), "s".into()])
        .collect();
    connection
        .execute("set standard_conforming_strings = off; set bytea_output = escape; set search_path = pg_temp; set transform_null_equals = on")
        .await
        .unwrap();
    let sql = by_sql(&mut connection, &all).await;
    let rust: Vec<_> = all.iter().map(|parts| by_rust(parts, &KeyPolicy::default())).collect();
    assert_eq!(rust, sql);
    let id: String = sqlx::query_scalar("select oncebox.new_id()::pg_catalog.text")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 7);
}

#[test]
fn the_sql_function_holds_every_shape_word_for_word() {
    let sql = include_str!("../../../migrations/0002_submit.sql");
    for shape in shape::SECRETS {
        assert!(sql.contains(&format!("'{}'", shape.posix)), "{}", shape.name);
    }
    assert!(sql.contains(&format!("'{}'", shape::EMAIL)));
}
