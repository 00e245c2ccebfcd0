"""A team on PostgreSQL: owners set budgets, analysts spend them, and an analyst's connection can do nothing else."""

from __future__ import annotations

import json
import uuid
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from dagveil.cli.main import group
from dagveil.errors import BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialChoice,
    RandomisedResponse,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
    Unbounded,
    encode_event,
)
from dagveil.privacy.ledger import Ledger, RunState
from dagveil.privacy.ledger.account import Allowance, Composition, Terms, Totals, price_run
from dagveil.privacy.ledger.entries import EntryKind, budget_body

ACCOUNTINGS = ["pure accounting", "zCDP accounting", "approximate zCDP accounting", "Gaussian accounting", "other"]
TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

pytestmark = pytest.mark.postgres
psycopg = pytest.importorskip("psycopg")

EVENT = SparseVectorRound("edge", Fraction(1, 3))


class Team:
    """A database of its own with an owner and two analysts."""

    def __init__(self, server: str) -> None:
        mark = uuid.uuid4().hex[:8]
        self.names = {who: f"{who}-{mark}" for who in ("owner", "ann", "ben")}
        self._server = make_url(server)
        self._database = f"team-{mark}"
        with psycopg.connect(server, autocommit=True) as connection:
            for name in self.names.values():
                connection.execute(f'CREATE ROLE "{name}" LOGIN')
            connection.execute(f'CREATE DATABASE "{self._database}" OWNER "{self.names["owner"]}"')

    def url(self, who: str) -> str:
        """Return the address under which somebody connects."""
        url = self._server.set(username=self.names.get(who, who), database=self._database)
        return url.render_as_string(hide_password=False)

    def open(self, who: str) -> Ledger:
        """Open the ledger as somebody."""
        return Ledger.open(self.url(who))

    def sql(self, who: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement as somebody, without the program."""
        url = self.url(who)
        with psycopg.connect(url) as connection:
            cursor = connection.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def run(self, who: str, *words: object) -> Result:
        """Run a command as somebody."""
        arguments = [str(word) for word in words]
        return CliRunner(env={"DAGVEIL_LEDGER": self.url(who), "DAGVEIL_DEBUG": ""}).invoke(group, arguments)


@pytest.fixture
def team(postgres_url: str) -> Team:
    made = Team(postgres_url)
    owner = made.open("owner")
    owner.set_budget("visits", Budget.of(3, "1e-5"))
    for analyst in ("ann", "ben"):
        owner.grant(made.names[analyst])
    owner.close()
    return made


def body(**changed: object) -> str:
    """Write the body of a reservation, changed."""
    fields: dict[str, object] = {
        "epsilon": "1",
        "delta": "0",
        "rho": "1/2",
        "failure": "0",
        "relation": "add-remove",
        "unit": "row",
        "accounting": "pure accounting",
        "method": "m",
        "software": "s",
        **changed,
    }
    return json.dumps({key: value for key, value in fields.items() if value is not None})


def reserve(ledger: Ledger, epsilon: object) -> Any:
    return ledger.reserve("visits", Budget.of(epsilon, 0), TERMS, "pure accounting", "pc", "test")  # type: ignore[arg-type]


class TestRoles:
    def test_an_analyst_spends_under_the_own_name(self, team: Team) -> None:
        ann = team.open("ann")
        with reserve(ann, 1) as run:
            run.record(EVENT)
        ann.close()
        (record,) = team.open("ben").history()
        assert record.analyst == team.names["ann"]
        assert record.state is RunState.CLOSED
        verdict = team.open("owner").verify()
        assert verdict.problem is None  # the server's digests are the program's

    def test_nobody_takes_another_name(self, team: Team) -> None:
        with pytest.raises(LedgerError, match="connect as that role"):
            Ledger.open(team.url("ann"), analyst=team.names["ben"])
        assert Ledger.open(team.url("ann"), analyst=team.names["ann"]).analyst == team.names["ann"]

    def test_an_analyst_cannot_set_budgets_limits_or_grants(self, team: Team) -> None:
        ann = team.open("ann")
        head = ann.head()
        for change in (
            lambda: ann.set_budget("visits", Budget.of(100, 0)),
            lambda: ann.set_limit("visits", team.names["ann"], None),
            lambda: ann.grant(team.names["ben"]),
            lambda: ann.revoke(team.names["ben"]),
        ):
            with pytest.raises(LedgerError, match="only the ledger's owner"):
                change()
        assert ann.head() == head

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE dagveil.dagveil_entries SET body = '{}'",
            "DELETE FROM dagveil.dagveil_entries",
            "TRUNCATE dagveil.dagveil_entries",
            "INSERT INTO dagveil.dagveil_entries SELECT seq + 9, kind, dataset, run, analyst, body, recorded, "
            "previous, digest FROM dagveil.dagveil_entries",
            "UPDATE dagveil.dagveil_facts SET value = '3'",
            "DROP TABLE dagveil.dagveil_entries",
            "ALTER TABLE dagveil.dagveil_entries DISABLE TRIGGER ALL",
            "CREATE OR REPLACE FUNCTION dagveil.dagveil_owns() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        ],
    )
    def test_an_analysts_connection_cannot_touch_the_history(self, team: Team, statement: str) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            team.sql("ann", statement)
        assert team.open("owner").verify().problem is None

    def test_not_even_the_owner_changes_history_by_accident(self, team: Team) -> None:
        for statement in (
            "UPDATE dagveil.dagveil_entries SET body = '{}'",
            "DELETE FROM dagveil.dagveil_entries",
            "TRUNCATE dagveil.dagveil_entries",
        ):
            with pytest.raises(psycopg.Error, match="append-only"):
                team.sql("owner", statement)

    def test_an_owner_who_does_it_on_purpose_is_found_out(self, team: Team) -> None:
        run = reserve(team.open("ann"), 1)
        run.record(EVENT)
        head = team.open("ann").head()
        team.sql(
            "owner",
            "ALTER TABLE dagveil.dagveil_entries DISABLE TRIGGER ALL; "
            "DELETE FROM dagveil.dagveil_entries WHERE kind = 'charge'",
        )
        verdict = team.open("ann").verify(head)
        assert verdict.problem is not None
        assert "cut off" in verdict.problem

    @pytest.mark.parametrize(
        ("kind", "body", "words"),
        [
            ("budget", '{"epsilon":"100","delta":"0"}', "only the ledger's owner"),
            ("limit", '{"analyst":"ann","epsilon":null,"delta":null}', "only the ledger's owner"),
            ("grant", "{}", "only the ledger's owner"),
            ("reserve", body(epsilon="4", rho="8"), "would exceed the lifetime budget"),
            ("reserve", body(delta="1/1000", failure="1/1000"), "would exceed the lifetime budget"),
            ("reserve", body(epsilon="-4"), "not an exact fraction"),
            ("reserve", body(epsilon="1/0"), "not an exact fraction"),
            ("reserve", body(epsilon="NaN"), "not an exact fraction"),
            ("reserve", body(epsilon=1), "not a text"),
            ("reserve", body(epsilon="1" * 401), "not an exact fraction"),
            ("reserve", body(epsilon="1/" + "3" * 4300), "not a text of at most 2000"),
            ("reserve", body(epsilon=None), "lacks 'epsilon'"),
            ("reserve", body(method=None), "lacks 'method'"),
            ("reserve", body(more="x"), "no place for 'more'"),
            ("reserve", body(relation="both"), "its relation"),
            ("reserve", body(rho="1/100"), "counts less than"),
            ("reserve", body(epsilon="2", rho="1/1000000", delta="1/10000000"), "counts less than"),
            ("reserve", '{"epsilon":"1","epsilon":"1/9"}', "keys differ"),
            ("reserve", "[]", "an object"),
            ("reserve", "[" * 5000, "json"),
            ("reserve", "no JSON", "json"),
            ("refund", "{}", "no entry is of the kind"),
            ("begun", "{}", "no entry is of the kind"),
            ("charge", "{}", "not open"),
        ],
    )
    def test_the_server_itself_refuses(self, team: Team, kind: str, body: str, words: str) -> None:
        """Whoever leaves the program out and calls the function gets no further."""
        with pytest.raises(psycopg.Error, match=words):
            team.sql("ann", "SELECT dagveil.dagveil_append(%s, 'visits', NULL, %s)", kind, body)

    def test_nobody_charges_or_ends_the_run_of_another(self, team: Team) -> None:
        run = reserve(team.open("ann"), 1)
        ben = team.open("ben")
        with pytest.raises(LedgerError, match="not yours"):
            ben.record_event(run.id, EVENT)
        with pytest.raises(LedgerError, match="not yours"):
            ben.close_run(run.id)
        assert ben.abandon_untouched() == 0
        owner = team.open("owner")
        with pytest.raises(LedgerError, match="not yours"):
            owner.record_event(run.id, EVENT)
        assert owner.abandon_untouched("visits") == 1
        with pytest.raises(LedgerError, match="not open"):
            run.record(EVENT)

    def test_an_analyst_releases_the_own_runs(self, team: Team) -> None:
        ann = team.open("ann")
        reserve(ann, 1)
        touched = reserve(ann, 1)
        touched.record(EVENT)
        reserve(team.open("ben"), 1)
        assert ann.abandon_untouched() == 1
        assert {run.state for run in ann.history() if run.analyst == ann.analyst} == {RunState.OPEN, RunState.RELEASED}
        with pytest.raises(psycopg.Error, match="has charges"):
            team.sql("ann", "SELECT dagveil.dagveil_append('release', 'visits', %s, '{}')", touched.id)

    def test_strangers_are_told_what_to_do(self, team: Team, postgres_url: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            stranger = f"eve-{uuid.uuid4().hex[:8]}"
            connection.execute(f'CREATE ROLE "{stranger}" LOGIN')
        with pytest.raises(LedgerError, match="dagveil budget grant ROLE"):
            team.open(stranger)

    def test_a_revoked_analyst_stops_before_the_next_noise(self, team: Team) -> None:
        ann = team.open("ann")
        run = reserve(ann, 1)
        run.record(EVENT)
        team.open("owner").revoke(team.names["ann"])
        with pytest.raises(LedgerError, match="may not use"):
            run.record(EVENT)
        with pytest.raises(LedgerError, match="may not use"):
            reserve(ann, 1)

    def test_a_transaction_that_saw_an_older_state_is_refused(self, team: Team) -> None:
        with psycopg.connect(team.url("ann")) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with pytest.raises(psycopg.Error, match="read committed"):
                connection.execute("SELECT dagveil.dagveil_append('reserve', 'visits', NULL, %s)", [body()])


def test_several_owners(team: Team, postgres_url: str) -> None:
    owners = f"owners-{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{owners}"')
        connection.execute(f'GRANT "{owners}" TO "{team.names["owner"]}", "{team.names["ben"]}"')
    team.sql("owner", f'REASSIGN OWNED BY "{team.names["owner"]}" TO "{owners}"')
    for who in ("owner", "ben"):
        ledger = team.open(who)
        ledger.set_budget("visits", Budget.of(4, "1e-5"))
        ledger.revoke(team.names["ann"])
        ledger.grant(team.names["ann"])
        ledger.close()
    reserve(team.open("ann"), 4)
    with pytest.raises(LedgerError, match="only the ledger's owner"):
        team.open("ann").set_budget("visits", Budget.of(5, 0))
    assert team.open("ann").verify().problem is None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    amounts=st.lists(st.fractions(Fraction(1, 50), 2, max_denominator=97), max_size=6),
    most=st.fractions(Fraction(1, 50), 5, max_denominator=97),
)
def test_the_server_adds_up_as_python_does(postgres_url: str, amounts: list[Fraction], most: Fraction) -> None:
    Ledger.open(postgres_url).close()
    with psycopg.connect(postgres_url) as connection:
        for limit in (most, sum(amounts, Fraction(0))):
            (fits,) = connection.execute(
                "SELECT dagveil.dagveil_fits(%s::text[], %s, 1)", [[str(amount) for amount in amounts], str(limit)]
            ).fetchone()
            assert fits == (sum(amounts) <= limit)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(st.tuples(st.sampled_from(["0.1", "0.5", "1"]), st.sampled_from(ACCOUNTINGS)), max_size=8),
    epsilon=st.sampled_from(["0.5", "1", "2"]),
    composition=st.sampled_from(Composition),
)
def test_the_server_admits_what_python_admits(
    postgres_url: str, runs: list[tuple[str, str]], epsilon: str, composition: Composition
) -> None:
    Ledger.open(postgres_url).close()
    lifetime = Allowance.of(Budget.of(epsilon, "3e-6"), composition)
    prices = [price_run(Budget.of(amount, 0 if "pure" in name else "1e-6"), name) for amount, name in runs]
    totals = Totals()
    for price in prices:
        totals = totals.plus(price)
    sums = [[str(getattr(price, part)) for price in prices] for part in ("epsilon", "delta", "rho", "failure")]
    with psycopg.connect(postgres_url) as connection:
        (admits,) = connection.execute(
            "SELECT dagveil.dagveil_admits(%s::json, %s::text[], %s::text[], %s::text[], %s::text[])",
            [budget_body(lifetime), *sums],
        ).fetchone()
    assert admits == lifetime.admits(totals)


def test_the_server_writes_the_digest_of_any_text(team: Team) -> None:
    for name in ("ключ 鍵 é", 'say "hi"', "back\\slash", "tab\tand\nline", "emoji 🜲"):
        ledger = team.open("owner")
        with ledger.reserve("visits", Budget.of("1/3", 0), TERMS, "pure accounting", name, name) as run:
            run.record(SparseVectorRound(name, Fraction(1, 3)))
        ledger.close()
    ledger = team.open("owner")
    assert ledger.verify().problem is None
    first = next(entry for entry in ledger.entries() if entry.kind is EntryKind.CHARGE)
    assert first.body == encode_event(SparseVectorRound("ключ 鍵 é", Fraction(1, 3))).decode()


def test_limits_bind_within_the_budget(team: Team) -> None:
    owner, ann, ben = (team.open(who) for who in ("owner", "ann", "ben"))
    owner.set_limit("visits", ann.analyst, Budget.of("0.5", 0))
    reserve(ann, "0.25")
    with pytest.raises(BudgetExceededError) as caught:
        reserve(ann, "0.26")
    assert "'visits' has left a run of epsilon 2.75 with Gaussian noise, delta 1e-6" in str(caught.value)
    assert f"the analyst {ann.analyst!r} on 'visits' has left epsilon 0.25, delta 0" in str(caught.value)
    with pytest.raises(psycopg.Error, match=r"would exceed what 'ann-\w+' may spend on 'visits'"):
        team.sql("ann", "SELECT dagveil.dagveil_append('reserve', 'visits', NULL, %s)", body())
    reserve(ben, "2.75")
    with pytest.raises(BudgetExceededError, match="'visits' has left nothing"):
        reserve(ann, "0.25")
    owner.set_limit("visits", ann.analyst, None)
    assert owner.abandon_untouched("visits") == 2
    reserve(ann, 3)


def test_two_people_share_a_budget_from_the_command_line(team: Team, tmp_path: Path) -> None:
    ann, ben = team.names["ann"], team.names["ben"]
    assert team.run("owner", "budget", "limit", "visits", ann, "--epsilon", 1).exit_code == 0
    rows, schema = tmp_path / "t.csv", tmp_path / "schema.toml"
    rows.write_text("a,b\n" + "no,no\nyes,yes\n" * 20)
    column = 'kind = "categorical"\nlevels = ["no", "yes"]\n'
    schema.write_text(
        f'[dataset]\nname = "visits"\nreviewed = true\nnominal_rows = 40\n[columns.a]\n{column}[columns.b]\n{column}'
    )

    def discover(who: str, epsilon: object) -> Result:
        words = ("discover", rows, "--schema", schema, "--epsilon", epsilon, "--noise", "exact", "--redraws", 0)
        return team.run(who, *words, "-o", tmp_path / who)

    assert discover("ann", 1).exit_code == 0
    refused = discover("ann", 1)
    assert refused.exit_code == 2
    assert f"the analyst '{ann}' on 'visits' has left " in refused.stderr
    assert "'visits' has left a run of epsilon 2 " in refused.stderr
    assert discover("ben", 2).exit_code == 0
    assert "'visits' has left nothing" in discover("ben", "0.5").stderr
    shown = team.run("ben", "budget", "show", "visits").stdout
    assert f"  {ann}: spent epsilon 1, delta 0 in 1 run; limit epsilon 1, delta 1e-5; left nothing" in shown
    assert f"  {ben}: spent epsilon 2, delta 0 in 1 run; no limit of their own" in shown
    history = team.run("ann", "budget", "history").stdout
    assert ann in history
    assert ben in history
    raised = team.run("ann", "budget", "set", "visits", "--epsilon", 100)
    assert raised.exit_code == 2
    assert "only the ledger's owner" in raised.stderr
    verified = team.run("ann", "budget", "verify")
    assert verified.exit_code == 0
    head = verified.stdout.split("head ")[1].strip()
    assert team.run("owner", "budget", "verify", "--head", head).exit_code == 0
    assert team.run("owner", "budget", "revoke", ann).exit_code == 0
    assert "dagveil budget grant" in team.run("ann", "budget", "show").stderr
    missing = team.run("owner", "budget", "grant", "nobody's name")
    assert missing.exit_code == 2
    assert 'CREATE ROLE "nobody\'s name" LOGIN' in missing.stderr


class TestAttacks:
    """What broke, or might have, when a hostile analyst called the server directly."""

    def test_objects_of_an_analyst_never_stand_in_for_the_systems(self, team: Team, postgres_url: str) -> None:
        """Up to PostgreSQL 14 everybody may create objects in the schema public."""
        server = make_url(postgres_url).set(database=make_url(team.url("owner")).database)
        with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as connection:
            connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        team.sql(
            "ann",
            """
            CREATE FUNCTION public.evil(text[], text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'taken over as %', current_user; END $$;
            CREATE OPERATOR public.|| (LEFTARG = text[], RIGHTARG = text, FUNCTION = public.evil);
            CREATE FUNCTION public.evil(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'taken over as %', current_user; END $$;
            CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = public.evil);
            CREATE FUNCTION public.evil(varchar, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'taken over as %', current_user; END $$;
            CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = text, FUNCTION = public.evil);
            CREATE OPERATOR public.<> (LEFTARG = varchar, RIGHTARG = text, FUNCTION = public.evil);
            """,
        )
        ann, owner = team.open("ann"), team.open("owner")
        with reserve(ann, 1) as run:
            run.record(EVENT)
        assert owner.account("visits").spent_epsilon == 1
        owner.set_budget("visits", Budget.of(4, "1e-5"))
        assert owner.verify().problem is None
        with pytest.raises(BudgetExceededError):
            reserve(ann, 50)

    @pytest.mark.parametrize(
        "content",
        [
            "{}",
            '{"kind":"sparse-vector-round","label":"a"}',
            '{"kind":"sparse-vector-round","label":"a","epsilon":"0"}',
            '{"kind":"sparse-vector-round","label":"a","epsilon":0.5}',
            '{"kind":"smooth-laplace","label":"a","epsilon":"1","delta":"1"}',
            '{"kind":"discrete-gaussian","label":"a","draws":1.5,"squared_sensitivity":"1","variance":"9"}',
            '{"kind":"wrong","label":"a"}',
            '{"kind":"unbounded","label":"a","reason":"b"}',
            '{"kind":"sparse-vector-round","label":"a","epsilon":"1","epsilon":"2"}',
        ],
    )
    def test_a_charge_that_cannot_be_read_is_refused(self, team: Team, content: str) -> None:
        run = reserve(team.open("ann"), 1)
        with pytest.raises(psycopg.Error):
            team.sql("ann", "SELECT dagveil.dagveil_append('charge', '', %s, %s)", run.id, content)
        assert [record.events for record in team.open("owner").history()] == [()]
        assert team.open("owner").verify().problem is None

    def test_every_event_that_the_program_writes_is_taken(self, team: Team) -> None:
        ledger, half = team.open("owner"), Fraction(1, 2)
        events = [
            DiscreteGaussian("a", 3, half, Fraction(200)),
            DiscreteGaussian("b", 3, half, Fraction(200), 1),
            SubsampledGaussian("c", half, half, half),
            DiscreteLaplace("d", 2, half),
            ExponentialChoice("e", half),
            SparseVectorRound("f", half),
            SparseVectorRound("g", half),
            RandomisedResponse("h", half),
            SmoothLaplace("i", half, Fraction(1, 10**7)),
            Unbounded("j", "no reason"),
        ]
        run = ledger.reserve("visits", Budget.of(1, "1e-6"), TERMS, "Gaussian accounting", "m", "s")
        for event in events:
            run.record(event)
        assert list(ledger.history()[0].events) == events

    def test_only_the_owner_releases_without_a_guarantee(self, team: Team) -> None:
        run = reserve(team.open("ann"), 1)
        with pytest.raises(LedgerError, match="without a guarantee"):
            run.record(Unbounded("as published", "why"))
        assert not team.open("owner").account("visits").unbounded

    def test_nobody_spends_on_a_data_set_that_the_owner_never_named(self, team: Team) -> None:
        ann = team.open("ann")
        with pytest.raises(LedgerError, match="has set no budget for 'visits2'"):
            ann.reserve("visits2", Budget.of(10, 0), TERMS, "pure accounting", "m", "s")
        assert reserve(team.open("owner"), 1).id == 1

    def test_an_analyst_cannot_hold_the_lock_of_owners(self, team: Team) -> None:
        with pytest.raises(psycopg.Error, match="only the ledger's owner"):
            team.sql("ann", "SELECT dagveil.dagveil_lock()")

    def test_a_schema_of_somebody_else_is_refused(self, postgres_url: str) -> None:
        team = Team(postgres_url)
        server = make_url(postgres_url).set(database=make_url(team.url("owner")).database)
        with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA dagveil AUTHORIZATION "{team.names["ann"]}"')
        with pytest.raises(LedgerError, match=r"not yours alone|may not use"):
            team.open("owner")

    def test_every_function_looks_in_the_systems_schema_alone(self, team: Team) -> None:
        """Also those in which no operator of an analyst's would win today."""
        found = dict(
            team.sql(
                "owner",
                "SELECT p.oid::regprocedure::text, p.proconfig FROM pg_proc AS p "
                "WHERE pronamespace = 'dagveil'::regnamespace",
            )
        )
        assert len(found) >= 13
        assert {tuple(facts or ()) for facts in found.values()} == {("search_path=pg_catalog, pg_temp",)}, found

    @pytest.mark.parametrize(
        ("dataset", "content"),
        [("x" * 201, body()), ("visits", body() + " " * 20_000)],
        ids=["data set", "body"],
    )
    def test_entries_are_bounded(self, team: Team, dataset: str, content: str) -> None:
        team.open("owner").set_budget("visits", Budget.of(9, "1e-5"))
        with pytest.raises(psycopg.Error, match="at most 200 characters and a body of at most 20000"):
            team.sql("owner", "SELECT dagveil.dagveil_append('reserve', %s, NULL, %s)", dataset, content)

    @pytest.mark.parametrize(
        ("kind", "dataset", "content", "words"),
        [
            ("budget", "visits", "{}", "lacks 'epsilon'"),
            ("budget", "visits", '{"epsilon":3,"delta":"0"}', "not a text"),
            ("limit", "visits", '{"epsilon":"1","delta":"0"}', "lacks 'analyst'"),
            ("grant", "", "{}", "lacks 'analyst'"),
            ("grant", "visits", '{"analyst":"ann"}', "grants do not"),
            ("budget", "", '{"epsilon":"3","delta":"0"}', "name a data set"),
        ],
    )
    def test_the_owners_entries_are_checked_too(
        self, team: Team, kind: str, dataset: str, content: str, words: str
    ) -> None:
        with pytest.raises(psycopg.Error, match=words):
            team.sql("owner", "SELECT dagveil.dagveil_append(%s, %s, NULL, %s)", kind, dataset, content)

    def test_a_schema_that_is_lent_is_refused(self, postgres_url: str) -> None:
        """The owner may make tables in it, but somebody else may put objects beside them."""
        team = Team(postgres_url)
        server = make_url(postgres_url).set(database=make_url(team.url("owner")).database)
        with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA dagveil AUTHORIZATION "{team.names["ann"]}"')
            connection.execute(f'GRANT ALL ON SCHEMA dagveil TO "{team.names["owner"]}"')
        with pytest.raises(LedgerError, match="not yours alone"):
            team.open("owner")

    def test_a_schema_that_is_open_to_all_is_refused(self, postgres_url: str) -> None:
        team = Team(postgres_url)
        team.sql("owner", "CREATE SCHEMA dagveil; GRANT USAGE, CREATE ON SCHEMA dagveil TO PUBLIC")
        with pytest.raises(LedgerError, match="REVOKE CREATE ON SCHEMA dagveil FROM public"):
            team.open("owner")

    def test_nobody_is_granted_who_could_put_objects_there(self, team: Team) -> None:
        team.open("owner").revoke(team.names["ann"])
        team.sql("owner", f'GRANT CREATE ON SCHEMA dagveil TO "{team.names["ann"]}"')
        with pytest.raises(LedgerError, match="not yours alone"):
            team.open("owner").grant(team.names["ann"])
        with pytest.raises(LedgerError, match="may not use"):
            reserve(team.open("ann"), 1)

    def test_a_ledger_that_shrank_or_vanished_is_refused(self, team: Team) -> None:
        ann = team.open("ann")
        with reserve(ann, 1) as run:
            run.record(EVENT)
        team.sql(
            "owner",
            "ALTER TABLE dagveil.dagveil_entries DISABLE TRIGGER ALL; "
            "DELETE FROM dagveil.dagveil_entries WHERE kind IN ('charge', 'close')",
        )
        with pytest.raises(LedgerError, match="has lost entries"):
            reserve(ann, 1)
        assert "cut off" in (team.open("ann").verify().problem or "")
        ann.close()
        team.sql("owner", "DROP SCHEMA dagveil CASCADE")
        with pytest.raises(LedgerError, match="is gone or empty"):
            team.open("owner")
