"""Receipts that do not follow from their events are refused, whoever sealed them."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.errors import DataError, EvidenceError
from dagveil.evidence.bundle import Evidence, evidence_from_json
from dagveil.files import seal
from dagveil.graphs.knowledge import Knowledge
from dagveil.plans.combine import combine_evidence
from dagveil.plans.plan_file import PlannedSite
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    ApproximateZcdpFilter,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Filter,
    GaussianFilter,
    PureFilter,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
    Unbounded,
    ZcdpFilter,
    encode_event,
)
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration, Receipt, check_receipt
from dagveil.privacy.renyi import RenyiFilter
from dagveil.runs.discovery import discover, measure_source, search_evidence
from dagveil.runs.result import Result, result_from_json
from dagveil.search.settings import SearchSettings

BUDGET = Budget.of(1, 1e-6)
SCHEMA = Schema(
    dataset="demo", reviewed=True, nominal_rows=400, columns={name: Boolean("false") for name in ("a", "b", "c")}
)
ROWS = {name: np.random.default_rng(seed).random(400) < 0.5 for seed, name in enumerate("abc")}
QUICK = SearchSettings(redraws=0)

CASES: list[tuple[Filter, Event]] = [
    (PureFilter(Budget.of(1, 0)), DiscreteLaplace("counts", 4, Fraction(1, 3))),
    (ZcdpFilter(BUDGET), SparseVectorRound("edge", Fraction(1, 20))),
    (ApproximateZcdpFilter(BUDGET), SmoothLaplace("median", Fraction(1, 20), Fraction(1, 10**7))),
    (GaussianFilter(BUDGET), DiscreteGaussian("counts", 4, Fraction(1), Fraction(200))),
    (RenyiFilter(BUDGET, 24), SubsampledGaussian("pair", Fraction(1, 10), Fraction(1), Fraction(400))),
]


def write_receipt(accounting: Filter, /, *events: Event, **changes: Any) -> Receipt:
    prices = sum((accounting.cost(event) for event in events), Fraction(0))
    facts = {
        "calibration": Calibration.SOUND,
        "epsilon": str(accounting.budget.epsilon),
        "delta": str(accounting.budget.delta),
        "spent": "some",
        "relation": Relation.ADD_REMOVE,
        "unit": "row",
        "nominal_rows": 400,
        "accounting": accounting.name,
        "accounting_total": str(accounting.total),
        "accounting_spent": str(prices),
        "dataset": "demo",
        "software": "dagveil",
        "noise": "OpenDP",
        "events": events,
    }
    return Receipt(**{**facts, **changes})


class TestArithmetic:
    @pytest.mark.parametrize(("accounting", "event"), CASES, ids=lambda case: getattr(case, "name", ""))
    def test_every_accounting(self, accounting: Filter, event: Event) -> None:
        receipt = write_receipt(accounting, event)
        check_receipt(receipt)
        less = accounting.budget.epsilon / 1000
        forged: list[dict[str, Any]] = [
            {"epsilon": str(less)},
            {"epsilon": str(less), "accounting_total": str(accounting.total / 1000)},
            {"accounting_spent": str(Fraction(receipt.accounting_spent) / 2)},
            {"accounting_total": str(accounting.total * 2)},
            {"accounting": "honest accounting"},
            {"events": ()},
            {"events": (event,) * 3000},
            {"events": (*receipt.events, Unbounded("edge", "as published"))},
        ]
        for change in forged:
            with pytest.raises(DataError, match="does not follow from its events"):
                check_receipt(replace(receipt, **change))

    def test_a_total_out_of_nothing(self) -> None:
        """Such an ε is no float: it must neither divide by zero nor widen what a total may be off by."""
        accounting = RenyiFilter(Budget.of(Fraction(1, 10**320), Fraction(9, 10)), 2)
        event = DiscreteGaussian("counts", 4, Fraction(1), Fraction(10) ** 400)
        with pytest.raises(DataError, match="its total is not"):
            check_receipt(write_receipt(accounting, event, accounting_total=str(10**200)))

    def test_failures_count_too(self) -> None:
        accounting = ApproximateZcdpFilter(BUDGET)
        event = SmoothLaplace("median", Fraction(1, 10**6), Fraction(1, 10**7))
        check_receipt(write_receipt(accounting, *(event,) * 5))
        with pytest.raises(DataError, match="cost more"):
            check_receipt(write_receipt(accounting, *(event,) * 6))

    def test_published_ones_carry_their_event(self) -> None:
        facts = {"calibration": Calibration.PAPER, "accounting": "none: as published"}
        bare = write_receipt(PureFilter(Budget.of(1, 0)), **facts)
        check_receipt(replace(bare, events=(Unbounded("as published", "no bound"),)))
        with pytest.raises(DataError, match="published calibration"):
            check_receipt(bare)

    def test_long_fractions_are_not_added_for_hours(self) -> None:
        events = tuple(SparseVectorRound("edge", Fraction(1, 10**3000 + 2 * k + 1)) for k in range(1000))
        receipt = write_receipt(PureFilter(Budget.of(1, 0)), events[0])
        with pytest.raises(DataError, match="too many digits"):
            check_receipt(replace(receipt, events=events))

    def test_nothing_asked_nothing_owed(self) -> None:
        empty = write_receipt(PureFilter(Budget.of(1, 0)))
        check_receipt(empty, asked=False)
        with pytest.raises(DataError, match="no event"):
            check_receipt(empty)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return measure_source(ROWS, SCHEMA, 1, noise=NoiseKind.EXACT, ledger=None)


@pytest.fixture(scope="module")
def result(evidence: Evidence) -> Result:
    return search_evidence(evidence, QUICK)


def forge(text: str, *path: Any, to: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(text)
    place: Any = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return content


class TestFiles:
    @pytest.mark.parametrize("kind", ["evidence", "result"])
    def test_edits_are_seen(self, kind: str, request: pytest.FixtureRequest) -> None:
        text = request.getfixturevalue(kind).to_json()
        read: Callable[[str], Any] = evidence_from_json if kind == "evidence" else result_from_json
        assert read(json.dumps(json.loads(text), indent=3)).to_json() == text
        for path, value in (
            (("receipt", "epsilon"), "1/1000"),
            (("findings",), ["all is well"]),
            (("created",), "yesterday"),
        ):
            forged = forge(text, *path, to=value)
            with pytest.raises((DataError, EvidenceError), match="changed after it was written"):
                read(json.dumps(forged))
        bare = json.loads(text)
        del bare["seal"]
        with pytest.raises((DataError, EvidenceError), match="without a seal"):
            read(json.dumps(bare))

    @pytest.mark.parametrize("kind", ["evidence", "result"])
    def test_a_new_seal_does_not_make_a_receipt_true(self, kind: str, request: pytest.FixtureRequest) -> None:
        text = request.getfixturevalue(kind).to_json()
        read: Callable[[str], Any] = evidence_from_json if kind == "evidence" else result_from_json
        forgeries = (("epsilon", "1/1000"), ("events", []), ("accounting_spent", "0"))
        for name, value in forgeries:
            with pytest.raises(DataError, match="does not follow"):
                read(json.dumps(seal(forge(text, "receipt", name, to=value))))

    def test_published_results_keep_their_banner(self) -> None:
        result = discover(
            ROWS, SCHEMA, 1, method="svt-pc", calibration="program", noise=NoiseKind.SEEDED, seed=0, ledger=None
        )
        text = result.to_json()
        assert result_from_json(text) == result
        for forged in (
            forge(text, "receipt", "events", to=[]),
            forge(text, "receipt", "calibration", to="sound"),
            forge(text, "method", "calibration", to="sound"),
        ):
            with pytest.raises(DataError):
                result_from_json(json.dumps(seal(forged)))

    def test_a_run_that_asked_nothing_is_read(self) -> None:
        known = Knowledge((), frozenset(), frozenset({("a", "b"), ("b", "c"), ("a", "c")}))
        result = discover(ROWS, SCHEMA, 1, method="svt-pc", knowledge=known, noise=NoiseKind.EXACT, ledger=None)
        assert result_from_json(result.to_json()) == result

    @pytest.mark.parametrize("value", ["abc", "1/0", "", "9" * 5000])
    @pytest.mark.parametrize("name", ["epsilon", "delta", "accounting_total", "accounting_spent"])
    def test_amounts_that_are_none_are_refused_with_a_sentence(self, name: str, value: str, result: Result) -> None:
        """Whoever forges a number also seals the file; what the check trips over is no exception of Python's."""
        with pytest.raises(DataError, match=r"damaged|does not follow"):
            result_from_json(json.dumps(seal(forge(result.to_json(), "receipt", name, to=value))))


