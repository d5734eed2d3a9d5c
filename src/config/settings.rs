//! Every setting there is: its names, its default, what it does.

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in `oncebox.toml` and after `--set`.
    pub key: &'static str,
    /// Its name in the environment.
    pub environment: &'static str,
    /// What holds when nobody sets it; `None`: see `about`.
    pub default: Option<&'static str>,
    /// Whether it is, or may contain, a secret; then `${file:/path}` names a file that holds it.
    pub secret: bool,
    /// What it does, with its unit.
    pub about: &'static str,
}

const fn plain(
    key: &'static str,
    environment: &'static str,
    default: &'static str,
    about: &'static str,
) -> Setting {
    Setting { key, environment, default: Some(default), secret: false, about }
}

const fn secret(key: &'static str, environment: &'static str, about: &'static str) -> Setting {
    Setting { key, environment, default: None, secret: true, about }
}

/// Every setting, in the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    secret("database.url", "DATABASE_URL", "postgres://user:password@host:port/database"),
    secret(
        "database.listen_url",
        "ONCEBOX_DATABASE_LISTEN_URL",
        "a URL that leads straight to the server, for LISTEN; off: relays poll; default: database.url",
    ),
    secret("broker.url", "AMQP_URL", "amqp://user:password@host:port/virtual-host"),
    plain(
        "broker.prefix",
        "ONCEBOX_BROKER_PREFIX",
        "",
        "in front of every exchange and queue name",
    ),
    plain(
        "broker.heartbeat",
        "ONCEBOX_BROKER_HEARTBEAT",
        "10s",
        "a silent broker is given up after twice this long",
    ),
    plain(
        "broker.connect_timeout",
        "ONCEBOX_BROKER_CONNECT_TIMEOUT",
        "10s",
        "deadline for connecting and for the answer to a request",
    ),
    plain(
        "broker.confirm_timeout",
        "ONCEBOX_BROKER_CONFIRM_TIMEOUT",
        "10s",
        "deadline for the confirms of one published batch",
    ),
    Setting {
        key: "contracts",
        environment: "ONCEBOX_CONTRACTS",
        default: None,
        secret: false,
        about: "contract files or directories; in the environment separated by ':'; default: contracts, if it is there",
    },
    secret(
        "downstream_secret",
        "ONCEBOX_DOWNSTREAM_SECRET",
        "id:secret, at least 16 bytes; several are separated by white space, the first is current; role worker needs it",
    ),
    Setting {
        key: "worker.name",
        environment: "ONCEBOX_WORKER_NAME",
        default: None,
        secret: false,
        about: "what a worker calls itself in records; default: made from host and process",
    },
    plain("worker.concurrency", "ONCEBOX_WORKER_CONCURRENCY", "64", "effects at once in a process"),
    plain("worker.batch", "ONCEBOX_WORKER_BATCH", "200", "deliveries claimed in one transaction"),
    plain(
        "worker.margin",
        "ONCEBOX_WORKER_MARGIN",
        "5s",
        "kept free at the end of leases and windows for a clock jump in a fail-over",
    ),
    plain(
        "worker.stall_margin",
        "ONCEBOX_WORKER_STALL_MARGIN",
        "5m",
        "how long a frozen worker, or a request that nobody answered, may still act: absence proves nothing before",
    ),
    plain(
        "worker.drain",
        "ONCEBOX_WORKER_DRAIN",
        "30s",
        "how long effects may go on after SIGTERM",
    ),
    plain(
        "relay.window",
        "ONCEBOX_RELAY_WINDOW",
        "2000",
        "messages of a queue ahead of its consumers",
    ),
    plain("relay.batch", "ONCEBOX_RELAY_BATCH", "500", "rows published at once"),
    plain("relay.poll", "ONCEBOX_RELAY_POLL", "1s", "longest sleep of a relay that nothing wakes"),
    plain(
        "relay.lease",
        "ONCEBOX_RELAY_LEASE",
        "30s",
        "how long taken rows are one relay's; more than broker.confirm_timeout + worker.margin",
    ),
    plain(
        "relay.publishers",
        "ONCEBOX_RELAY_PUBLISHERS",
        "2",
        "batches that await confirms at once",
    ),
    plain("maintain.every", "ONCEBOX_MAINTAIN_EVERY", "1s", "time between two passes"),
    plain("maintain.page", "ONCEBOX_MAINTAIN_PAGE", "5000", "records looked at in one pass"),
    plain(
        "key.allow_email",
        "ONCEBOX_KEY_ALLOW_EMAIL",
        "false",
        "let operation keys hold e-mail addresses; the SQL door has a switch of its own in oncebox.settings",
    ),
    plain("log.format", "ONCEBOX_LOG_FORMAT", "text", "text or json"),
    plain("log.filter", "ONCEBOX_LOG_FILTER", "info", "what is logged, such as info,oncebox=debug"),
];

/// The setting of that name.
pub(super) fn by_key(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
