-- The one statement both doors go through, and the door for SQL callers.
--
-- A submission never locks a record that exists, because the application may hold its transaction
-- open for minutes: insert, on conflict do nothing, then a plain read in a statement of its own.
-- Waiting for somebody else's uncommitted insert ends at a lock time-out with an error, which is
-- never turned into an answer: the other may still roll back.

-- Nobody who calls the door may change what runs behind it. Bodies written after `return` are read
-- once, here: no search path, temporary object or string setting of a later session reaches them.
-- The other functions fix their search path with pg_temp last; left out, it would be searched FIRST
-- for types, and a caller's temporary domain `uuid` or `json` would run its check as our owner.

-- Time-ordered id (RFC 9562, version 7): milliseconds, then random bits.
create function oncebox.new_id() returns uuid
language sql volatile parallel safe
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid;

-- The shapes of domain/key/shape.rs; a test holds the two side by side.
create function oncebox.looks_secret(part text) returns boolean
language sql immutable parallel safe
return part collate "C" ~ '(^|[^A-Za-z0-9])(sk|rk)_(live|test)_[A-Za-z0-9]'
    or part collate "C" ~ '(^|[^A-Za-z0-9])whsec_[A-Za-z0-9+/]'
    or part collate "C" ~ '(^|[^A-Za-z0-9])Bearer +[A-Za-z0-9._~+/-]'
    or part collate "C" ~ '(^|[^A-Za-z0-9])[Bb][Ee][Aa][Rr][Ee][Rr] +[A-Za-z0-9._~+/-]{16}'
    or part collate "C" ~ '(^|[^A-Za-z0-9])eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.'
    or part collate "C" ~ '(^|[^A-Za-z0-9])(gh[oprsu]|github_pat)_[A-Za-z0-9]'
    or part collate "C" ~ '(^|[^A-Za-z0-9])A(KI|SI)A[A-Z0-9]{16}'
    or part collate "C" ~ '(^|[^A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9]'
    or part collate "C" ~ '-----BEGIN';

create function oncebox.looks_like_email(part text) returns boolean
language sql immutable parallel safe
return part collate "C" ~ '[^ @](@|%40)([^ @.]+\.)+[^ @.0-9]{2}';

-- Unicode category Cc, which is what Rust's char::is_control asks for.
create function oncebox.holds_control(part text) returns boolean
language sql immutable parallel safe
return part collate "C" ~ '[\u0001-\u001f\u007f-\u009f]';

