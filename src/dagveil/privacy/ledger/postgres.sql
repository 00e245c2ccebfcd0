-- What PostgreSQL itself keeps, whatever program is connected: entries are only added, each by its own author, bound to
-- the one before, within budget and limit, and readable. Analysts may execute dagveil_append, and read; no more.
-- {schema} is the schema of the tables. The digest is that of entries.py.
-- Every function fixes its search path to the system's own schema, where nobody but a superuser can put anything, and
-- names all else with its schema: no object of an analyst's can stand in for an operator, a function or a table.

CREATE FUNCTION {schema}.dagveil_netstring(field text) RETURNS bytea
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT convert_to(octet_length(convert_to(field, 'UTF8'))::text || ':', 'UTF8')
        || convert_to(field, 'UTF8') || convert_to(',', 'UTF8')
$$;

CREATE FUNCTION {schema}.dagveil_owns() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = '{schema}.dagveil_entries'::regclass
$$;

CREATE FUNCTION {schema}.dagveil_check_owner() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT {schema}.dagveil_owns() THEN
        RAISE EXCEPTION 'only the ledger''s owner may change budgets, limits and grants, and % is not; ask the owner.',
            quote_literal(session_user) USING ERRCODE = 'DV003';
    END IF;
END
$$;

-- For owners, who read before they write. Analysts hold the lock for one entry only.
CREATE FUNCTION {schema}.dagveil_lock() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.dagveil_check_owner();
    PERFORM 1 FROM {schema}.dagveil_facts WHERE name = 'version' FOR UPDATE;
END
$$;

