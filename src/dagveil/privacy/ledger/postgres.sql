-- What PostgreSQL itself keeps, whatever program is connected: entries are only added, each by its own author, bound to
-- the one before, within budget and limit. Analysts may execute dagveil_lock and dagveil_append, and read; no more.
-- {schema} is the schema of the tables. The digest is that of entries.py.

CREATE FUNCTION {schema}.dagveil_netstring(field text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT convert_to(octet_length(convert_to(field, 'UTF8'))::text || ':', 'UTF8')
        || convert_to(field, 'UTF8') || convert_to(',', 'UTF8')
$$;

CREATE FUNCTION {schema}.dagveil_owns() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = '{schema}.dagveil_entries'::regclass
$$;

CREATE FUNCTION {schema}.dagveil_lock() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
BEGIN
    PERFORM 1 FROM dagveil_facts WHERE name = 'version' FOR UPDATE;
END
$$;

-- Adds up exact fractions, written as 3 or 1/3, and says whether the sum is at most another.
CREATE FUNCTION {schema}.dagveil_fits(amounts text[], most text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $$
DECLARE
    amount text;
    top numeric := 0;
    bottom numeric := 1;
    up numeric;
    down numeric;
    common numeric;
BEGIN
    FOREACH amount IN ARRAY amounts LOOP
        up := split_part(amount, '/', 1)::numeric;
        down := coalesce(nullif(split_part(amount, '/', 2), ''), '1')::numeric;
        top := top * down + up * bottom;
        bottom := bottom * down;
        common := gcd(top, bottom);
        top := div(top, common);
        bottom := div(bottom, common);
    END LOOP;
    up := split_part(most, '/', 1)::numeric;
    down := coalesce(nullif(split_part(most, '/', 2), ''), '1')::numeric;
    RETURN top * down <= up * bottom;
END
$$;

CREATE FUNCTION {schema}.dagveil_append(
    new_kind text, new_dataset text, new_run bigint, new_body text, OUT entry bigint, OUT run_number bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $$
DECLARE
    author text := session_user;
    reservation record;
    budget json;
    own_limit json;
    touched boolean;
    part text;
    last record;
    now_utc text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'entries are added in transactions that are read committed' USING ERRCODE = 'DV005';
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);  -- durable, whatever the client prefers
    PERFORM dagveil_lock();
    run_number := NULL;
    IF new_body IS NULL OR new_dataset IS NULL OR length(new_body) > 1000000 THEN
        RAISE EXCEPTION 'an entry has a data set and a body of at most 1000000 characters' USING ERRCODE = 'DV005';
    END IF;
    PERFORM new_body::json;
    IF new_kind IN ('budget', 'limit', 'grant', 'revoke') THEN
        IF NOT dagveil_owns() THEN
            RAISE EXCEPTION 'only the ledger''s owner may change budgets, limits and grants, and % is not; ask the owner.',
                quote_literal(author) USING ERRCODE = 'DV003';
        END IF;
    ELSIF new_kind = 'reserve' THEN
        IF new_dataset = ''
            OR coalesce(new_body::json ->> 'epsilon', '') !~ '^[1-9][0-9]*(/[1-9][0-9]*)?$'
            OR coalesce(new_body::json ->> 'delta', '') !~ '^(0|[1-9][0-9]*)(/[1-9][0-9]*)?$' THEN
            RAISE EXCEPTION 'a reservation names its data set, epsilon and delta' USING ERRCODE = 'DV005';
        END IF;
        SELECT body::json INTO budget FROM dagveil_entries
            WHERE dataset = new_dataset AND kind = 'budget' ORDER BY seq DESC LIMIT 1;
        SELECT body::json INTO own_limit FROM dagveil_entries
            WHERE dataset = new_dataset AND kind = 'limit' AND body::json ->> 'analyst' = author
            ORDER BY seq DESC LIMIT 1;
        FOREACH part IN ARRAY ARRAY['epsilon', 'delta'] LOOP
            IF budget ->> part IS NOT NULL AND NOT dagveil_fits(
                dagveil_counted(new_dataset, NULL, part) || (new_body::json ->> part), budget ->> part
            ) THEN
                RAISE EXCEPTION 'the run would exceed the lifetime % of %; nothing was drawn.', part,
                    quote_literal(new_dataset) USING ERRCODE = 'DV001';
            END IF;
            IF own_limit ->> part IS NOT NULL AND NOT dagveil_fits(
                dagveil_counted(new_dataset, author, part) || (new_body::json ->> part), own_limit ->> part
            ) THEN
                RAISE EXCEPTION 'the run would exceed the % that % may spend on %; nothing was drawn.', part,
                    quote_literal(author), quote_literal(new_dataset) USING ERRCODE = 'DV001';
            END IF;
        END LOOP;
        SELECT 1 + coalesce(max(run), 0) INTO run_number FROM dagveil_entries;
    ELSIF new_kind IN ('charge', 'unbounded', 'close', 'release') THEN
        run_number := new_run;
        SELECT dataset, analyst INTO reservation FROM dagveil_entries WHERE run = new_run AND kind = 'reserve';
        IF NOT FOUND OR EXISTS (
            SELECT 1 FROM dagveil_entries WHERE run = new_run AND kind IN ('close', 'release')
        ) THEN
            RAISE EXCEPTION 'run % is not open any more; nothing was drawn. Reserve a new run.', new_run
                USING ERRCODE = 'DV002';
        END IF;
        IF reservation.analyst <> author AND (new_kind IN ('charge', 'unbounded') OR NOT dagveil_owns()) THEN
            RAISE EXCEPTION 'run % is not yours but %''s; nothing was drawn.', new_run, quote_literal(reservation.analyst)
                USING ERRCODE = 'DV004';
        END IF;
        touched := EXISTS (SELECT 1 FROM dagveil_entries WHERE run = new_run AND kind IN ('charge', 'unbounded'));
        IF new_kind = 'release' AND touched THEN
            RAISE EXCEPTION 'run % has charges and cannot be released', new_run USING ERRCODE = 'DV002';
        ELSIF new_kind = 'close' AND NOT touched THEN
            new_kind := 'release';
        END IF;
        new_dataset := reservation.dataset;
    ELSE
        RAISE EXCEPTION 'no entry is of the kind %', quote_literal(new_kind) USING ERRCODE = 'DV005';
    END IF;
    SELECT seq, digest INTO last FROM dagveil_entries ORDER BY seq DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the ledger has no entries: it was emptied. Restore a backup.' USING ERRCODE = 'DV005';
    END IF;
    entry := last.seq + 1;
    now_utc := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"');
    INSERT INTO dagveil_entries (seq, kind, dataset, run, analyst, body, recorded, previous, digest) VALUES (
        entry, new_kind, new_dataset, run_number, author, new_body, now_utc, last.digest,
        encode(sha256(
            dagveil_netstring(last.digest) || dagveil_netstring(entry::text) || dagveil_netstring(new_kind)
            || dagveil_netstring(new_dataset) || dagveil_netstring(coalesce(run_number::text, ''))
            || dagveil_netstring(author) || dagveil_netstring(new_body) || dagveil_netstring(now_utc)
        ), 'hex')
    );
END
$$;

-- Amounts of the runs that count: open ones, and all that have a charge. Of one analyst, or of all if that is NULL.
CREATE FUNCTION {schema}.dagveil_counted(of_dataset text, of_analyst text, part text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, {schema}, pg_temp AS $$
    SELECT coalesce(array_agg(reserved.body::json ->> part), ARRAY[]::text[])
    FROM dagveil_entries AS reserved
    WHERE reserved.dataset = of_dataset AND reserved.kind = 'reserve'
        AND (of_analyst IS NULL OR reserved.analyst = of_analyst)
        AND NOT EXISTS (
            SELECT 1 FROM dagveil_entries AS ended WHERE ended.run = reserved.run AND ended.kind = 'release'
        )
$$;

CREATE FUNCTION {schema}.dagveil_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the history is append-only' USING ERRCODE = 'DV006';
END
$$;

CREATE TRIGGER dagveil_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.dagveil_entries
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.dagveil_refuse();

REVOKE ALL ON {schema}.dagveil_facts, {schema}.dagveil_entries FROM PUBLIC;
REVOKE ALL ON FUNCTION {schema}.dagveil_netstring(text), {schema}.dagveil_owns(), {schema}.dagveil_lock(),
    {schema}.dagveil_fits(text[], text), {schema}.dagveil_counted(text, text, text), {schema}.dagveil_refuse(),
    {schema}.dagveil_append(text, text, bigint, text) FROM PUBLIC;
