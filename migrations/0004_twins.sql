-- The same call under a new key: one row a digest decides who goes first.
--
-- The digest is of tenant, environment, tool and material arguments. A first claim takes the row's lock
-- before it looks for twins, so that two claims at once see each other, whichever worker makes them.

create table oncebox.twins (
    twin_digest  text collate "C" primary key check (octet_length(twin_digest) <= 100),
    operation_id uuid not null,
    taken_at     timestamptz not null default clock_timestamp()
);
comment on table oncebox.twins is 'Who of the operations with this digest goes, or went last. Locked by claims only.';