-- Whether a text is an exact fraction of at most 400 digits above and below, such as 3 or 1/3.
CREATE FUNCTION {schema}.dagveil_is_amount(amount text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT amount IS NOT NULL AND length(amount) <= 801
        AND length(split_part(amount, '/', 1)) <= 400 AND length(split_part(amount, '/', 2)) <= 400
        AND amount ~ '^(0|[1-9][0-9]*)(/[1-9][0-9]*)?$'
$$;

CREATE FUNCTION {schema}.dagveil_value(amount text) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(amount, '/', 1)::numeric / coalesce(nullif(split_part(amount, '/', 2), ''), '1')::numeric
$$;

-- Adds up exact fractions, and says whether the sum is at most another times a share.
CREATE FUNCTION {schema}.dagveil_fits(amounts text[], most text, share numeric) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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
    RETURN top * down <= share * up * bottom;
END
$$;

-- Whether runs that add up so stay within an allowance; composition.py has the same rule.
CREATE FUNCTION {schema}.dagveil_admits(
    allowance json, epsilons text[], deltas text[], rhos text[], failures text[]
) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN {schema}.dagveil_fits(epsilons, allowance ->> 'epsilon', 1)
            AND {schema}.dagveil_fits(
                deltas, allowance ->> 'delta', CASE WHEN allowance ->> 'rho' IS NULL THEN 1 ELSE 0.5 END
            ) THEN true
        WHEN allowance ->> 'rho' IS NULL THEN false
        ELSE {schema}.dagveil_fits(rhos, allowance ->> 'rho', 1)
            AND {schema}.dagveil_fits(failures, allowance ->> 'delta', 0.125)
    END
$$;

-- Amounts of the runs that count: open ones, and all that have a charge. Of one analyst, or of all if that is NULL.
CREATE FUNCTION {schema}.dagveil_counted(of_dataset text, of_analyst text, part text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(reserved.body::json ->> part), ARRAY[]::text[])
    FROM {schema}.dagveil_entries AS reserved
    WHERE reserved.dataset = of_dataset AND reserved.kind = 'reserve'
        AND (of_analyst IS NULL OR reserved.analyst = of_analyst)
        AND NOT EXISTS (
            SELECT 1 FROM {schema}.dagveil_entries AS ended WHERE ended.run = reserved.run AND ended.kind = 'release'
        )
$$;

-- Refuses a body that the program could not read: exactly these keys, amounts, whole numbers and short texts.
CREATE FUNCTION {schema}.dagveil_check_body(
    body json, amounts text[], optional_amounts text[], numbers text[], optional_numbers text[], texts text[]
) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
    content json;
    known text[] := amounts || optional_amounts || numbers || optional_numbers || texts;
BEGIN
    IF json_typeof(body) <> 'object' OR (SELECT count(*) <> count(DISTINCT key) FROM json_object_keys(body) AS key) THEN
        RAISE EXCEPTION 'the body of an entry is an object whose keys differ' USING ERRCODE = 'DV005';
    END IF;
    FOR name IN SELECT json_object_keys(body) LOOP
        IF NOT name = ANY (known) THEN
            RAISE EXCEPTION 'the body of this entry has no place for %', quote_literal(left(name, 40))
                USING ERRCODE = 'DV005';
        END IF;
    END LOOP;
    FOREACH name IN ARRAY known LOOP
        content := body -> name;
        IF coalesce(json_typeof(content), 'null') = 'null' THEN
            IF name = ANY (optional_amounts || optional_numbers) THEN
                CONTINUE;
            END IF;
            RAISE EXCEPTION 'the body of this entry lacks %', quote_literal(name) USING ERRCODE = 'DV005';
        END IF;
        IF name = ANY (numbers || optional_numbers) THEN
            IF json_typeof(content) <> 'number' OR content::text !~ '^[0-9]{1,18}$' THEN
                RAISE EXCEPTION '% is not a whole number', quote_literal(name) USING ERRCODE = 'DV005';
            END IF;
        ELSIF json_typeof(content) <> 'string' OR length(body ->> name) > 2000 THEN
            RAISE EXCEPTION '% is not a text of at most 2000 characters', quote_literal(name) USING ERRCODE = 'DV005';
        ELSIF NOT name = ANY (texts) AND NOT {schema}.dagveil_is_amount(body ->> name) THEN
            RAISE EXCEPTION '% is not an exact fraction such as 1/3', quote_literal(name) USING ERRCODE = 'DV005';
        END IF;
    END LOOP;
END
$$;

-- Refuses an event that events.py could not read.
CREATE FUNCTION {schema}.dagveil_check_event(body json) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
BEGIN
    CASE body ->> 'kind'
        WHEN 'discrete-gaussian' THEN
            PERFORM {schema}.dagveil_check_body(
                body, ARRAY['squared_sensitivity', 'variance'], ARRAY[]::text[], ARRAY['draws'], ARRAY['changed'],
                ARRAY['kind', 'label']
            );
        WHEN 'subsampled-gaussian' THEN
            PERFORM {schema}.dagveil_check_body(
                body, ARRAY['rate', 'squared_sensitivity', 'variance'], ARRAY[]::text[], ARRAY[]::text[],
                ARRAY[]::text[], ARRAY['kind', 'label']
            );
        WHEN 'discrete-laplace', 'exponential-choice' THEN
            PERFORM {schema}.dagveil_check_body(
                body, ARRAY['epsilon'], ARRAY[]::text[], ARRAY['draws'], ARRAY[]::text[], ARRAY['kind', 'label']
            );
        WHEN 'sparse-vector-round', 'randomised-response' THEN
            PERFORM {schema}.dagveil_check_body(
                body, ARRAY['epsilon'], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY['kind', 'label']
            );
        WHEN 'smooth-laplace' THEN
            PERFORM {schema}.dagveil_check_body(
                body, ARRAY['epsilon', 'delta'], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[],
                ARRAY['kind', 'label']
            );
        WHEN 'unbounded' THEN
            PERFORM {schema}.dagveil_check_body(
                body, ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[],
                ARRAY['kind', 'label', 'reason']
            );
        ELSE
            RAISE EXCEPTION 'no event is of this kind' USING ERRCODE = 'DV005';
    END CASE;
    FOREACH name IN ARRAY ARRAY['epsilon', 'delta', 'rate', 'squared_sensitivity', 'variance', 'draws'] LOOP
        IF body ->> name = '0' OR body ->> name LIKE '0/%' THEN
            RAISE EXCEPTION '% of an event is above 0', quote_literal(name) USING ERRCODE = 'DV005';
        END IF;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['delta', 'rate'] LOOP
        IF {schema}.dagveil_value(body ->> name) > 1 OR (name = 'delta' AND {schema}.dagveil_value(body ->> name) = 1) THEN
            RAISE EXCEPTION '% of an event is too large', quote_literal(name) USING ERRCODE = 'DV005';
        END IF;
    END LOOP;
END
$$;

-- Refuses a reservation that claims less than its epsilon and delta are worth. The program computes the price exactly,
-- and `budget verify` computes it again; this is a bound from below: rho + 2 sqrt(rho ln(1/delta)) >= epsilon.
CREATE FUNCTION {schema}.dagveil_check_price(body json) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    epsilon numeric := {schema}.dagveil_value(body ->> 'epsilon');
    delta numeric := {schema}.dagveil_value(body ->> 'delta');
    rho numeric := {schema}.dagveil_value(body ->> 'rho');
    failure numeric := {schema}.dagveil_value(body ->> 'failure');
    least_rho numeric := epsilon * epsilon / 2;
    logarithm numeric;
    usable numeric := greatest(epsilon - 0.000000002, 0);
BEGIN
    IF epsilon <= 0 OR delta >= 1 OR failure > delta THEN
        RAISE EXCEPTION 'epsilon is above 0, delta below 1 and no failure above delta' USING ERRCODE = 'DV005';
    END IF;
    IF delta > failure THEN
        logarithm := -ln(delta - failure);
        least_rho := least(least_rho, (usable / (sqrt(logarithm + usable) + sqrt(logarithm))) ^ 2);
    END IF;
    IF rho * 1.01 < least_rho THEN
        RAISE EXCEPTION 'the reservation counts less than its epsilon and delta are worth' USING ERRCODE = 'DV005';
    END IF;
END
$$;

CREATE FUNCTION {schema}.dagveil_append(
    new_kind text, new_dataset text, new_run bigint, new_body text, OUT entry bigint, OUT run_number bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    author text := session_user;
    owner boolean;
    content json;
    reservation record;
    budget json;
    own_limit json;
    other record;
    touched boolean;
    last record;
    now_utc text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'entries are added in transactions that are read committed' USING ERRCODE = 'DV005';
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);  -- durable, whatever the client prefers
    PERFORM 1 FROM {schema}.dagveil_facts WHERE name = 'version' FOR UPDATE;
    run_number := NULL;
    IF new_body IS NULL OR new_dataset IS NULL OR length(new_body) > 20000 OR length(new_dataset) > 200 THEN
        RAISE EXCEPTION 'an entry has a data set of at most 200 characters and a body of at most 20000'
            USING ERRCODE = 'DV005';
    END IF;
    owner := {schema}.dagveil_owns();
    content := new_body::json;
    IF new_kind IN ('budget', 'limit', 'grant', 'revoke') THEN
        PERFORM {schema}.dagveil_check_owner();
        IF new_kind = 'budget' THEN
            PERFORM {schema}.dagveil_check_body(
                content, ARRAY['epsilon', 'delta'], ARRAY['rho'], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[]
            );
        ELSIF new_kind = 'limit' THEN
            PERFORM {schema}.dagveil_check_body(
                content, ARRAY[]::text[], ARRAY['epsilon', 'delta', 'rho'], ARRAY[]::text[], ARRAY[]::text[],
                ARRAY['analyst']
            );
        ELSE
            PERFORM {schema}.dagveil_check_body(
                content, ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[], ARRAY['analyst']
            );
        END IF;
        IF (new_dataset = '') <> (new_kind IN ('grant', 'revoke')) THEN
            RAISE EXCEPTION 'budgets and limits name a data set, grants do not' USING ERRCODE = 'DV005';
        END IF;
    ELSIF new_kind = 'reserve' THEN
        PERFORM {schema}.dagveil_check_body(
            content, ARRAY['epsilon', 'delta', 'rho', 'failure'], ARRAY[]::text[], ARRAY[]::text[], ARRAY[]::text[],
            ARRAY['relation', 'unit', 'accounting', 'method', 'software']
        );
        IF new_dataset = '' OR content ->> 'relation' NOT IN ('add-remove', 'replace-one') THEN
            RAISE EXCEPTION 'a reservation names its data set and its relation' USING ERRCODE = 'DV005';
        END IF;
        PERFORM {schema}.dagveil_check_price(content);
        SELECT body::json INTO budget FROM {schema}.dagveil_entries
            WHERE dataset = new_dataset AND kind = 'budget' ORDER BY seq DESC LIMIT 1;
        IF NOT FOUND AND NOT owner THEN
            RAISE EXCEPTION 'the ledger''s owner has set no budget for %, so nobody else may spend on it; nothing was '
                'drawn. Ask the owner, and check the name.', quote_literal(new_dataset) USING ERRCODE = 'DV003';
        END IF;
        SELECT body::json INTO own_limit FROM {schema}.dagveil_entries
            WHERE dataset = new_dataset AND kind = 'limit' AND body::json ->> 'analyst' = author
            ORDER BY seq DESC LIMIT 1;
        SELECT body::json ->> 'relation' AS relation, body::json ->> 'unit' AS unit INTO other
            FROM {schema}.dagveil_entries AS reserved
            WHERE reserved.dataset = new_dataset AND reserved.kind = 'reserve'
                AND (body::json ->> 'relation' <> content ->> 'relation' OR body::json ->> 'unit' <> content ->> 'unit')
                AND NOT EXISTS (
                    SELECT 1 FROM {schema}.dagveil_entries AS ended
                    WHERE ended.run = reserved.run AND ended.kind = 'release'
                )
            LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '% counts runs under (%, %), and this run has (%, %): their epsilons promise different '
                'things and cannot be added up. Give relation and unit in the schema as the earlier runs had them.',
                quote_literal(new_dataset), other.relation, other.unit, content ->> 'relation', content ->> 'unit'
                USING ERRCODE = 'DV005';
        END IF;
        IF budget IS NOT NULL AND NOT {schema}.dagveil_admits(
            budget,
            {schema}.dagveil_counted(new_dataset, NULL, 'epsilon') || (content ->> 'epsilon'),
            {schema}.dagveil_counted(new_dataset, NULL, 'delta') || (content ->> 'delta'),
            {schema}.dagveil_counted(new_dataset, NULL, 'rho') || (content ->> 'rho'),
            {schema}.dagveil_counted(new_dataset, NULL, 'failure') || (content ->> 'failure')
        ) THEN
            RAISE EXCEPTION 'the run would exceed the lifetime budget of %; nothing was drawn.',
                quote_literal(new_dataset) USING ERRCODE = 'DV001';
        END IF;
        IF own_limit ->> 'epsilon' IS NOT NULL AND NOT {schema}.dagveil_admits(
            own_limit,
            {schema}.dagveil_counted(new_dataset, author, 'epsilon') || (content ->> 'epsilon'),
            {schema}.dagveil_counted(new_dataset, author, 'delta') || (content ->> 'delta'),
            {schema}.dagveil_counted(new_dataset, author, 'rho') || (content ->> 'rho'),
            {schema}.dagveil_counted(new_dataset, author, 'failure') || (content ->> 'failure')
        ) THEN
            RAISE EXCEPTION 'the run would exceed what % may spend on %; nothing was drawn.',
                quote_literal(author), quote_literal(new_dataset) USING ERRCODE = 'DV001';
        END IF;
        SELECT 1 + coalesce(max(run), 0) INTO run_number FROM {schema}.dagveil_entries;
    ELSIF new_kind IN ('charge', 'unbounded', 'close', 'release') THEN
        run_number := new_run;
        SELECT dataset, analyst INTO reservation FROM {schema}.dagveil_entries
            WHERE run = new_run AND kind = 'reserve';
        IF NOT FOUND OR EXISTS (
            SELECT 1 FROM {schema}.dagveil_entries WHERE run = new_run AND kind IN ('close', 'release')
        ) THEN
            RAISE EXCEPTION 'run % is not open any more; nothing was drawn. Reserve a new run.', new_run
                USING ERRCODE = 'DV002';
        END IF;
        IF reservation.analyst <> author AND (new_kind IN ('charge', 'unbounded') OR NOT owner) THEN
            RAISE EXCEPTION 'run % is not yours but %''s; nothing was drawn.', new_run, quote_literal(reservation.analyst)
                USING ERRCODE = 'DV004';
        END IF;
        IF new_kind IN ('close', 'release') THEN
            new_body := '{}';
        ELSE
            PERFORM {schema}.dagveil_check_event(content);
            IF (new_kind = 'unbounded') <> (content ->> 'kind' = 'unbounded') THEN
                RAISE EXCEPTION 'an event without a guarantee is an entry of its own kind' USING ERRCODE = 'DV005';
            END IF;
            IF new_kind = 'unbounded' AND NOT owner THEN
                RAISE EXCEPTION 'only the ledger''s owner may release something without a guarantee, and % is not; '
                    'nothing was drawn. Use the sound calibration and real noise, or another ledger if the data are '
                    'public.', quote_literal(author) USING ERRCODE = 'DV003';
            END IF;
        END IF;
        touched := EXISTS (
            SELECT 1 FROM {schema}.dagveil_entries WHERE run = new_run AND kind IN ('charge', 'unbounded')
        );
        IF new_kind = 'release' AND touched THEN
            RAISE EXCEPTION 'run % has charges and cannot be released', new_run USING ERRCODE = 'DV002';
        ELSIF new_kind = 'close' AND NOT touched THEN
            new_kind := 'release';
        END IF;
        new_dataset := reservation.dataset;
    ELSE
        RAISE EXCEPTION 'no entry is of the kind %', quote_literal(left(new_kind, 40)) USING ERRCODE = 'DV005';
    END IF;
    SELECT seq, digest INTO last FROM {schema}.dagveil_entries ORDER BY seq DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the ledger has no entries: it was emptied. Restore a backup.' USING ERRCODE = 'DV005';
    END IF;
    entry := last.seq + 1;
    now_utc := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"');
    INSERT INTO {schema}.dagveil_entries (seq, kind, dataset, run, analyst, body, recorded, previous, digest) VALUES (
        entry, new_kind, new_dataset, run_number, author, new_body, now_utc, last.digest,
        encode(sha256(
            {schema}.dagveil_netstring(last.digest) || {schema}.dagveil_netstring(entry::text)
            || {schema}.dagveil_netstring(new_kind) || {schema}.dagveil_netstring(new_dataset)
            || {schema}.dagveil_netstring(coalesce(run_number::text, '')) || {schema}.dagveil_netstring(author)
            || {schema}.dagveil_netstring(new_body) || {schema}.dagveil_netstring(now_utc)
        ), 'hex')
    );
END
$$;

CREATE FUNCTION {schema}.dagveil_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the history is append-only' USING ERRCODE = 'DV006';
END
$$;

CREATE TRIGGER dagveil_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.dagveil_entries
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.dagveil_refuse();

REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
