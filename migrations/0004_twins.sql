-- The same call under a new key: one row a digest decides who goes first.
--
-- The digest is of tenant, environment, tool and material arguments. The row is a lock and nothing
-- more: a claim that asks for its twins holds it until it has written what it decided, and whoever
-- ends holds it while it looks for those who wait. Rows are made by claims and go when nobody with
-- the digest is open.

create table oncebox.twins (
    twin_digest text collate "C" primary key check (octet_length(twin_digest) <= 100),
    made_at     timestamptz not null default clock_timestamp()
);
comment on table oncebox.twins is 'A lock a digest, while somebody with this digest is open. Who goes and who is held stands in operations.';

-- Who stands before a twin: those that go already, then those that wait, the oldest first.
create index operations_twins_open on oncebox.operations (twin_digest, twin_released, opened_at, operation_id)
    where twin_digest is not null and status in ('pending', 'unknown');
-- Who has ended lately, and may have had an effect.
create index operations_twins_ended on oncebox.operations (twin_digest, updated_at)
    where twin_digest is not null and status in ('applied', 'failed_permanent');
comment on column oncebox.operations.twin_released is 'Nothing holds it back any more: at a claim no twin stood before it, or an operator said so.';
comment on column oncebox.operations.held_behind is 'The twin that it is held behind, or was rejected for.';
