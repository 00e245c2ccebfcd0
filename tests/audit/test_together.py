"""Runs that are drawn together: only where a method always asks the same, and with the law of single runs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy.stats import ks_2samp

from dagveil.audit import examination
from dagveil.audit import runs as runs_module
from dagveil.audit.examination import Plan, attack_case
from dagveil.audit.neighbours import DataKind, attack_cases, count_runs, make_pair
from dagveil.audit.recording import End, Exchange, Finished, Recording
from dagveil.audit.replay import RepeatableRun, read_course
from dagveil.audit.runs import AttackBlock, AttackJob, Conduct, choose_conduct, collect_runs, find_fixed_run, run_block
from dagveil.audit.search import Effort
from dagveil.audit.transcript import Attacker
from dagveil.data.table import Table
from dagveil.methods.method import METHODS, Method, method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import PureFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source

BUDGET = Budget.of(1, 1e-6)
RELEASES = ["measure", "measure-ges", "measure-notears", "measure-features", "lap-mech", "priv-pc-star"]


def make_attacker(method: Method, kind: DataKind = DataKind.TWO_COLUMNS) -> Attacker:
    return Attacker(method, make_pair(kind, Relation.ADD_REMOVE), BUDGET, {})


@pytest.mark.parametrize("name", RELEASES)
def test_sharp_releases_ask_the_same_in_all_runs(name: str) -> None:
    for case in attack_cases(method_named(name), Effort.QUICK, {}):
        attacker = Attacker(method_named(name), make_pair(case.kind, case.relation), BUDGET, case.options)
        assert find_fixed_run(attacker) is not None


def test_asking_methods_run_one_by_one() -> None:
    for method in METHODS.values():
        if method.ask is not None:
            assert count_runs(method, attack_cases(method, Effort.QUICK, {})[0], Effort.FULL) == 10_000
    assert find_fixed_run(make_attacker(method_named("svt-pc"))) is None


@pytest.mark.parametrize("name", ["lap-mech", "measure-notears"])
@pytest.mark.parametrize("table", [0, 1])
def test_runs_have_the_law_of_single_ones(name: str, table: int) -> None:
    """Two samples of log-likelihood ratios: of runs one by one, and of runs that were drawn together."""
    case = attack_cases(method_named(name), Effort.QUICK, {})[0]
    attacker = Attacker(method_named(name), make_pair(case.kind, case.relation), BUDGET, case.options)
    fixed = find_fixed_run(attacker)
    assert fixed is not None
    drawn = fixed.draw(table, 20_000, 1)
    single = np.array([attacker.watch(attacker.tables[table], seed) for seed in range(300)])
    assert drawn.shape[1] == single.shape[1]
    assert ks_2samp(drawn[:, 0], single[:, 0]).pvalue > 1e-3
    # and the test can fail: the other table has another law
    other = fixed.draw(1 - table, 20_000, 1)
    assert ks_2samp(other[:, 0], drawn[:, 0]).pvalue < 1e-3


def test_one_run_by_its_own_numbers() -> None:
    """Noise that is known gives the same ratio by either way."""
    attacker = make_attacker(method_named("lap-mech"))
    fixed = find_fixed_run(attacker)
    assert fixed is not None
    seed = 5
    (ratio, _), single = fixed.draw(1, 1, seed)[0], attacker.watch(attacker.tables[1], seed)
    assert ratio == pytest.approx(single[0])


class TestRefusals:
    def test_answers_that_are_more_than_noise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A method that adds noise of its own, on top, is not drawn together."""
        honest = Attacker.run

        def disturb(self: Attacker, table: Table, seed: int) -> tuple[object, list[Exchange]]:
            result, told = honest(self, table, seed)
            shifted = [
                replace(one, exact=replace(one.exact, values=tuple(value + 1.0 for value in one.exact.values)))
                for one in told
            ]
            return result, shifted

        monkeypatch.setattr(Attacker, "run", disturb)
        assert find_fixed_run(make_attacker(method_named("lap-mech"))) is None

    def test_questions_that_follow_from_answers(self) -> None:
        """Numeric columns without a centre: what is asked next depends on a first release."""
        assert find_fixed_run(make_attacker(method_named("priv-pc-star"), DataKind.NUMBERS)) is None

    def test_few_runs_are_done_one_by_one(self) -> None:
        job = AttackJob("lap-mech", DataKind.TWO_COLUMNS, Relation.ADD_REMOVE, "1", "1/1000000")
        assert choose_conduct(job, runs_module.FEWEST_RUNS - 1) is Conduct.EACH
        assert choose_conduct(job, runs_module.FEWEST_RUNS) is Conduct.TOGETHER


