//! The database: can it be used at all, will it keep what it confirmed, what waits in it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Findings, Verdict};
use crate::domain::operation::Timestamp;
use crate::operator::Context;
use crate::operator::failure::chain;
use crate::store::{self, DatabaseUrl, Link, Pooling, PublisherRole, Server};

/// PostgreSQL 15: the oldest release this is tested with.
const OLDEST: i32 = 150_000;

/// A clock that is further off makes `not_before` and the ids of new operations misleading. Leases
/// do not care: they are judged by the database's clock alone.
const CLOCK_OFF: Duration = Duration::from_secs(2);

/// Above these, dead rows pile up and every scan of the outbox reads them.
const OLD_TRANSACTION_SECONDS: f64 = 300.0;
const OLD_SNAPSHOT: i64 = 1_000_000;

/// A relay takes due rows within a second; what is due for longer tells of a missing relay.
const LATE_SECONDS: f64 = 60.0;

/// Checks the database; answers whether its schema can be used.
pub(super) async fn check(context: &Context, findings: &mut Findings) -> bool {
    let url = &context.config.database.url;
    if !pooling(url, findings).await {
        return false;
    }
    listening(context, findings).await;
    let mut link = context.link();
    if !server(&mut link, findings).await || !schema(&mut link, findings).await {
        return false;
    }
    publisher(&mut link, findings).await;
    holders(&mut link, findings).await;
    waiting(&mut link, findings).await;
    true
}

async fn pooling(url: &DatabaseUrl, findings: &mut Findings) -> bool {
    let name = "database connection";
    let (verdict, seen, fix) = match store::pooling(url).await {
        Err(error) => (
            Verdict::Fail,
            chain(&error),
            "check DATABASE_URL, that the server runs, and behind PgBouncer that ignore_startup_parameters has extra_float_digits",
        ),
        Ok(Pooling::None) => (Verdict::Ok, format!("{} answers", url.masked()), ""),
        Ok(Pooling::Works) => {
            (Verdict::Ok, "a transaction pooler that keeps prepared statements".to_owned(), "")
        }
        Ok(Pooling::OneConnection) => (
            Verdict::Fail,
            "a pooler with one server connection".to_owned(),
            "raise its pool size: every loop of a role needs a connection of its own",
        ),
        Ok(Pooling::LosesStatements) => (
            Verdict::Fail,
            "a transaction pooler that loses prepared statements".to_owned(),
            "use PgBouncer 1.21 or newer with max_prepared_statements above 0, or connect directly",
        ),
    };
    findings.note(name, verdict, seen, fix);
    verdict != Verdict::Fail
}

/// Through a transaction pooler a notification reaches nobody, and the lock that asks for it would
/// stay with a connection that is not ours.
async fn listening(context: &Context, findings: &mut Findings) {
    let name = "LISTEN connection";
    let fix = "set ONCEBOX_DATABASE_LISTEN_URL to a direct connection, or to off: relays then poll";
    let Some(url) = &context.config.database.listen_url else {
        let seen = format!("off; relays poll every {:?}", context.config.relay.poll);
        return findings.note(name, Verdict::Ok, seen, "");
    };
    match store::pooling(url).await {
        Ok(Pooling::None) => findings.note(name, Verdict::Ok, "direct".to_owned(), ""),
        Ok(Pooling::Works | Pooling::LosesStatements | Pooling::OneConnection) => {
            findings.note(
                name,
                Verdict::Fail,
                "leads through a transaction pooler".to_owned(),
                fix,
            );
        }
        Err(error) => findings.note(name, Verdict::Fail, chain(&error), fix),
    }
}

async fn server(link: &mut Link, findings: &mut Findings) -> bool {
    let asked = local_clock();
    let server = match link.statement(async |c| store::server(c).await).await {
        Ok(server) => server,
        Err(error) => {
            let fix = "give this role the right to read settings";
            findings.note("server", Verdict::Fail, chain(&error), fix);
            return false;
        }
    };
    let answered = local_clock();
    settings(&server, findings);
    let (early, late) = (asked.since(server.now), server.now.since(answered));
    let off = early.max(late);
    let verdict = Verdict::first(&[(Verdict::Warn, off > CLOCK_OFF)]);
    let seen = format!("{} ms between this machine and the database", off.as_millis());
    findings.note(
        "clock",
        verdict,
        seen,
        "set both by NTP; leases follow the database's clock alone",
    );
    !server.in_recovery
}

