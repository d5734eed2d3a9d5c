//! From what was gathered to the [`Config`]: read each setting, check the relations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::gather::{Found, Reader};
use super::secret::DownstreamSecrets;
use super::settings::{SETTINGS, Setting, by_key};
use super::{
    Broker, Config, ConfigErrors, Database, Key, Log, LogFormat, Maintain, Needs, Relay, Shown,
    Sources, Value, Worker, relations,
};
use crate::broker::{AmqpUrl, Names};
use crate::domain::contract::{duration_text, parse_duration};
use crate::store::DatabaseUrl;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn config(sources: &Sources, needs: Needs) -> Result<Config, ConfigErrors> {
    let mut reader =
        Reader { sources, found: BTreeMap::new(), problems: Vec::new(), bad: BTreeSet::new() };
    reader.gather();
    reader.resolve_files();
    let mut config = reader.config(needs);
    for relation in relations::broken(&config) {
        // A value that could not be read stands at its default here and proves nothing.
        if !relation.between.iter().any(|key| reader.bad.contains(key)) {
            reader.problems.push(relation.message);
        }
    }
    if !reader.problems.is_empty() {
        return Err(ConfigErrors(reader.problems));
    }
    config.shown = reader.shown(&config);
    Ok(config)
}

impl Reader<'_> {
    fn config(&mut self, needs: Needs) -> Config {
        let broker = self.broker(needs);
        Config {
            database: self.database(needs),
            broker,
            contracts: self.contracts(),
            downstream_secret: self.downstream_secret(needs),
            worker: self.worker(),
            relay: Relay {
                window: self.number("relay.window", 1..=1_000_000),
                batch: self.number("relay.batch", 1..=10_000),
                poll: self.span("relay.poll", Duration::from_millis(10)..=MINUTE),
                lease: self.span("relay.lease", SECOND..=HOUR),
                publishers: self.number("relay.publishers", 1..=16),
            },
            maintain: Maintain {
                every: self.span("maintain.every", Duration::from_millis(100)..=HOUR),
                page: self.number("maintain.page", 1..=100_000),
            },
            key: Key {
                allow_email: self.word("key.allow_email", &[("false", false), ("true", true)]),
            },
            log: self.log(),
            shown: Vec::new(),
        }
    }

    fn database(&mut self, needs: Needs) -> Database {
        let url = DatabaseUrl::new(self.needed("database.url", needs.database));
        self.check_database("database.url", &url);
        let listen_url = match self.text("database.listen_url").as_deref() {
            None => Some(url.clone()),
            Some("off") => None,
            Some(direct) => {
                let direct = DatabaseUrl::new(direct);
                self.check_database("database.listen_url", &direct);
                Some(direct)
            }
        };
        Database { url, listen_url }
    }

    fn check_database(&mut self, key: &'static str, url: &DatabaseUrl) {
        if self.found.contains_key(key) && url.check().is_err() {
            self.problem(key, "is no database URL; write postgres://user:password@host:port/database, with '@', ':' and '/' in the password percent-encoded");
        }
    }

    fn broker(&mut self, needs: Needs) -> Broker {
        let url = AmqpUrl::new(self.needed("broker.url", needs.broker));
        let prefix = self.text("broker.prefix").unwrap_or_default();
        if let Err(error) = Names::new(&prefix) {
            self.problem("broker.prefix", &format!("cannot be used: {error}"));
        }
        let heartbeat = self.span("broker.heartbeat", SECOND..=Duration::from_secs(300));
        if heartbeat.subsec_nanos() != 0 {
            self.problem("broker.heartbeat", "must be whole seconds");
        }
        if self.found.contains_key("broker.url") && url.check().is_err() {
            self.problem("broker.url", "is no broker URL; write amqp://user:password@host:port/virtual-host, with '@', ':' and '/' in the password percent-encoded");
        }
        Broker {
            url,
            prefix,
            heartbeat,
            connect_timeout: self.span("broker.connect_timeout", SECOND..=5 * MINUTE),
            confirm_timeout: self.span("broker.confirm_timeout", SECOND..=10 * MINUTE),
        }
    }

    fn worker(&mut self) -> Worker {
        let name = self.text("worker.name");
        let formed = |name: &String| {
            (1..=100).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if name.as_ref().is_some_and(|name| !formed(name)) {
            self.problem("worker.name", "must be 1 to 100 visible ASCII characters without spaces");
        }
        Worker {
            name,
            concurrency: self.number("worker.concurrency", 1..=10_000),
            batch: self.number("worker.batch", 1..=5_000),
            margin: self.span("worker.margin", SECOND..=10 * MINUTE),
            stall_margin: self.span("worker.stall_margin", Duration::from_millis(100)..=24 * HOUR),
            drain: self.span("worker.drain", SECOND..=HOUR),
        }
    }

    fn log(&mut self) -> Log {
        let filter = self.text("log.filter").unwrap_or_default();
        if let Err(error) = check_filter(&filter) {
            self.problem("log.filter", &error);
        }
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        Log { format: self.word("log.format", &formats), filter }
    }

    fn contracts(&mut self) -> Vec<PathBuf> {
        match self.found.get("contracts") {
            None => self.sources.default_contracts.clone(),
            Some(Found { value: Value::List(paths), .. }) => {
                paths.iter().map(PathBuf::from).collect()
            }
            Some(Found { value: Value::Text(paths), .. }) => {
                std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect()
            }
        }
    }

    fn downstream_secret(&mut self, needs: Needs) -> Option<DownstreamSecrets> {
        let text = self.needed("downstream_secret", needs.downstream_secret);
        if !self.found.contains_key("downstream_secret") {
            return None;
        }
        match DownstreamSecrets::parse(&text) {
            Ok(secrets) => Some(secrets),
            Err(problem) => {
                self.problem("downstream_secret", &problem);
                None
            }
        }
    }

    /// The text of a setting: as it was set, else its default.
    fn text(&mut self, key: &'static str) -> Option<String> {
        match self.found.get(key).map(|found| &found.value) {
            Some(Value::Text(text)) => Some(text.clone()),
            Some(Value::List(_)) => {
                self.problem(key, "takes one value, not a list");
                None
            }
            None => by_key(key).and_then(|setting| setting.default).map(str::to_owned),
        }
    }

    fn needed(&mut self, key: &'static str, needed: bool) -> String {
        let text = self.text(key).unwrap_or_default();
        if needed && !self.found.contains_key(key) && !self.bad.contains(key) {
            let (environment, about) =
                by_key(key).map_or((key, ""), |setting| (setting.environment, setting.about));
            self.problems.push(format!(
                "{environment} is missing (in oncebox.toml: {key}); set it: {about}"
            ));
        }
        text
    }

    fn number(&mut self, key: &'static str, within: RangeInclusive<u32>) -> u32 {
        let text = self.text(key).unwrap_or_default();
        match text.parse::<u32>() {
            Ok(number) if within.contains(&number) => number,
            Ok(_) | Err(_) => {
                let (least, most) = (within.start(), within.end());
                self.problem(key, &format!("must be a whole number from {least} to {most}"));
                *least
            }
        }
    }

    fn span(&mut self, key: &'static str, within: RangeInclusive<Duration>) -> Duration {
        let text = self.text(key).unwrap_or_default();
        let (least, most) = (duration_text(*within.start()), duration_text(*within.end()));
        match parse_duration(&text) {
            Ok(span) if within.contains(&span) => span,
            Ok(_) => {
                self.problem(key, &format!("must be from {least} to {most}"));
                *within.start()
            }
            Err(error) => {
                self.problem(key, &format!("must be from {least} to {most}; {error}"));
                *within.start()
            }
        }
    }

    fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T); 2]) -> T {
        let text = self.text(key).unwrap_or_default();
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => *value,
            None => {
                let [first, second] = words;
                self.problem(key, &format!("must be {} or {}", first.0, second.0));
                first.1
            }
        }
    }

    /// Notes that the value of a setting is wrong. Never shows the value.
    fn problem(&mut self, key: &'static str, what: &str) {
        let named = self.found.get(key).map_or(key, |found| &found.named);
        self.problems.push(format!("{named} {what}"));
        self.bad.insert(key);
    }

    fn shown(&self, config: &Config) -> Vec<Shown> {
        let show = |setting: &Setting| {
            let found = self.found.get(setting.key);
            let value = match (setting.key, found) {
                ("contracts", _) => paths_text(&config.contracts),
                ("database.listen_url", None) if self.found.contains_key("database.url") => {
                    config.database.url.masked()
                }
                ("database.url", Some(_)) => config.database.url.masked(),
                ("database.listen_url", Some(_)) => config
                    .database
                    .listen_url
                    .as_ref()
                    .map_or("off".to_owned(), DatabaseUrl::masked),
                ("broker.url", Some(_)) => config.broker.url.masked(),
                ("downstream_secret", Some(_)) => {
                    let ids = config.downstream_secret.iter().flat_map(DownstreamSecrets::ids);
                    ids.map(|id| format!("{id}:***")).collect::<Vec<_>>().join(" ")
                }
                (_, Some(Found { value: Value::Text(text), .. })) => text.clone(),
                (_, Some(Found { value: Value::List(texts), .. })) => texts.join(" "),
                (_, None) => setting.default.unwrap_or_default().to_owned(),
            };
            let source = found.map_or_else(|| "default".to_owned(), |found| found.source.clone());
            Shown { key: setting.key, environment: setting.environment, value, source }
        };
        SETTINGS.iter().map(show).collect()
    }
}

fn paths_text(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

/// Says what to write instead when the log's filter cannot be read.
fn check_filter(filter: &str) -> Result<(), String> {
    if filter.split(',').map(str::trim).any(names_nothing) {
        return Err("has a word that is no level, which would silence everything else; write info or info,oncebox=debug".to_owned());
    }
    match tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::Level::INFO.into())
        .parse(filter)
    {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot be read ({error}); write info or info,oncebox=debug")),
    }
}

/// Whether a part of a filter is a bare word that is neither a level nor one of our modules: the
/// filter would take it for somebody's module, and show nothing but that.
fn names_nothing(part: &str) -> bool {
    let bare = !part.is_empty() && !part.contains(['=', '[', ':']);
    let ours = part == env!("CARGO_PKG_NAME");
    bare && !ours && part.parse::<tracing_subscriber::filter::LevelFilter>().is_err()
}
