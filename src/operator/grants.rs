//! `oncebox grants`: who may send a tool's operations, and see their results.
//!
//! A grant is never changed, only revoked. It counts for contracts that say
//! `authorization: {grants: true}`, and is asked in the transaction that marks an operation as sent:
//! what is revoked before the first byte stops the send.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::Context;
use super::arguments::limit;
use super::failure::{Failure, say, seen_enough};
use super::output::shown;
use super::record::time_text;
use crate::domain::contract::ToolName;
use crate::domain::key::{KeyPolicy, OperationKey};
use crate::domain::permission::Grant;
use crate::store::{self, GrantFilter, ListedGrant, NewGrant};

/// Longest actor and person, in bytes: as long as a submission's actor.
const MAX_NAME_BYTES: usize = 200;

/// Longest limits of a grant, in bytes of JSON text.
const MAX_LIMITS_BYTES: usize = 65_536;

/// Gives, lists and revokes grants.
#[derive(Debug, Subcommand)]
pub(super) enum GrantsVerb {
    Add(AddFlags),
    List(ListFlags),
    Revoke(RevokeFlags),
}

/// Let an actor send a tool's operations, and see their results
///
/// Counts at once, for contracts that say authorization: {grants: true}. An operation that was
/// rejected for want of it may be submitted again.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  oncebox grants add --tenant acme --actor agent-7 --tool tickets.create --by ann\n  oncebox grants add --tenant acme --actor agent-7 --tool tickets.create --where '{\"/queue_id\": [\"support\", \"billing\"]}' --until 2027-01-01T00:00:00Z --by ann"
)]
pub(super) struct AddFlags {
    /// The tenant
    #[arg(long)]
    tenant: String,

    /// The actor, as submissions name it
    #[arg(long)]
    actor: String,

    /// The tool, every version of it
    #[arg(long)]
    tool: String,

    /// Only where the arguments have one of these values: a JSON object of places, each with a list
    #[arg(long = "where", value_name = "JSON")]
    limits: Option<String>,

    /// Not before this time, such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<OffsetDateTime>,

    /// Not from this time on
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<OffsetDateTime>,

    /// The person who gives it; kept with the grant
    #[arg(long, value_name = "NAME")]
    by: String,
}

/// List grants that are in force or will be, newest first
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  oncebox grants list --tenant acme --actor agent-7 --all")]
pub(super) struct ListFlags {
    /// Only this tenant's
    #[arg(long)]
    tenant: Option<String>,

    /// Only this actor's
    #[arg(long)]
    actor: Option<String>,

    /// Only for this tool
    #[arg(long)]
    tool: Option<String>,

    /// Those that are over or revoked, too
    #[arg(long)]
    all: bool,

    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = limit)]
    limit: u32,
}

/// Take a grant back
///
/// Counts at once: what was not sent yet is not sent. An operation that may have been sent already is
/// found out about all the same.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  oncebox grants revoke 0190a6f0-0000-7000-8000-000000000000 --by ann"
)]
pub(super) struct RevokeFlags {
    /// The grant's id, as `grants list` prints it
    #[arg(value_parser = grant_id)]
    grant: Uuid,

    /// The person who revokes it; kept with the grant
    #[arg(long, value_name = "NAME")]
    by: String,
}

fn grant_id(text: &str) -> Result<Uuid, &'static str> {
    Uuid::try_parse(text).map_err(|_| "not a grant's id; `oncebox grants list` prints them")
}

fn moment(text: &str) -> Result<OffsetDateTime, &'static str> {
    let told = "an RFC 3339 time is needed, such as 2027-01-01T00:00:00Z";
    let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| told)?;
    // Every program here can read times before the year 9000.
    if (1970..9000).contains(&at.year()) {
        Ok(at)
    } else {
        Err("a year from 1970 to 8999 is needed")
    }
}

pub(super) async fn run(context: &Context, verb: GrantsVerb) -> Result<(), Failure> {
    match verb {
        GrantsVerb::Add(flags) => add(context, flags).await,
        GrantsVerb::List(flags) => seen_enough(list(context, flags).await),
        GrantsVerb::Revoke(flags) => revoke(context, &flags).await,
    }
}