-- The operation key by the rule of domain/key.rs; a test holds the two side by side.
create function oncebox.operation_key(tenant text, environment text, workflow_id text, step_id text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    part text;
    part_name text;
    allow_email boolean := exists (
        select from oncebox.settings s where s.name = 'key_allows_email' and s.value = 'on');
begin
    foreach part_name in array array['tenant', 'environment', 'workflow_id', 'step_id'] loop
        part := case part_name when 'tenant' then tenant when 'environment' then environment
                               when 'workflow_id' then workflow_id else step_id end;
        if part is null or part = '' then
            raise exception 'oncebox: % is empty; give every part of the operation key', part_name using errcode = '22023';
        end if;
        if part_name in ('tenant', 'environment') then
            if part collate "C" !~ '^[a-z0-9][a-z0-9_-]{0,62}$' then
                raise exception 'oncebox: % must match [a-z0-9][a-z0-9_-]{0,62}', part_name using errcode = '22023';
            end if;
        else
            if octet_length(convert_to(part, 'UTF8')) > 200 then
                raise exception 'oncebox: % is longer than 200 bytes; use a shorter id', part_name using errcode = '22023';
            end if;
            if oncebox.holds_control(part) then
                raise exception 'oncebox: % holds a control character; use an opaque id', part_name using errcode = '22023';
            end if;
        end if;
        if oncebox.looks_secret(part) then
            raise exception 'oncebox: % looks like a secret; use an opaque id', part_name using errcode = '22023';
        end if;
        if not allow_email and oncebox.looks_like_email(part) then
            raise exception 'oncebox: % looks like an e-mail address; use an opaque id', part_name using errcode = '22023';
        end if;
    end loop;
    return tenant || ':' || environment
        || ':' || replace(replace(workflow_id, '%', '%25'), ':', '%3A')
        || ':' || replace(replace(step_id, '%', '%25'), ':', '%3A');
end $$;

-- Wakes an idle relay when a row that is due commits.
--
-- A notification in every transaction makes committers queue behind each other (ADR 0004). An idle
-- relay therefore holds an advisory lock, and only a commit that finds it held notifies. The
-- trigger is deferred, so the question is asked at the commit, not when the row was written.
create function oncebox.wake_relay() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if new.due_at <= clock_timestamp() then
        if pg_try_advisory_lock_shared(31365095596650360) then
            perform pg_advisory_unlock_shared(31365095596650360);
        elsif exists (select from oncebox.settings s where s.name = 'wake_by_notify' and s.value = 'on') then
            perform pg_notify('oncebox_outbox', '');
        end if;
    end if;
    return null;
end $$;

create constraint trigger outbox_wakes_relay after insert on oncebox.outbox
    deferrable initially deferred for each row execute function oncebox.wake_relay();

-- The advisory lock of one ordering key. Two keys that share a number wait for each other; no harm.
create function oncebox.order_lock(tenant text, environment text, tool text, ordering_key text) returns bigint
language sql stable parallel safe
return hashtextextended(concat_ws(chr(1), tenant, environment, tool, ordering_key), 0);

-- Inserts what is not there yet, in key order, with outbox row and trace; answers the ids inserted.
-- Array members with the same index belong to one submission. Takes no lock on existing records;
-- waits at most five seconds for an uncommitted insert of the same key (55P03: the caller rolls
-- back and repeats). Commits durably whatever the role's default says.
create function oncebox.insert_operations(
    ids uuid[], tenants text[], environments text[], keys text[], tools text[], versions text[],
    fingerprints text[], digests text[], arguments_texts text[], metadata_texts text[], actors text[],
    ordering_keys text[], not_befores timestamptz[], distinct_froms text[], traceparents text[], twin_digests text[]
) returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
    ordered record;
    inserted uuid[];
begin
    if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    -- One lock an ordering key, in one order, held to the commit: numbers then follow commits. A
    -- submission whose record stands takes no number, so it keeps nobody waiting either.
    for ordered in
        select distinct oncebox.order_lock(t.tenant, t.environment, t.tool, t.ordering_key) as lock_key
        from unnest(tenants, environments, tools, ordering_keys, keys) as t(tenant, environment, tool, ordering_key, key)
        where t.ordering_key is not null
          and not exists (select from oncebox.operations o where o.tenant_id = t.tenant and o.operation_key = t.key)
        order by 1
    loop
        perform pg_advisory_xact_lock(ordered.lock_key);
    end loop;
    with submission as materialized (
        -- Order numbers and ages follow the caller's list, whatever order the rows are inserted in.
        select s.*, clock_timestamp() as opened, greatest(clock_timestamp(), s.not_before) as due,
               case when s.ordering_key is not null then nextval('oncebox.order_numbers') end as order_number
        from unnest(ids, tenants, environments, keys, tools, versions, fingerprints, digests,
                    arguments_texts, metadata_texts, actors, ordering_keys, not_befores, distinct_froms, traceparents,
                    twin_digests)
            as s(id, tenant, environment, key, tool, version, fingerprint, digest, arguments_text,
                 metadata_text, actor, ordering_key, not_before, distinct_from, traceparent, twin_digest)
    ), record as (
        insert into oncebox.operations (
            operation_id, tenant_id, environment, operation_key, tool_name, tool_version,
            request_fingerprint, material_digests, arguments, metadata, actor, traceparent, distinct_from, results,
            due_at, opened_at, queued_at, ordering_key, order_number, twin_digest, created_at, updated_at)
        select s.id, s.tenant, s.environment, s.key, s.tool, s.version, s.fingerprint, s.digest::json,
               s.arguments_text::json, s.metadata_text::json, s.actor, s.traceparent, s.distinct_from,
               exists (select from oncebox.contracts c
                       where c.tool_name = s.tool and c.tool_version = s.version and c.results),
               s.due, s.opened, s.due,
               s.ordering_key, s.order_number, s.twin_digest, clock_timestamp(), clock_timestamp()
        from submission s
        order by s.tenant collate "C", s.key collate "C"
        on conflict on constraint operations_one_per_key do nothing
        returning operation_id, tenant_id, operation_key, tool_name, traceparent, due_at, request_fingerprint
    ), message as (
        insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at)
        -- Dated after the record's insert, which may have waited for somebody else's: a date older than
        -- this transaction's id could lie below a relay's mark (ADR 0005).
        select oncebox.new_id(), r.tool_name, r.tenant_id, r.operation_id, r.operation_key, r.traceparent,
               greatest(clock_timestamp(), r.due_at)
        from record r
    ), trace as (
        insert into oncebox.operation_events (operation_id, event)
        select r.operation_id, e.event
        from record r, unnest(array['proposed', 'validated']) as e(event)
        where e.event = 'proposed' or r.request_fingerprint is not null
    )
    select coalesce(array_agg(r.operation_id), '{}') into inserted from record r;
    return inserted;
end $$;

