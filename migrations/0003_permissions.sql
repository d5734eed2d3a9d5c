-- Who may, and who said so.
--
-- A grant lets an actor send a tool's operations; it is asked right before each send. An approval is a
-- person's answer to one operation with one fingerprint. Both are read in the very transaction that
-- marks an operation as sent, so that what was taken back before the effect stops it.

create table oncebox.grants (
    grant_id    uuid primary key,
    tenant_id   text collate "C" not null check (octet_length(tenant_id) between 1 and 63),
    actor       text collate "C" not null check (octet_length(actor) between 1 and 200),
    tool_name   text collate "C" not null check (octet_length(tool_name) between 1 and 64),
    -- Places of the arguments with the values that the grant is limited to: {"/queue": ["support"]}.
    arguments   json check (octet_length(arguments::text) <= 65536),
    valid_from  timestamptz not null default clock_timestamp(),
    valid_until timestamptz,
    revoked_at  timestamptz,
    granted_by  text not null check (octet_length(granted_by) between 1 and 200),
    granted_at  timestamptz not null default clock_timestamp(),
    revoked_by  text check (octet_length(revoked_by) between 1 and 200),
    constraint grants_revoked_by_somebody check (revoked_by is null or revoked_at is not null)
);
create index grants_by_actor on oncebox.grants (tenant_id, tool_name, actor);
comment on table oncebox.grants is 'Rows are never changed but to revoke them; the actor of a submission needs one that is in force for contracts with authorization: {grants: true}.';

create table oncebox.approvals (
    operation_id        uuid not null,
    request_fingerprint text collate "C" not null check (octet_length(request_fingerprint) <= 100),
    state               text not null default 'requested' check (state in ('requested', 'approved', 'denied', 'withdrawn')),
    requested_at        timestamptz not null default clock_timestamp(),
    answered_at         timestamptz,
    answered_by         text check (octet_length(answered_by) <= 200),
    answer_reason       text check (octet_length(answer_reason) <= 2000),
    expires_at          timestamptz,
    primary key (operation_id, request_fingerprint),
    constraint approvals_answer_has_person check ((state = 'requested') = (answered_by is null)),
    constraint approvals_yes_expires check (state <> 'approved' or expires_at is not null)
);
create index approvals_open on oncebox.approvals (requested_at) where state = 'requested';
comment on table oncebox.approvals is 'One row a request for approval: of one operation with one fingerprint.';