async fn add(context: &Context, flags: AddFlags) -> Result<(), Failure> {
    let new = new_grant(flags)?;
    let (tool, filter) = (
        new.grantee.2.clone(),
        GrantFilter { id: Some(new.id), all: true, limit: 1, ..GrantFilter::default() },
    );
    let mut link = context.link();
    let (known, listed) = link
        .transaction(async |connection| {
            store::add_grant(connection, &new).await?;
            let known = store::tools(connection).await?.contains(&new.grantee.2);
            Ok((known, store::list_grants(connection, &filter).await?))
        })
        .await?;
    if !known {
        say(&format!("no contract of {tool} is registered yet; the grant counts from then on"));
    }
    tell(context, listed.first(), "is granted")
}

/// Checks everything that can be checked without the database.
fn new_grant(flags: AddFlags) -> Result<NewGrant, Failure> {
    let AddFlags { tenant, actor, tool, limits, from, until, by } = flags;
    // The tenant of a grant is held to the rule for the tenant of a key.
    let policy = KeyPolicy::default();
    OperationKey::new(&tenant, "e", "w", "s", &policy)
        .map_err(|error| Failure::usage(format!("--tenant: {error}")))?;
    ToolName::parse(&tool).map_err(|error| Failure::usage(format!("--tool: {error}")))?;
    if actor.is_empty() || actor.len() > MAX_NAME_BYTES || actor.contains('\0') {
        return Err(Failure::usage("--actor takes 1 to 200 bytes without NUL"));
    }
    let by = name(&by)?;
    if let Some(text) = &limits {
        if text.len() > MAX_LIMITS_BYTES {
            return Err(Failure::usage("--where takes up to 64 KiB"));
        }
        Grant::limited_to(text).map_err(|error| Failure::usage(format!("--where: {error}")))?;
    }
    if let (Some(from), Some(until)) = (from, until)
        && until <= from
    {
        return Err(Failure::usage("--until must be later than --from"));
    }
    let grantee = (tenant, actor, tool);
    Ok(NewGrant { id: Uuid::now_v7(), grantee, arguments: limits, from, until, by })
}

fn name(by: &str) -> Result<String, Failure> {
    let by = by.trim();
    if by.is_empty() || by.len() > MAX_NAME_BYTES || by.contains('\0') {
        return Err(Failure::usage("--by takes a person's name of 1 to 200 bytes without NUL"));
    }
    Ok(by.to_owned())
}

async fn list(context: &Context, flags: ListFlags) -> Result<(), Failure> {
    let ListFlags { tenant, actor, tool, all, limit } = flags;
    let filter = GrantFilter { id: None, tenant, actor, tool, all, limit: i64::from(limit) };
    let mut link = context.link();
    let listed = link.statement(async |c| store::list_grants(c, &filter).await).await?;
    let titles = ["grant", "tenant", "actor", "tool", "where", "state", "until", "granted by"];
    let rows: Vec<_> = listed.iter().map(row).collect();
    context.output.rows(&titles, &rows)?;
    if u32::try_from(listed.len()).is_ok_and(|len| len == limit) && !context.output.json() {
        say("there may be more: raise --limit, or name a tenant, an actor or a tool");
    }
    Ok(())
}

async fn revoke(context: &Context, flags: &RevokeFlags) -> Result<(), Failure> {
    let (id, by) = (flags.grant, name(&flags.by)?);
    let filter = GrantFilter { id: Some(id), all: true, limit: 1, ..GrantFilter::default() };
    let mut link = context.link();
    let (revoked, listed) = link
        .transaction(async |connection| {
            let revoked = store::revoke_grant(connection, id, &by).await?;
            Ok((revoked, store::list_grants(connection, &filter).await?))
        })
        .await?;
    match (revoked, listed.first()) {
        (true, grant) => tell(context, grant, "is revoked"),
        (false, Some(grant)) => {
            let when = grant.revoked_at.map(time_text).unwrap_or_default();
            Err(Failure::failed(format!("{id} was revoked before, at {when}; nothing was changed")))
        }
        (false, None) => Err(Failure::failed(
            "there is no such grant; `oncebox grants list --all` shows what there is",
        )),
    }
}