-- Opens a rejected, never sent record again, if it is still as it was read (`seen`): queued, with a
-- new outbox row, attempts from zero, and of the new submission all that is not the request: its
-- actor, metadata, ordering key and times. With an ordering key it takes a new number, under the
-- lock: under the old one it would run beside those that went ahead meanwhile. False: read again and
-- answer what is there.
create function oncebox.reopen_operation(
    id uuid, seen timestamptz, tool text, version text, fingerprint text, digest text,
    arguments_text text, metadata_text text, actor text, ordering_key text, not_before timestamptz,
    distinct_from text, traceparent text, twin_digest text
) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
    opened oncebox.operations;
begin
    if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if reopen_operation.ordering_key is not null then
        perform pg_advisory_xact_lock(oncebox.order_lock(o.tenant_id, o.environment, reopen_operation.tool, reopen_operation.ordering_key))
        from oncebox.operations o where o.operation_id = id;
    end if;
    update oncebox.operations o
    set status = 'pending', phase = 'queued', reason = null, tool_name = reopen_operation.tool,
        tool_version = version, request_fingerprint = fingerprint, material_digests = digest::json,
        arguments = arguments_text::json, metadata = metadata_text::json, actor = reopen_operation.actor,
        traceparent = reopen_operation.traceparent, distinct_from = reopen_operation.distinct_from,
        results = exists (select from oncebox.contracts c
                          where c.tool_name = reopen_operation.tool and c.tool_version = version and c.results),
        attempts = 0, deferrals = 0, lost_claims = 0, sweeps = 0, lookups = 0,
        provider_job = null, accepted_at = null, job_alone = false,
        twin_digest = reopen_operation.twin_digest, held_behind = null, twin_released = false,
        opened_at = clock_timestamp(), due_at = greatest(clock_timestamp(), not_before),
        queued_at = greatest(clock_timestamp(), not_before),
        ordering_key = reopen_operation.ordering_key,
        order_number = case when reopen_operation.ordering_key is not null then nextval('oncebox.order_numbers') end,
        waiting_for_order = false, order_released = false, updated_at = clock_timestamp()
    where o.operation_id = id and o.status = 'rejected' and o.first_sent_at is null and o.updated_at = seen
    returning o.* into opened;
    if not found then
        return false;
    end if;
    insert into oncebox.outbox (id, queue, tenant_id, operation_id, operation_key, traceparent, due_at)
    values (oncebox.new_id(), opened.tool_name, opened.tenant_id, opened.operation_id, opened.operation_key,
            opened.traceparent, opened.due_at);
    insert into oncebox.operation_events (operation_id, event, claim_epoch, detail)
    values (id, 'proposed', opened.claim_epoch, '{"reopened":true}');
    return true;
end $$;

-- The key of the older operation that this one is or was held behind.
create function oncebox.held_behind_key(o oncebox.operations) returns text
language sql stable parallel safe
return (select t.operation_key from oncebox.operations t where t.operation_id = o.held_behind);

-- The outcome envelope of a submission, without `response`; domain/outcome.rs is the same table in
-- Rust, and a test holds the two side by side for every status.
create function oncebox.submission_envelope(o oncebox.operations, mismatch boolean) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    status text;
    safe boolean;
    action text;
    reason text := o.reason;
    wait integer;
begin
    if mismatch then
        status := 'rejected'; safe := false; action := 'inspect_operation';
        reason := 'operation_key_reused_with_different_request';
    elsif o.status = 'pending' then
        status := 'in_flight'; safe := false;
        action := case o.phase when 'awaiting_approval' then 'ask_for_approval' when 'held' then 'inspect_operation' else 'poll' end;
        wait := least(greatest(ceil(extract(epoch from o.due_at - clock_timestamp())), 1), 3600);
    elsif o.status = 'applied' then
        status := 'replayed'; safe := true; action := 'none';
    elsif o.status = 'unknown' then
        status := 'unknown'; safe := false; action := 'reconcile';
    elsif o.status = 'failed_permanent' then
        status := 'failed_permanent'; safe := false; action := 'new_operation';
    elsif o.status = 'expired' then
        status := 'expired_operation'; safe := false; action := 'new_operation';
    else
        status := 'rejected'; safe := o.first_sent_at is null;
        action := case when o.first_sent_at is not null then 'inspect_operation'
                       when o.reason in ('approval_expired', 'approval_timed_out') then 'ask_for_approval'
                       when o.reason = 'suspected_twin' then 'inspect_operation'
                       else 'none' end;
    end if;
    return json_build_object(
        'status', status, 'operation_id', o.operation_id, 'operation_key', o.operation_key,
        'effect_reference', case when not mismatch then o.effect_reference end,
        'response', null, 'safe_to_repeat', safe, 'next_action', action, 'retry_after_seconds', wait,
        'reason', reason, 'tool', o.tool_name, 'tool_version', o.tool_version,
        'suspected_twin_of', case when not mismatch and o.reason = 'suspected_twin' then oncebox.held_behind_key(o) end);
