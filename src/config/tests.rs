use std::io;

use super::*;

const ALL: Needs = Needs { database: true, broker: true, downstream_secret: true };

fn sources(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Sources {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Sources {
        file: (!file.is_empty()).then(|| (PathBuf::from("oncebox.toml"), file.to_owned())),
        environment: environment.iter().map(text).collect(),
        flags: flags.iter().map(text).map(|(key, value)| (key, Value::Text(value))).collect(),
        ..Sources::none()
    }
}

fn load(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Config {
    Config::load(&sources(file, environment, flags), Needs::default()).unwrap()
}

fn problems(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
    Config::load(&sources(file, environment, flags), Needs::default()).unwrap_err().0
}

#[test]
fn the_defaults_are_good_and_those_of_the_documentation() {
    let config = load("", &[], &[]);
    assert_eq!(config.worker.concurrency, 64);
    assert_eq!(config.relay.lease, Duration::from_secs(30));
    assert_eq!(config.maintain.page, 5000);
    assert_eq!(config.log.format, LogFormat::Text);
    assert!(config.key_policy().refuse_email);
}

#[test]
fn later_sources_override_earlier_ones() {
    let file = "[relay]\nwindow = 600\nbatch = 100\npoll = \"2s\"\n";
    let config = load(
        file,
        &[("ONCEBOX_RELAY_WINDOW", "700"), ("ONCEBOX_RELAY_BATCH", "200")],
        &[("relay.window", "800")],
    );
    let relay = &config.relay;
    assert_eq!((relay.window, relay.batch, relay.poll), (800, 200, Duration::from_secs(2)));
    let source = |key| config.shown().iter().find(|s| s.key == key).unwrap().source.clone();
    assert_eq!(source("relay.window"), "flag");
    assert_eq!(source("relay.batch"), "environment ONCEBOX_RELAY_BATCH");
    assert_eq!(source("relay.poll"), "oncebox.toml");
    assert_eq!(source("relay.lease"), "default");
}

#[test]
fn every_problem_is_told_at_once() {
    let sources = sources(
        "[relay]\nwindwo = 3\n[worker]\nbatch = 0\nmargin = 1.5\n",
        &[("ONCEBOX_BROKER_HEARTBEAT", "1500ms"), ("ONCEBOX_LOG_FROMAT", "json"), ("PATH", "/bin")],
        &[("log.format", "xml"), ("maintain.evry", "1s")],
    );
    let problems = Config::load(&sources, ALL).unwrap_err().0;
    let told =
        |what: &str| assert!(problems.iter().any(|p| p.contains(what)), "{what}\n{problems:#?}");
    told("oncebox.toml: setting relay.windwo is unknown; did you mean relay.window?");
    told("oncebox.toml: worker.batch must be a whole number from 1 to 5000");
    told("oncebox.toml: worker.margin must be a text, a whole number");
    told("ONCEBOX_BROKER_HEARTBEAT must be whole seconds");
    told("ONCEBOX_LOG_FROMAT is unknown; did you mean ONCEBOX_LOG_FORMAT?");
    told("log.format must be text or json");
    told("setting maintain.evry is unknown; did you mean maintain.every?");
    told("DATABASE_URL is missing");
    told("AMQP_URL is missing");
    told("ONCEBOX_DOWNSTREAM_SECRET is missing");
    assert_eq!(problems.len(), 10, "{problems:#?}");
}

#[test]
fn relations_are_checked() {
    let check = |flags: &[(&str, &str)], told: &str| {
        let problems = problems("", &[], flags);
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0].starts_with(told), "{problems:#?}");
    };
    check(&[("relay.lease", "15s")], "relay.lease (15s) must be longer than");
    check(&[("broker.confirm_timeout", "30s")], "relay.lease (30s) must be longer than");
    check(&[("relay.window", "499")], "relay.batch (500) must not be above relay.window (499)");
    check(&[("relay.poll", "30s")], "relay.poll (30s) must be shorter");
    check(&[("worker.drain", "4s")], "worker.drain (4s) must not be shorter");
    assert_eq!(load("", &[], &[("relay.lease", "16s")]).relay.lease, Duration::from_secs(16));
}

#[test]
fn a_value_that_cannot_be_read_breaks_no_relation() {
    assert_eq!(problems("", &[], &[("relay.lease", "soon")]).len(), 1);
}

