//! The broker: can it be used, is its topology ours, does anything wait there for a person.

use std::collections::BTreeSet;

use super::{Findings, Verdict};
use crate::broker::{Broker, BrokerError, IF_UNSERVED, broker_version};
use crate::operator::Context;
use crate::operator::failure::chain;

/// RabbitMQ 3.10: the oldest release with dead-lettering at least once.
const OLDEST: (u32, u32) = (3, 10);

pub(super) async fn check(context: &Context, tools: &BTreeSet<String>, findings: &mut Findings) {
    let settings = context.config.broker_settings("oncebox doctor");
    match broker_version(&settings).await {
        Ok((product, version)) => {
            let verdict = Verdict::first(&[
                (Verdict::Fail, numbers(&version).is_some_and(|version| version < OLDEST)),
                (Verdict::Warn, product != "RabbitMQ" || numbers(&version).is_none()),
            ]);
            findings.note(
                "broker version",
                verdict,
                format!("{product} {version}"),
                "use RabbitMQ 3.10 or newer",
            );
        }
        Err(error) => findings.note(
            "broker version",
            Verdict::Fail,
            chain(&error),
            "check AMQP_URL and that the broker runs",
        ),
    }
    let broker = match Broker::connect(&settings).await {
        Ok(broker) => broker,
        Err(error) => {
            let fix = "check user, password and virtual host in AMQP_URL";
            return findings.note("broker connection", Verdict::Fail, chain(&error), fix);
        }
    };
    let seen = format!("{} answers", settings.url.masked());
    findings.note("broker connection", Verdict::Ok, seen, "");
    let blocked = broker.blocked();
    let seen = if blocked { "publishing is blocked" } else { "publishing is not blocked" };
    let verdict = Verdict::first(&[(Verdict::Warn, blocked)]);
    findings.note("broker alarms", verdict, seen.to_owned(), "free memory or disk on the broker");
    topology(&broker, tools, findings).await;
    broker.close().await;
}

async fn topology(broker: &Broker, tools: &BTreeSet<String>, findings: &mut Findings) {
    let check = "topology";
    let mut wrong = match broker.check_base().await {
        Ok(wrong) => wrong,
        Err(error) => {
            let fix = "give this user configure, write and read on names that contain oncebox";
            return findings.note(check, Verdict::Fail, chain(&error), fix);
        }
    };
    let mut all_seen = true;
    for tool in tools {
        let error = match broker.check_tool(tool).await {
            Ok(found) => {
                wrong.extend(found);
                continue;
            }
            Err(error) => error,
        };
        all_seen = false;
        let no_answer = matches!(error, BrokerError::Timeout { .. });
        let fix = if no_answer { IF_UNSERVED } else { "run doctor again" };
        let seen = format!("{}: {}", broker.names().tool(tool), chain(&error));
        findings.note(check, Verdict::Fail, seen, fix);
    }
    if all_seen && wrong.is_empty() {
        let seen = format!("exchanges and the queues of {} tools are as declared", tools.len());
        findings.note(check, Verdict::Ok, seen, "");
    }
    for error in &wrong {
        // Whatever is missing is declared when a role starts.
        let missing = matches!(error, BrokerError::Missing { .. });
        let verdict = if missing { Verdict::Warn } else { Verdict::Fail };
        let fix = if missing {
            "`oncebox run` declares it"
        } else {
            "drain it, delete it on the broker and start a role again, or use another broker.prefix"
        };
        findings.note(check, verdict, chain(error), fix);
    }
    waiting(broker, findings).await;
}

async fn waiting(broker: &Broker, findings: &mut Findings) {
    let names = broker.names();
    let counts = [
        (broker.dead_count().await, "dead messages on the broker", Verdict::Ok, String::new()),
        (
            broker.unreadable_count().await,
            "unreadable messages",
            Verdict::Warn,
            format!(
                "no client can parse them: look at queue {} in the broker's own tools, then remove them there",
                names.unreadable()
            ),
        ),
    ];
    for (count, check, verdict, fix) in counts {
        match count {
            Ok(count) => {
                let verdict = Verdict::first(&[(verdict, count > 0)]);
                findings.note(check, verdict, count.to_string(), &fix);
            }
            // Told already as part of the topology.
            Err(BrokerError::Missing { .. }) => {}
            Err(error) => findings.note(check, Verdict::Warn, chain(&error), "run doctor again"),
        }
    }
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '-', '+']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("3.9.29") < Some(OLDEST));
        assert!(numbers("3.10.8") >= Some(OLDEST));
        assert!(numbers("4.0.5-rc.1") >= Some(OLDEST));
        assert_eq!(numbers("unknown"), None);
    }
}
