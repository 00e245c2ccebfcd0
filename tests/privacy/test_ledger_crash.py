"""Killed at any moment, the ledger holds at least what leaked."""

import os
import signal
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import pytest

from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.ledger import Ledger
from dagveil.privacy.ledger.account import Terms

TERMS = Terms.of(Relation.ADD_REMOVE, "one row")

CHILD = textwrap.dedent(
    """
    import os, signal, sys
    from fractions import Fraction
    from dagveil.privacy.budget import Budget
    from dagveil.privacy.events import SparseVectorRound
    from dagveil.privacy.ledger import Ledger
    from dagveil.privacy.ledger.account import Terms
    from dagveil.privacy.ledger.engine import LedgerEngine
    from dagveil.privacy.budget import Relation

    TERMS = Terms.of(Relation.ADD_REMOVE, "one row")
    place, moment, leak = sys.argv[1:]

    def reach(now):
        if now == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def strike_before_commit():
        from sqlalchemy import event
        engine = ledger._engine.engine
        if ledger._engine.is_sqlite:
            event.listen(engine, "commit", lambda connection: os.kill(os.getpid(), signal.SIGKILL))
        else:  # one statement that the server commits
            event.listen(engine, "before_cursor_execute", lambda *facts: os.kill(os.getpid(), signal.SIGKILL))

    ledger = Ledger.open(place)
    reach("opened")
    if moment == "reserving":
        strike_before_commit()
    run = ledger.reserve("visits", Budget.of(1, 0), TERMS, "pure accounting", "pc", "test")
    reach("reserved")
    if moment == "recording":
        strike_before_commit()
    run.record(SparseVectorRound("edge", Fraction(1, 2)))
    reach("recorded")
    with open(leak, "w") as out:
        out.write("noise was drawn")
    reach("drawn")
    run.close()
    reach("closed")
    """
)

MOMENTS = ["opened", "reserving", "reserved", "recording", "recorded", "drawn", "closed"]


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_never_leaks_more_than_the_ledger_says(request, tmp_path, engine, moment):
    place = str(tmp_path / "ledger.db") if engine == "sqlite" else request.getfixturevalue("postgres_url")
    leak = tmp_path / "leak"
    before = account_of(place)
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, place, moment, str(leak)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    after = account_of(place)
    spent = after.spent_epsilon - before.spent_epsilon
    counted = spent + after.spending.reserved.epsilon - before.spending.reserved.epsilon
    assert spent == (1 if moment in ("recorded", "drawn", "closed") else 0)
    assert counted == (0 if moment in ("opened", "reserving") else 1)
    if leak.exists():
        assert spent >= 1
    ledger = Ledger.open(place)
    assert ledger.abandon_untouched("visits") == (1 if moment in ("reserved", "recording") else 0)
    assert ledger.account("visits").spending.reserved.epsilon == 0
    assert ledger.account("visits").spent_epsilon == after.spent_epsilon
    # and the ledger still works
    ledger.reserve("visits", Budget(Fraction(1, 9), Fraction(0)), TERMS, "pure accounting", "pc", "test").close()
    ledger.close()


def account_of(place):
    ledger = Ledger.open(place)
    account = ledger.account("visits")
    ledger.close()
    return account