fn settings(server: &Server, findings: &mut Findings) {
    let mut note = |check, bad: Option<Verdict>, seen: String, fix: &str| {
        findings.note(check, bad.unwrap_or(Verdict::Ok), seen, fix);
    };
    let when = |bad: bool, verdict| bad.then_some(verdict);
    note(
        "server version",
        when(server.version_number < OLDEST, Verdict::Fail),
        format!("PostgreSQL {}", server.version),
        "use PostgreSQL 15 or newer",
    );
    note(
        "writable",
        when(server.in_recovery || server.read_only, Verdict::Fail),
        format!("standby: {}, read only: {}", server.in_recovery, server.read_only),
        "connect to the primary, and leave default_transaction_read_only off for this role",
    );
    note(
        "fsync",
        when(!server.fsync, Verdict::Fail),
        on_off(server.fsync),
        "turn it on: a crash could undo what was confirmed, and an effect would be made twice",
    );
    note(
        "full_page_writes",
        when(!server.full_page_writes, Verdict::Warn),
        on_off(server.full_page_writes),
        "turn it on unless the file system writes pages whole",
    );
    let relaxed = matches!(server.synchronous_commit.as_str(), "off" | "local");
    note(
        "synchronous_commit",
        when(relaxed, Verdict::Warn),
        format!("{} by default", server.synchronous_commit),
        "oncebox commits durably all the same; your own rows of the same transaction then do too",
    );
    note(
        "isolation",
        when(server.isolation != "read committed", Verdict::Fail),
        format!("{} by default", server.isolation),
        "set default_transaction_isolation to 'read committed' for this role: a submission must see what it waited for",
    );
    note(
        "encoding",
        when(server.encoding != "UTF8", Verdict::Fail),
        server.encoding.clone(),
        "create the database with encoding UTF8",
    );
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

async fn schema(link: &mut Link, findings: &mut Findings) -> bool {
    let state = match link.statement(async |c| store::schema_state(c).await).await {
        Ok(state) => state,
        Err(error) => {
            let fix = "give this role usage on schema oncebox and select on its tables";
            findings.note("schema", Verdict::Fail, chain(&error), fix);
            return false;
        }
    };
    let applied = state.applied.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let seen = format!("version {applied}, this release has {}", state.release);
    let newer = state.applied.is_some_and(|version| version > state.release);
    let (verdict, fix) = if !state.differing.is_empty() {
        (
            Verdict::Fail,
            "an applied migration has another text than this release's: use the release that belongs to this database",
        )
    } else if !state.missing.is_empty() {
        (Verdict::Fail, "run `oncebox migrate`")
    } else {
        let verdict = Verdict::first(&[(Verdict::Warn, newer)]);
        (verdict, "a newer release has migrated it; bring this one up to date")
    };
    findings.note("schema", verdict, seen, fix);
    if verdict == Verdict::Fail {
        return false;
    }
    match link.statement(async |c| store::missing_rights(c).await).await {
        Ok(missing) => {
            let verdict = Verdict::first(&[(Verdict::Fail, !missing.is_empty())]);
            let seen = if missing.is_empty() {
                "enough for every role".to_owned()
            } else {
                format!("missing: {}", missing.join(", "))
            };
            findings.note("rights", verdict, seen, "grant them to the role in DATABASE_URL");
            verdict == Verdict::Ok
        }
        Err(error) => {
            let fix = "give this role usage on schema oncebox";
            findings.note("rights", Verdict::Fail, chain(&error), fix);
            false
        }
    }
}

async fn publisher(link: &mut Link, findings: &mut Findings) {
    let name = "role oncebox_publisher";
    match link.statement(async |c| store::publisher_role(c).await).await {
        Ok(Some(true)) => {
            findings.note(name, Verdict::Ok, "may call oncebox.submit".to_owned(), "")
        }
        Ok(Some(false)) => {
            let seen = "may not call oncebox.submit".to_owned();
            findings.note(name, Verdict::Warn, seen, "run `oncebox migrate` again");
        }
        Ok(None) => {
            let fix = format!(
                "applications that publish with SQL need it; as a role with CREATEROLE: {} then `oncebox migrate`",
                PublisherRole::STATEMENT
            );
            findings.note(name, Verdict::Warn, "missing".to_owned(), &fix);
        }
        Err(error) => findings.note(name, Verdict::Warn, chain(&error), "run doctor again"),
    }
}

async fn holders(link: &mut Link, findings: &mut Findings) {
    let name = "old transactions";
    match link.statement(async |c| store::holders(c).await).await {
        Ok(held) => {
            let whose = held.whose.map(|whose| format!(" ({whose})")).unwrap_or_default();
            let seen = format!(
                "oldest {:.0} s{whose}, oldest snapshot {} transactions back, {} prepared",
                held.oldest_transaction, held.oldest_snapshot, held.prepared
            );
            let old = held.oldest_transaction > OLD_TRANSACTION_SECONDS
                || held.oldest_snapshot > OLD_SNAPSHOT
                || held.prepared > 0;
            let fix = "end it: dead rows stay while it is open, and the outbox grows slow";
            findings.note(name, Verdict::first(&[(Verdict::Warn, old)]), seen, fix);
        }
        Err(error) => findings.note(name, Verdict::Warn, chain(&error), "run doctor again"),
    }
}

async fn waiting(link: &mut Link, findings: &mut Findings) {
    let backlog = match link.statement(async |c| store::backlog(c).await).await {
        Ok(backlog) => backlog,
        Err(error) => {
            return findings.note("backlog", Verdict::Warn, chain(&error), "run doctor again");
        }
    };
    let seen = format!(
        "{} messages, oldest due for {:.0} s, {} tried without a confirm",
        backlog.outbox, backlog.oldest_due, backlog.unconfirmed
    );
    let late = Verdict::first(&[(Verdict::Warn, backlog.oldest_due > LATE_SECONDS)]);
    let fix = "start a relay, or more workers if their queue is full; column last_error of oncebox.outbox says what the broker answered";
    findings.note("outbox", late, seen, fix);
    let counted = [
        ("dead letters", backlog.dead_letters, "`oncebox dead list` shows them"),
        ("unknown operations", backlog.unknown, "`oncebox ops list --status unknown` shows them"),
        ("parked operations", backlog.parked, "`oncebox ops list --phase parked` shows them"),
        (
            "expired claims",
            backlog.expired_leases,
            "start role maintain and a worker: nobody takes over",
        ),
    ];
    for (check, count, fix) in counted {
        findings.note(check, Verdict::first(&[(Verdict::Warn, count > 0)]), count.to_string(), fix);
    }
}

/// This machine's clock, to be compared with the database's and for nothing else.
#[allow(clippy::disallowed_methods, reason = "comparing the clocks is the point")]
fn local_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
