"""Small examples of what the functions of audit/ return."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dagveil.audit.attacks import (
    bound_auc,
    bound_epsilon,
    choose_threshold,
    distinguish,
    find_ceiling,
    find_rates,
    find_reachable,
    fit_logistic,
    measure_advantage,
    measure_auc,
)
from dagveil.audit.examination import Plan, examine_method
from dagveil.audit.neighbours import DataKind, attack_cases, count_runs, draw_rows, fitting_kinds, make_pair, odd_record
from dagveil.audit.published import published_claim
from dagveil.audit.replay import replay_method
from dagveil.audit.runs import BlockStore, find_fixed_run, seed_run
from dagveil.audit.search import Effort, Norm
from dagveil.audit.sensitivity import audited_statistics, batch_smooth_sensitivity, search_statistic
from dagveil.audit.transcript import Attacker, weigh_samples
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian


def test_batch_smooth_sensitivity() -> None:
    assert batch_smooth_sensitivity(np.array([[4, 5, 5, 5, 6]]), 0, 10, 0.5).round(4).tolist() == [1.8394]


def test_find_rates() -> None:
    low, high = find_rates(0, 100)
    assert (float(low), round(float(high), 4)) == (0.0, 0.0362)


def test_bound_epsilon() -> None:
    assert round(float(bound_epsilon(900, 50, 1000, 1000, 1e-6)), 3) == 2.599


def test_find_ceiling() -> None:
    assert (round(find_ceiling(10_000, 0.0), 3), round(float(np.log(10_000 / 3.7)), 3)) == (7.905, 7.902)


def test_distinguish() -> None:
    rng = np.random.default_rng(0)
    attack = distinguish(rng.laplace(0.0, 1.0, (4000, 1)), rng.laplace(1.0, 1.0, (4000, 1)), ("answer",), 0.0)
    assert 0.6 < attack.bound < 1.0


def test_find_reachable() -> None:
    gaussian = DiscreteGaussian("answer", 1, Fraction(1), Fraction(16))
    few, many = (find_reachable([gaussian], runs, 1e-6) for runs in (500, 50_000))
    assert few < many < 1.0


def test_examine_method() -> None:
    found = examine_method(method_named("lap-mech"), Budget.of(1, 0), plan=Plan(runs=50, trials=40))
    assert found.violations == ()


def test_bound_auc() -> None:
    assert round(bound_auc(1.0, 0.0), 4) == 0.7311


def test_measure_auc() -> None:
    assert measure_auc(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.5])).value == 0.8888888888888888


def test_choose_threshold() -> None:
    assert choose_threshold(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 2.0


def test_measure_advantage() -> None:
    found = measure_advantage(np.ones(100), np.zeros(100), 0.5)
    assert (found.value, 0.9 < found.low < 1.0) == (1.0, True)


def test_fit_logistic() -> None:
    rows = np.array([[0.0], [0.2], [0.9], [1.0]])
    assert bool(fit_logistic(rows, np.array([False, False, True, True]))[0] > 0.0)


def test_make_pair() -> None:
    pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
    assert pair.second.n_rows - pair.first.n_rows == 1


def test_fitting_kinds() -> None:
    kinds = (DataKind.LEVELS, DataKind.TWO_COLUMNS, DataKind.BLOCK)
    assert fitting_kinds(method_named("svt-pc")) == kinds


def test_draw_rows() -> None:
    assert draw_rows(DataKind.NUMBERS, 5, np.random.default_rng(0)).shape == (5, 3)


def test_odd_record() -> None:
    assert odd_record(DataKind.NUMBERS).tolist() == [[4.0, -4.0, 4.0]]


def test_attack_cases() -> None:
    assert [case.kind.value for case in attack_cases(method_named("curate"), Effort.QUICK, {})] == [
        "two columns of levels",
        "two columns of levels",
    ]


def test_count_runs() -> None:
    cases = attack_cases(method_named("curate"), Effort.FULL, {})
    assert [count_runs(method_named("curate"), case, Effort.FULL) for case in cases] == [10000, 10000, 200, 200]


def test_block_store() -> None:
    with BlockStore(None) as store:
        store.put("task", b"content")
        assert (store.get("task"), store.get("another")) == (b"content", None)


def test_published_claim() -> None:
    assert [statistic.name for statistic in published_claim("em-pc").statistics] == ["greedy distance"]


def test_replay_method() -> None:
    pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
    assert replay_method(method_named("lap-mech"), pair, Budget.of(1, 0)).violations == ()


def test_find_fixed_run() -> None:
    pair = make_pair(DataKind.TWO_COLUMNS, Relation.ADD_REMOVE)
    attackers = [Attacker(method_named(name), pair, Budget.of(1, 1e-6), {}) for name in ("lap-mech", "svt-pc")]
    fixed, none = map(find_fixed_run, attackers)
    assert fixed is not None
    assert len(fixed.places) == 4
    assert none is None


def test_seed_run() -> None:
    assert seed_run(0, 0, 1) != seed_run(0, 1, 0)


def test_norm_measure() -> None:
    assert [float(norm.measure(np.array([3.0, -4.0]))) for norm in Norm] == [7.0, 5.0, 4.0]


def test_audited_statistics() -> None:
    assert len({statistic.name for statistic in audited_statistics()}) == len(audited_statistics())


def test_search_statistic() -> None:
    rows = next(one for one in audited_statistics() if one.name == "number of rows")
    assert search_statistic(rows, Relation.ADD_REMOVE, 100).ratio == 1.0


def test_weigh_samples() -> None:
    near, far = (weigh_samples(0.1, 1.0, np.array([place, place])) for place in (0.0, 3.0))
    assert near > far