fn tell(context: &Context, grant: Option<&ListedGrant>, what: &str) -> Result<(), Failure> {
    let Some(grant) = grant else {
        return Err(Failure::failed("the grant is gone; look at `oncebox grants list --all`"));
    };
    let (_, actor, tool) = &grant.grantee;
    let text = format!("{} {what}: {actor} for {tool} ({})", grant.id, grant.state);
    Ok(context.output.either(&object(grant), &shown(&text))?)
}

fn row(grant: &ListedGrant) -> (Vec<String>, Value) {
    let (tenant, actor, tool) = &grant.grantee;
    let cells = vec![
        grant.id.to_string(),
        tenant.clone(),
        actor.clone(),
        tool.clone(),
        grant.arguments.clone().unwrap_or_default(),
        grant.state.clone(),
        grant.until.map(time_text).unwrap_or_default(),
        grant.granted_by.clone(),
    ];
    (cells, object(grant))
}

fn object(grant: &ListedGrant) -> Value {
    let (tenant, actor, tool) = &grant.grantee;
    let limits = grant.arguments.as_deref().map(serde_json::from_str::<Value>);
    json!({
        "grant_id": grant.id,
        "tenant": tenant,
        "actor": actor,
        "tool": tool,
        "where": limits.and_then(Result::ok),
        "state": grant.state,
        "from": time_text(grant.from),
        "until": grant.until.map(time_text),
        "granted_by": grant.granted_by,
        "granted_at": time_text(grant.granted_at),
        "revoked_by": grant.revoked_by,
        "revoked_at": grant.revoked_at.map(time_text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(flags: AddFlags) -> String {
        match new_grant(flags) {
            Err(Failure::Usage(lines)) => lines.join("\n"),
            other => panic!("{other:?}"),
        }
    }

    fn flags() -> AddFlags {
        AddFlags {
            tenant: "acme".into(),
            actor: "agent-7".into(),
            tool: "tickets.create".into(),
            limits: None,
            from: None,
            until: None,
            by: " ann ".into(),
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_on_one_clear_line() {
        let check = |flags: AddFlags, told: &str| {
            let line = refused(flags);
            assert!(line.contains(told) && !line.contains('\n'), "{line}");
        };
        let limited = |text: &str| AddFlags { limits: Some(text.into()), ..flags() };
        check(limited("{queue: support}"), "not JSON: expected");
        check(limited("[\"support\"]"), "--where: an object is needed");
        check(
            limited(r#"{"queue_id": ["support"]}"#),
            "a JSON Pointer is empty or begins with '/'",
        );
        check(limited(r#"{"/queue~2": ["support"]}"#), "'~' must be written ~0");
        check(limited(r#"{"/queue_id": []}"#), "an empty list allows nothing");
        check(limited(r#"{"/queue_id": 1, "/queue_id": 2}"#), "stands twice");
        check(AddFlags { tenant: "Acme".into(), ..flags() }, "--tenant");
        check(AddFlags { tool: "Tickets".into(), ..flags() }, "--tool");
        check(AddFlags { actor: String::new(), ..flags() }, "--actor");
        check(AddFlags { by: "  ".into(), ..flags() }, "--by");
        let at = |text| Some(moment(text).unwrap());
        let backwards = AddFlags {
            from: at("2027-01-02T00:00:00Z"),
            until: at("2027-01-01T00:00:00Z"),
            ..flags()
        };
        check(backwards, "--until must be later");
        assert!(moment("tomorrow").is_err() && moment("2027-01-01").is_err());
        assert!(moment("9999-12-31T00:00:00Z").is_err(), "no program here could read it");
        let good = limited(r#"{"/queue_id": ["support"], "/priority": 1}"#);
        assert_eq!(new_grant(good).unwrap().by, "ann");
    }
}
