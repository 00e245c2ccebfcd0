"""One process of the load on the ledger: reserves, records, then notes that noise was drawn; until it is refused."""

import faulthandler
import os
import random
import signal
import time
import uuid
from fractions import Fraction
from typing import Final

from dagveil.errors import BudgetExceededError, LedgerError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import SparseVectorRound
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import Ledger

DATASET: Final = "load"
# a third of a tenth: sums of floats would drift, sums of fractions do not
PURE_BUDGET: Final = Budget(Fraction(1, 30), Fraction(0))
# runs of two accountings, which the account composes
RUNS: Final = ((PURE_BUDGET, "pure accounting"), (Budget.of("1/30", "1e-9"), "Gaussian accounting"))
TERMS: Final = Terms.of(Relation.ADD_REMOVE, "one row")
OTHER_TERMS: Final = Terms.of(Relation.REPLACE_ONE, "one row")
LINE: Final = 44  # bytes of a line of the log: number of the run, name of the charge


def work(place: str, analyst: str, log: str, charges: int, wait_seconds: float) -> None:
    """Spend as an analyst until the ledger refuses, so many charges in each run.

    After each drawing of noise a line goes to the log; the system keeps what was written when the process is killed.
    """
    faulthandler.register(signal.SIGUSR1)
    parent = os.getppid()
    with open(log, "ab", buffering=0) as drawn:
        while os.getppid() == parent:
            try:
                ledger = Ledger.open(place, wait_seconds, analyst)
                break
            except LedgerError:
                time.sleep(0.1)
        while os.getppid() == parent:  # the load may have been stopped
            try:
                budget, accounting = random.choice(RUNS)
                # one in five asks under another relation, which must be refused
                terms = random.choice((TERMS, TERMS, TERMS, TERMS, OTHER_TERMS))
                run = ledger.reserve(DATASET, budget, terms, accounting, "load", "dagveil load")
            except BudgetExceededError:
                os._exit(0)  # nothing to tidy up; the process may hold broken connections
            except LedgerError:
                time.sleep(random.uniform(0.02, 0.1))
                continue
            try:
                for _ in range(charges):
                    name = uuid.uuid4().hex
                    run.record(SparseVectorRound(name, Fraction(1, 5000)))
                    drawn.write(b"%010d %b\n" % (run.id, name.encode()))  # here a method would draw its noise
                run.close()
            except LedgerError:
                time.sleep(random.uniform(0.02, 0.1))