#[test]
fn bounds_hold() {
    let check = |key: &str, value: &str| {
        let problems = problems("", &[], &[(key, value)]);
        assert!(problems[0].starts_with(key), "{problems:#?}");
        assert_eq!(problems.len(), 1, "{problems:#?}");
    };
    check("broker.heartbeat", "0s");
    check("broker.heartbeat", "10m");
    check("worker.concurrency", "0");
    check("worker.concurrency", "-1");
    check("worker.concurrency", "4294967296");
    check("worker.name", "two words");
    check("broker.prefix", "amq.mine");
    check("broker.prefix", "my app.");
    check("broker.prefix", "Shop.");
    check("relay.publishers", "17");
    check("key.allow_email", "yes");
    check("log.filter", "oncebox=loud");
    check("log.filter", "nonsense");
    check("log.filter", "info,oncbox");
    check("database.url", "mysql://host/db");
    check("broker.url", "http://host");
    check("downstream_secret", "nocolon-but-long-enough");
    check("downstream_secret", "a:tooshort");
    check("downstream_secret", "a:0123456789abcdef a:0123456789abcdeg");
    check("downstream_secret", "spa ce:0123456789abcdef");
}

#[test]
fn filters_that_say_something_are_taken() {
    for filter in [
        "",
        "info",
        "WARN",
        "off",
        "2",
        "info,oncebox=debug",
        "oncebox",
        "oncebox::relay",
        "warn,[span]=info",
    ] {
        assert_eq!(load("", &[], &[("log.filter", filter)]).log.filter, filter);
    }
}

#[test]
fn secrets_never_show() {
    let environment = [
        ("DATABASE_URL", "postgres://app:hidden1@db/oncebox"),
        ("ONCEBOX_DATABASE_LISTEN_URL", "postgres://app:hidden2@db/oncebox"),
        ("AMQP_URL", "amqp://app:hidden3@mq/%2f"),
        ("ONCEBOX_DOWNSTREAM_SECRET", "k2:hidden4-hidden4-hidden4 k1:hidden5-hidden5-hidden5"),
    ];
    let config = load("", &environment, &[]);
    let shown = format!("{:?} {config:?} {:?}", config.shown(), sources("", &environment, &[]));
    assert!(!shown.contains("hidden"), "{shown}");
    assert!(shown.contains("postgres://app:***@db/oncebox"));
    assert!(shown.contains("k2:*** k1:***"));
    let secrets = config.downstream_secret.unwrap();
    assert_eq!(secrets.current_id(), "k2");
    assert_eq!(secrets.get("k1"), Some(&b"hidden5-hidden5-hidden5"[..]));
    assert_eq!(secrets.get("k3"), None);
    // Values that are wrong are not echoed either.
    let wrong = [
        ("DATABASE_URL", "hidden1"),
        ("AMQP_URL", "hidden3"),
        ("ONCEBOX_DOWNSTREAM_SECRET", "id:hidden"),
    ];
    assert!(!problems("database.url = hidden9", &wrong, &[]).join(" ").contains("hidden"));
}

#[test]
fn secrets_may_stand_in_files() {
    let mut sources = sources("downstream_secret = \"${file:/run/secret}\"", &[], &[]);
    sources.read_secret_file = |path| match path.to_str() {
        Some("/run/secret") => Ok("k1:0123456789abcdef\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let config = Config::load(&sources, Needs::default()).unwrap();
    assert_eq!(config.downstream_secret.unwrap().current(), b"0123456789abcdef");
    sources.flags = vec![("broker.url".to_owned(), Value::Text("${file:/nowhere}".to_owned()))];
    let problems = Config::load(&sources, ALL).unwrap_err().0;
    assert!(problems.iter().any(|p| p.contains("broker.url refers to /nowhere")), "{problems:#?}");
}

#[test]
fn contract_paths_come_as_list_or_path_list() {
    let paths = |config: Config| -> Vec<String> {
        config.contracts.iter().map(|path| path.display().to_string()).collect()
    };
    assert_eq!(paths(load("contracts = [\"a\", \"b:c\"]", &[], &[])), ["a", "b:c"]);
    assert_eq!(paths(load("", &[("ONCEBOX_CONTRACTS", "a:b")], &[])), ["a", "b"]);
    assert!(load("", &[], &[]).contracts.is_empty());
}

#[test]
fn the_direct_connection_can_be_another_one_or_none() {
    let url = ("DATABASE_URL", "postgres://app:pw@pool/oncebox");
    let listen = |value| load("", &[url, ("ONCEBOX_DATABASE_LISTEN_URL", value)], &[]).database;
    assert_eq!(load("", &[url], &[]).database.listen_url, Some(DatabaseUrl::new(url.1)));
    assert_eq!(listen("off").listen_url, None);
    let direct = "postgres://app:pw@db/oncebox";
    assert_eq!(listen(direct).listen_url, Some(DatabaseUrl::new(direct)));
}

#[test]
fn names_follow_one_pattern() {
    for setting in SETTINGS {
        let derived = format!("ONCEBOX_{}", setting.key.replace('.', "_").to_uppercase());
        let usual = ["DATABASE_URL", "AMQP_URL"].contains(&setting.environment);
        assert!(usual || setting.environment == derived, "{}", setting.environment);
    }
}
