"""What an attacker gains at most by a release: how often he guesses right, in numbers and in words.

The bounds are proved in docs/audit.md.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dagveil.privacy.relation import Relation

# what a guarantee for records is worth to people, for as long as nothing bounds how many records one has
PER_PERSON = "a person with k records has k times this epsilon"
_LARGEST = Fraction(700)  # above this e^ε is no float; guesses are then as good as certain


def bound_advantage(epsilon: float, delta: float) -> float:
    """Return the largest difference of true and false positive rates that (epsilon, delta) allows."""
    return min(1.0, math.tanh(epsilon / 2.0) * (1.0 - delta) + delta)


def describe_guessing(
    epsilon: Fraction, delta: Fraction, relation: Relation, unit: str = "one record", *, contents_only: bool = False
) -> str:
    """Say how well anyone can guess: the bound on the sum of both errors of a test, for an even chance.

    `contents_only`: every record is known to be there, as with reports that people sent.
    """
    content = f"someone who guesses which of two values {unit} has"
    if relation is Relation.REPLACE_ONE or contents_only:
        return f"{content} {_describe_bound(epsilon, delta)}, where chance gives 50 %."
    # two contents are two steps apart: remove the one, add the other
    twice = delta * (1 + Fraction(math.exp(min(epsilon, _LARGEST))))
    return (
        f"someone who guesses whether {unit} is in the table {_describe_bound(epsilon, delta)}, and {content} "
        f"{_describe_bound(2 * epsilon, twice)}, where chance gives 50 %."
    )


def _describe_bound(epsilon: Fraction, delta: Fraction) -> str:
    percent = write_accuracy(epsilon, delta)
    return "may be right every time" if percent == "100.0" else f"is right at most {percent} % of the time"


def write_accuracy(epsilon: Fraction, delta: Fraction) -> str:
    """Bound, in percent, on guessing right between neighbours: (e^ε + δ) / (1 + e^ε), rounded up to a tenth."""
    inverse = math.exp(-min(epsilon, _LARGEST))
    percent = 100 * (1 + float(delta) * inverse) / (1 + inverse)
    return f"{min(100.0, math.ceil(percent * 10 + 1e-9) / 10):.1f}"


def name_unit(unit: str) -> str:
    """Return the unit without its article: schemas say "one row"."""
    return unit.removeprefix("one ").removeprefix("a ")
