import math
from fractions import Fraction

import msgspec
import pytest

from dagveil.files import decode_json
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import DiscreteGaussian, Unbounded
from dagveil.privacy.receipt import Calibration, Receipt, Trust


def receipt(**changes):
    fields = {
        "calibration": "sound",
        "epsilon": "1/3",
        "delta": Fraction(1, 10**6),
        "spent": "0.004 of 0.004 mu squared",
        "relation": Relation.ADD_REMOVE,
        "unit": "patient",
        "nominal_rows": 5000,
        "accounting": "Gaussian accounting",
        "accounting_total": "1/250",
        "accounting_spent": "1/250",
        "dataset": "visits",
        "software": "dagveil 0.1",
        "noise": "OpenDP",
        "events": (DiscreteGaussian("pairs", 10, Fraction(1), Fraction(1000)),),
        "public_facts": ("the levels of every column",),
    }
    return Receipt(**{**fields, **changes})


def test_json_keeps_everything():
    first = receipt(warnings=("seeded: not private",))
    again = decode_json(first.to_json(), Receipt)
    assert again == first
    assert again.events == first.events
    assert b'"delta":"1/1000000"' in first.to_json()


def test_a_sound_receipt_says_who_against_what_how_strongly_and_what_not():
    words = "\n".join(receipt(warnings=("the schema is a draft",)).words())
    for part in ("every record in visits", "added or removed", "anyone who sees", "epsilon 0.3334", "1e-6", "levels",
                 "5000", "Not promised", "Warning: the schema is a draft", "OpenDP"):  # fmt: skip
        assert part in words


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("delta", ["0", "1/1000000", "1/100"])
@pytest.mark.parametrize("epsilon", ["1/100", "1/3", "1", "5", "30", "5000"])
def test_what_a_guess_can_gain_is_rounded_up(epsilon, delta, relation):
    """A test between neighbours has errors a, b with a + e^ε b >= 1 - δ and e^ε a + b >= 1 - δ: best at a = b."""
    words = receipt(epsilon=epsilon, delta=delta, relation=relation).words()
    means = next(word for word in words if word.startswith("What that means"))
    said = means.replace("may be right every time", "at most 100.0 %")
    shown = [float(part.split(" ")[0]) for part in said.split("at most ")[1:]]
    grow = math.exp(-min(float(Fraction(epsilon)), 300))
    extra = float(Fraction(delta))
    near = 1 - (1 - extra) * grow / (1 + grow)
    far = 1 - max(0.0, (1 - extra * (1 + 1 / grow)) * grow**2 / (1 + grow**2))
    truths = [near, far] if relation is Relation.ADD_REMOVE else [near]
    assert len(shown) == len(truths)
    for percent, truth in zip(shown, truths, strict=True):
        assert min(100 * truth, 100) <= percent + 1e-9
        assert percent <= min(100.0, 100 * truth + 0.1 + 1e-6)
    strongly = next(word for word in words if word.startswith("How strongly"))
    if Fraction(epsilon) < 20:
        factor = float(strongly.split("at most ")[1].split(" times")[0])
        assert math.exp(float(Fraction(epsilon))) <= factor <= math.exp(float(Fraction(epsilon))) * 1.001


def test_delta_zero_adds_nothing():
    assert not any("additional probability" in word for word in receipt(delta="0").words())


@pytest.mark.parametrize(
    "changes", [{"calibration": Calibration.PAPER}, {"events": (Unbounded("edge", "the last round is not charged"),)}]
)
def test_published_noise_promises_nothing(changes):
    paper = receipt(**changes)
    words = "\n".join(paper.words())
    assert not paper.guaranteed
    assert "no guarantee claimed" in words
    assert "How strongly" not in words
    assert "Who is protected" not in words
    if "events" in changes:
        assert "the last round is not charged" in words


def test_unknown_calibrations_are_refused():
    with pytest.raises(ValueError, match="nearly"):
        receipt(calibration="nearly")
    with pytest.raises(msgspec.ValidationError):
        decode_json(receipt().to_json().replace(b'"sound"', b'"nearly"'), Receipt)


def test_a_seeded_receipt_promises_nothing():
    seeded = receipt(warnings=("seeded: not private",))
    words = "\n".join(seeded.words())
    assert not seeded.guaranteed
    assert "No promise holds" in words
    assert "Who is protected" not in words


@pytest.mark.parametrize("trust", list(Trust))
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("unit", ["one patient", "a person", "household", "one row"])
def test_a_receipt_promises_records_whatever_the_schema_calls_them(unit, relation, trust):
    """Nothing bounds how many rows a person has, so a unit called patient protects no patient."""
    words = receipt(unit=unit, relation=relation, trust=trust).words()
    named = [word for word in words if unit.split()[-1] in word.replace("person with k", "").replace("the person", "")]
    assert "every record" in words[0]
    assert any("a person with k records has k times this epsilon" in word for word in words)
    if unit == "one row":
        assert not any("schema calls" in word for word in words)
    else:
        assert f'The schema calls a record "{unit}".' in words[0]
        assert [word for word in named if not word.startswith(("Who is protected", "Per person"))] == []