end $$;

-- Publishes one operation inside the caller's own transaction, for callers in any language.
--
-- When the key exists, tool, version and the bytes of the arguments must be the same, else the
-- answer is `rejected`: SQL may call different what Rust would call equal, never the reverse.
-- `metadata` is never compared. Input that cannot stand raises an error (22023, 42501, 55P03), so
-- that the business rows of the same transaction go with it.
create function oncebox.submit(
    tenant text, environment text, workflow_id text, step_id text, tool text, tool_version text, arguments json,
    actor text default null, metadata json default null, ordering_key text default null,
    not_before timestamptz default null, distinct_from text default null, traceparent text default null
) returns json
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    key text;
    version text;
    existing oncebox.operations;
    same boolean;
    inserted uuid[];
    id uuid;
begin
    if exists (select from oncebox.publishers p where p.role = session_user)
       and not exists (select from oncebox.publishers p where p.role = session_user and p.tenant_id = submit.tenant) then
        raise exception 'oncebox: this role may not submit for this tenant; ask for a row in oncebox.publishers' using errcode = '42501';
    end if;
    key := oncebox.operation_key(tenant, environment, workflow_id, step_id);
    if arguments is null then
        raise exception 'oncebox: arguments are missing; pass a JSON object' using errcode = '22023';
    end if;
    if octet_length(arguments::text) > 1048576 or octet_length(metadata::text) > 65536 then
        raise exception 'oncebox: arguments may have 1 MiB, metadata 64 KiB' using errcode = '22023';
    end if;
    if ordering_key is not null and not_before is not null then
        raise exception 'oncebox: ordering_key and not_before exclude each other' using errcode = '22023';
    end if;
    -- Further away than every program here can read a time: such a row would stop its reader.
    if not_before >= '9000-01-01 00:00:00+00' then
        raise exception 'oncebox: not_before must be before the year 9000' using errcode = '22023';
    end if;
    if octet_length(ordering_key) not between 1 and 200 or octet_length(actor) > 200
       or octet_length(distinct_from) > 1400 then
        raise exception 'oncebox: ordering_key and actor may have 200 bytes, distinct_from 1400' using errcode = '22023';
    end if;
    if traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
        raise exception 'oncebox: traceparent is not of the W3C form' using errcode = '22023';
    end if;
    for attempt in 1..10 loop
        select c.tool_version into version from oncebox.contracts c
        where c.tool_name = submit.tool
          and case when submit.tool_version is null then c.is_current else c.tool_version = submit.tool_version end;
        if found then
            id := oncebox.new_id();
            inserted := oncebox.insert_operations(
                array[id], array[tenant], array[environment], array[key], array[tool], array[version],
                array[null::text], array[null::text], array[arguments::text], array[metadata::text], array[actor],
                array[ordering_key], array[not_before], array[distinct_from], array[traceparent], array[null::text]);
        end if;
        -- A statement of its own: under READ COMMITTED it sees what the insert waited for.
        select o.* into existing from oncebox.operations o
        where o.tenant_id = submit.tenant and o.operation_key = key;
        if not found then
            if version is null then
                raise exception 'oncebox: tool or version is not registered, or the tool has no current version; activate its contract' using errcode = '22023';
            end if;
            continue;
        end if;
        if inserted = array[existing.operation_id] then
            return oncebox.submission_envelope(existing, false);
        end if;
        same := existing.tool_name = tool
            and (submit.tool_version is null or existing.tool_version = submit.tool_version)
            and existing.arguments::text = submit.arguments::text;
        if existing.status = 'rejected' and existing.first_sent_at is null
           -- A suspected twin comes again only with the application's word that a second effect is meant.
           and (existing.reason is distinct from 'suspected_twin'
                or submit.distinct_from = oncebox.held_behind_key(existing))
           and (same or (version is not null
                and existing.reason = 'invalid_arguments' and existing.request_fingerprint is null)) then
            if oncebox.reopen_operation(existing.operation_id, existing.updated_at, tool,
                    case when same then existing.tool_version else version end,
                    null, null, arguments::text, metadata::text, actor,
                    ordering_key, not_before, distinct_from, traceparent, null) then
                select o.* into existing from oncebox.operations o where o.operation_id = existing.operation_id;
                return oncebox.submission_envelope(existing, false);
            end if;
            continue;
        end if;
        return oncebox.submission_envelope(existing, same is not true);
    end loop;
    raise exception 'oncebox: the record changed too often while it was read; roll back and repeat' using errcode = '40001';
end $$;

revoke all on all functions in schema oncebox from public;