class TestSums:
    @pytest.fixture
    def combined(self) -> Evidence:
        sites = [
            PlannedSite("north", Fraction(1), Fraction(1, 10**6), 400),
            PlannedSite("south", Fraction(2), Fraction(1, 10**7), 400),
        ]
        plan = plan_measurement(SCHEMA, 1, sites=sites)
        return combine_evidence(
            [
                measure_planned(ROWS, plan, site.name, dataset=site.name, noise=NoiseKind.EXACT, ledger=None)
                for site in sites
            ]
        )

    def test_they_are_read(self, combined: Evidence) -> None:
        assert evidence_from_json(combined.to_json()) == combined
        found = search_evidence(combined, QUICK)
        assert result_from_json(found.to_json()) == found

    def test_and_follow_from_their_sites(self, combined: Evidence) -> None:
        text = combined.to_json()
        for forged in (
            forge(text, "receipt", "epsilon", to="1"),
            forge(text, "receipt", "events", to=[]),
            forge(text, "parts", 0, "receipt", "epsilon", to="1/9"),
            forge(text, "parts", 1, "receipt", "events", to=[]),
        ):
            with pytest.raises(DataError, match="does not follow"):
                evidence_from_json(json.dumps(seal(forged)))

    def test_a_site_cannot_be_hidden_behind_another(self, combined: Evidence) -> None:
        """Epsilon and events of the site that spent less, or another delta, are not those of the sum."""
        text = combined.to_json()
        small = json.loads(text)["parts"][0]["receipt"]
        assert small["epsilon"] == "1"
        hidden = json.loads(text)
        hidden["receipt"] |= {"epsilon": small["epsilon"], "events": small["events"]}
        with pytest.raises(DataError, match="not the largest of the sites'"):
            evidence_from_json(json.dumps(seal(hidden)))
        with pytest.raises(DataError, match="not the largest of the sites'"):
            evidence_from_json(json.dumps(seal(forge(text, "receipt", "delta", to="1/9"))))

    def test_only_sound_releases_are_added(self, combined: Evidence) -> None:
        content = json.loads(combined.to_json())
        event = json.loads(encode_event(Unbounded("edge", "as published")))
        content["parts"][0]["receipt"] |= {"calibration": "paper", "events": [event]}
        with pytest.raises(DataError, match="only sound releases are added"):
            evidence_from_json(json.dumps(seal(content)))
