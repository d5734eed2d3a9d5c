-- The operation record, its outbox and what stands round them.
--
-- Why one record and one outbox row a submission: they commit or roll back with the caller's
-- business rows. Text from outside has a length check, statuses a value check, and request bodies
-- are `json` (text), never `jsonb`: `jsonb` would rewrite numbers and drop duplicate names.

create table oncebox.settings (
    name  text primary key check (octet_length(name) between 1 and 100),
    value text not null check (octet_length(value) <= 1000)
);
comment on table oncebox.settings is 'Deployment switches that SQL functions need: key_allows_email (on/off); wake_by_notify (on/off): off for applications that prepare transactions (two-phase commit), since one that notifies cannot be prepared. Relays then poll.';
insert into oncebox.settings (name, value) values ('key_allows_email', 'off'), ('wake_by_notify', 'on');

create table oncebox.contracts (
    -- `results` is the outbox's own queue, of result events.
    tool_name       text collate "C" not null
        check (tool_name ~ '^[a-z0-9]([a-z0-9_.-]{0,62}[a-z0-9])?$' and tool_name <> 'results'),
    tool_version    text collate "C" not null check (octet_length(tool_version) between 1 and 64),
    contract_text   text not null check (octet_length(contract_text) <= 1048576),
    material_digest text not null check (octet_length(material_digest) <= 100),
    is_current      boolean not null default false,
    -- Whom an unknown goes to, and how soon they answer: for lists of what is overdue.
    owner           text check (octet_length(owner) <= 1000),
    respond_within  interval,
    results         boolean not null default false,
    registered_at   timestamptz not null default clock_timestamp(),
    primary key (tool_name, tool_version)
);
comment on table oncebox.contracts is 'Each version''s whole text, for ever: old operations are compared under their own version.';
comment on column oncebox.contracts.results is 'Whether operations submitted from now on announce how they end. Not material: may change with the file.';
create unique index contracts_one_current on oncebox.contracts (tool_name) where is_current;

create table oncebox.operations (
    operation_id        uuid primary key,
    tenant_id           text collate "C" not null check (octet_length(tenant_id) between 1 and 63),
    environment         text collate "C" not null check (octet_length(environment) between 1 and 63),
    -- Compared byte for byte, whatever the database's collation.
    operation_key       text collate "C" not null check (octet_length(operation_key) between 7 and 1400),
    tool_name           text collate "C" not null check (octet_length(tool_name) between 1 and 64),
    tool_version        text collate "C" not null check (octet_length(tool_version) between 1 and 64),
    request_fingerprint text collate "C" check (octet_length(request_fingerprint) <= 100),
    material_digests    json,
    status              text not null default 'pending'
        check (status in ('pending', 'applied', 'rejected', 'failed_permanent', 'unknown', 'expired')),
    phase               text default 'queued'
        check (phase in ('queued', 'held', 'awaiting_approval', 'claimed', 'sent', 'accepted', 'retry_scheduled', 'parked')),
    reason              text check (octet_length(reason) <= 100),
    arguments           json,
    metadata            json,
    actor               text check (octet_length(actor) <= 200),
    traceparent         text check (octet_length(traceparent) <= 200),
    distinct_from       text check (octet_length(distinct_from) <= 1400),
    -- As the contract said when the operation was submitted: who writes an ending need not know the contract.
    results             boolean not null default false,
    response_json       json,
    response_dropped    boolean not null default false,
    effect_reference    text check (octet_length(effect_reference) <= 1024),
    downstream_key      text check (octet_length(downstream_key) <= 200),
    downstream_key_id   text check (octet_length(downstream_key_id) <= 100),
    due_at              timestamptz not null,
    lease_until         timestamptz,
    owner               text check (octet_length(owner) <= 200),
    claim_epoch         bigint not null default 0,
    attempts            integer not null default 0 check (attempts >= 0),
    lost_claims         integer not null default 0 check (lost_claims >= 0),
    deferrals           integer not null default 0 check (deferrals >= 0),
    opened_at           timestamptz not null,
    first_sent_at       timestamptz,
    attempts_over_at    timestamptz,
    key_first_used_at   timestamptz,
    queued_at           timestamptz not null,
    sweeps              integer not null default 0 check (sweeps >= 0),
    ordering_key        text collate "C" check (octet_length(ordering_key) between 1 and 200),
    order_number        bigint,
    waiting_for_order   boolean not null default false,
    order_released      boolean not null default false,
    provider_job        text check (octet_length(provider_job) between 1 and 1024),
    accepted_at         timestamptz,
    job_alone           boolean not null default false,
    lookups             integer not null default 0 check (lookups >= 0),
    next_lookup_at      timestamptz,
    unresolved_since    timestamptz,
    twin_digest         text collate "C" check (octet_length(twin_digest) <= 100),
    held_behind         uuid,
    twin_released       boolean not null default false,
    created_at          timestamptz not null,
    updated_at          timestamptz not null,
    expires_at          timestamptz,
    constraint operations_one_per_key unique (tenant_id, operation_key),
    constraint operations_phase_only_while_pending check ((status = 'pending') = (phase is not null)),
    constraint operations_lease_has_owner check ((lease_until is null) = (owner is null)),
    constraint operations_job_was_accepted check ((provider_job is null) = (accepted_at is null)),
    constraint operations_lookups_of_unknown check (next_lookup_at is null or status = 'unknown'),
    constraint operations_order_number check ((ordering_key is null) = (order_number is null))
) with (fillfactor = 70);
comment on table oncebox.operations is 'One row a business action. Workers and maintain lock it with for no key update skip locked; a submission never locks it.';