def test_many_runs_are_kept_in_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = AttackJob("lap-mech", DataKind.TWO_COLUMNS, Relation.ADD_REMOVE, "1", "1/1000000")
    seen: list[AttackBlock] = []

    def note(block: AttackBlock) -> object:
        seen.append(block)
        return run_block(block)

    monkeypatch.setattr(runs_module, "run_block", note)
    first, second = collect_runs(job, 5_500)
    assert first.shape == second.shape == (6_000, 2)
    assert {block.size for block in seen} == {runs_module.LARGE_BLOCK}
    assert len({msgspec.json.encode(block) for block in seen}) == 12
    # every block has noise of its own
    assert (first[:1000] != first[1000:2000]).any()


def test_an_attack_says_how_it_ran() -> None:
    case = attack_cases(method_named("lap-mech"), Effort.QUICK, {})[0]
    many = attack_case(method_named("lap-mech"), BUDGET, case, Plan(runs=20_000))
    few = attack_case(method_named("lap-mech"), BUDGET, case, Plan(runs=50))
    assert (many.conduct, few.conduct) == (Conduct.TOGETHER, Conduct.EACH)
    assert many.runs == 10_000
    assert 0.85 < many.bound <= 1.0


def test_luck_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that proves too much is done again with other runs, and the weaker outcome counts."""
    method = method_named("lap-mech")
    case = attack_cases(method, Effort.QUICK, {})[0]
    honest = examination._attack
    seeds: list[int] = []

    def boast(job: AttackJob, runs: int, plan: Plan) -> object:
        seeds.append(job.seed)
        found = honest(job, runs, plan)
        return (
            type(found)(3.0, found.ceiling, found.runs, found.hits, found.other_hits, "luck")
            if len(seeds) == 1
            else found
        )

    monkeypatch.setattr(examination, "_attack", boast)
    assert attack_case(method, BUDGET, case, Plan(runs=100)).bound < 1.0
    assert len(set(seeds)) == 2


class TestRehearsal:
    def test_filters_start_anew(self) -> None:
        """A filter that was copied after a charge would refuse the second run."""
        pair = make_pair(DataKind.TWO_COLUMNS, Relation.ADD_REMOVE)
        trial = RepeatableRun(method_named("lap-mech"), pair.relation, BUDGET, None)
        recordings = [Recording(noise_source(NoiseKind.SEEDED, 3)) for _ in range(3)]
        results = [trial.run(pair.first, recording) for recording in recordings]
        assert results[0] == results[1] == results[2]
        once = RepeatableRun(method_named("lap-mech"), pair.relation, BUDGET, None).run(pair.first, recordings[0])
        assert once is not None

    def test_a_filter_of_another_kind_is_made_for_each_run(self) -> None:
        made = []

        class OwnFilter(PureFilter):
            pass

        def accounting(*facts: object) -> OwnFilter:
            made.append(OwnFilter(BUDGET))
            return made[-1]

        honest = method_named("lap-mech")
        trial = RepeatableRun(replace(honest, accounting=accounting), Relation.ADD_REMOVE, BUDGET, None)
        pair = make_pair(DataKind.TWO_COLUMNS, Relation.ADD_REMOVE)
        for seed in range(2):
            trial.run(pair.first, Recording(noise_source(NoiseKind.SEEDED, seed)))
        assert len(made) == 2

    def test_a_replay_stops_after_the_last_answer(self) -> None:
        attacker = make_attacker(method_named("svt-pc"))
        _, told = attacker.run(attacker.tables[0], 0)
        recording = Recording(noise_source(NoiseKind.SEEDED, 0), told, End.LAST_ANSWER)
        with pytest.raises(Finished):
            attacker._repeatable.run(attacker.tables[1], recording)
        assert len(recording.exchanges) == len(told)


class TestCourses:
    def test_known_replays_are_those_of_fresh_attackers(self) -> None:
        """An attacker who remembers says the same as one who replays every run."""
        method = method_named("svt-pc")
        case = attack_cases(method, Effort.QUICK, {})[0]
        pair = make_pair(case.kind, case.relation)
        veteran = Attacker(method, pair, BUDGET, case.options)
        for seed in range(8):
            fresh = Attacker(method, pair, BUDGET, case.options)
            assert veteran.watch(pair.second, seed) == fresh.watch(pair.second, seed)
        assert len(veteran._ratios) < 8

    def test_random_parts_are_not_remembered(self) -> None:
        attacker = Attacker(
            method_named("svt-pc"),
            make_pair(DataKind.LEVELS, Relation.ADD_REMOVE),
            BUDGET,
            {"statistic": "reconciled-g"},
        )
        _, told = attacker.run(attacker.tables[0], 0)
        assert read_course(told) is None