-- The sweep looks for pending records whose last message is old.
create index operations_pending on oncebox.operations (queued_at) where status = 'pending';
-- Recovery looks for leases that ran out, a tool at a time; a claim counts the live ones of a tool that
-- bounds them. The tool comes first, so that a count does not walk over what a busy tool leaves dead.
create index operations_leased on oncebox.operations (tool_name, lease_until) where lease_until is not null;
create index operations_ordered on oncebox.operations (tenant_id, environment, tool_name, ordering_key, order_number)
    where ordering_key is not null;
-- Maintain looks for waiters whose turn has come, every second.
create index operations_waiting on oncebox.operations (operation_id) where waiting_for_order and status = 'pending';
-- An operator asks for what waits for a person, the longest first.
create index operations_unresolved on oncebox.operations (unresolved_since) where unresolved_since is not null;
-- Maintain looks for unknown records whose next look-up is due, every second.
create index operations_to_look_up on oncebox.operations (next_lookup_at) where next_lookup_at is not null;
-- And for what waits for a date, not for a worker: polls, approvals, twins.
create index operations_dated on oncebox.operations (due_at) where phase in ('held', 'awaiting_approval', 'accepted');
create sequence oncebox.order_numbers;

-- A row is a promise to publish. No foreign key to operations: it would lock the record that
-- workers lock. Ids are time-ordered uuids made by the writer, so that a message id never comes
-- twice after a restore.
create table oncebox.outbox (
    id            uuid primary key,
    queue         text collate "C" not null check (octet_length(queue) between 1 and 64),
    tenant_id     text collate "C" not null check (octet_length(tenant_id) <= 63),
    operation_id  uuid not null,
    operation_key text collate "C" not null check (octet_length(operation_key) <= 1400),
    traceparent   text check (octet_length(traceparent) <= 200),
    -- When a relay may take the row. Taking it moves this ahead by the relay's lease, so that a
    -- relay that dies gives the row back by doing nothing.
    due_at        timestamptz not null,
    attempts      integer not null default 0,
    last_error    text check (octet_length(last_error) <= 200),
    -- A result event: its routing key, and the envelope as it was when the record came to this status.
    -- The record moves on, and an event must not say something else because it was published late.
    event_routing text collate "C" check (octet_length(event_routing) <= 200),
    event_body    json check (octet_length(event_body::text) <= 16384),
    constraint outbox_event_in_its_own_queue
        check ((queue = 'results') = (event_routing is not null) and (event_routing is null) = (event_body is null))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index outbox_due on oncebox.outbox (queue, due_at, id);
create index outbox_operation on oncebox.outbox (operation_id);
comment on table oncebox.outbox is 'Messages not yet confirmed by the broker. Removed after the confirm, never before. A row of queue results is a result event and publishes no operation.';

create table oncebox.operation_events (
    event_id     bigint generated always as identity primary key,
    operation_id uuid not null,
    at           timestamptz not null default clock_timestamp(),
    event        text not null check (octet_length(event) <= 40),
    claim_epoch  bigint not null default 0,
    owner        text check (octet_length(owner) <= 200),
    detail       json check (octet_length(detail::text) <= 8192)
);
create index operation_events_by_operation on oncebox.operation_events (operation_id, event_id);
comment on table oncebox.operation_events is 'The trace: one row a transition. Never arguments, responses or secrets.';

create table oncebox.dead_letters (
    dead_letter_id uuid primary key,
    at             timestamptz not null default clock_timestamp(),
    queue          text not null check (octet_length(queue) <= 300),
    reason         text not null check (octet_length(reason) <= 100),
    body           bytea not null,
    headers        text not null default '' check (octet_length(headers) <= 65536),
    message_id     text check (octet_length(message_id) <= 300),
    operation_id   uuid,
    tenant_id      text,
    copies         integer not null default 1,
    resolved_at    timestamptz,
    resolution     text check (octet_length(resolution) <= 400)
);
create index dead_letters_open on oncebox.dead_letters (at) where resolved_at is null;
comment on table oncebox.dead_letters is 'Messages that could not be understood or have no record, byte for byte.';

create table oncebox.workers (
    worker       text not null check (octet_length(worker) <= 200),
    tool_name    text collate "C" not null,
    tool_version text collate "C" not null,
    started_at   timestamptz not null default clock_timestamp(),
    seen_at      timestamptz not null default clock_timestamp(),
    primary key (worker, tool_name, tool_version)
);
comment on table oncebox.workers is 'Which live worker serves which contract version; kept fresh by the worker itself.';

create table oncebox.publishers (
    role      name not null,
    tenant_id text collate "C" not null check (octet_length(tenant_id) <= 63),
    primary key (role, tenant_id)
);
comment on table oncebox.publishers is 'A login role (session_user) with rows here may submit for these tenants only; one without rows for every tenant. Membership in a role with rows limits nobody.';
