"""Studies as data: what is read, what is refused and where, which runs follow, and the studies that are shipped."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
import tomli_w
from msgspec.structs import replace

from dagveil.errors import DataError, MethodError
from dagveil_bench.studies.jobs import choose_jobs, list_jobs
from dagveil_bench.studies.page import Form, write_page
from dagveil_bench.studies.plan import LARGE, Role, Study
from dagveil_bench.studies.reading import load_study, parse_study, shipped_studies

SHIPPED = tuple(
    sorted(
        [
            *(f"curate-fig{number}" for number in (3, 4, 5, 6, 7)),
            "curate-fair",
            "custodians",
            "custodians-rounds",
            "drawn",
            "headline",
            "hidden-causes",
            "local-aware",
            "local-aware-size",
            *(f"local-fig{number}" for number in (1, 2, 3, 4, 5)),
            "local-ibu",
            "membership",
            "missing",
            "mixed",
            "nonlinear",
            "numeric",
            "ordinal",
            *(f"pcd-fig{number}" for number in (1, 2, 3)),
            "persons",
            "priv-pc-fig1",
            "priv-pc-table2",
            "privpc-adult",
            *(f"privpc-table{number}" for number in (3, 4, 5, 6, 8, 9, 10, 11)),
            "score-methods",
            "shifted-sites",
            "synthesis",
            "utility",
        ]
    )
)


def plan(**changes: Any) -> dict[str, Any]:
    """Return a small study as TOML would give it."""
    whole: dict[str, Any] = {
        "name": "small",
        "title": "A small study",
        "data": [
            "asia",
            {"source": "nonlinear cancer", "label": "curved", "variants": {"b": "nonlinear-binned cancer"}},
        ],
        "budgets": [0.1, 1],
        "rows": [100, 200],
        "repetitions": 3,
        "methods": [
            {"method": "measure"},
            {"method": "svt-pc", "calibration": "program", "budget_setting": "round_epsilon", "data": ["asia"]},
            {"method": "em-pc", "variant": "b", "data": ["curved"], "rows": [200], "budgets": [5.0]},
            {"method": "measure", "role": "ceiling"},
        ],
        "published": [
            {
                "method": "measure",
                "metric": "shd",
                "source": "nowhere",
                "budgets": [0.1, 1],
                "values": {"asia": [float("nan"), 2.0]},
            }
        ],
    }
    return whole | changes


def read(**changes: Any) -> Study:
    return parse_study(tomli_w.dumps(plan(**changes)))


def test_every_combination_is_run_and_nothing_else() -> None:
    jobs = list_jobs(read())
    seen = sorted({(j.label, j.data, j.n_rows, j.epsilon) for j in jobs})
    wanted = [
        ("measure", data, rows, epsilon) for data in ("asia", "curved") for rows in (100, 200) for epsilon in (0.1, 1.0)
    ]
    wanted += [("svt-pc, as published", "asia", rows, epsilon) for rows in (100, 200) for epsilon in (0.1, 1.0)]
    wanted += [("em-pc", "curved", 200, 5.0)]
    wanted += [("measure, without noise", data, rows, LARGE) for data in ("asia", "curved") for rows in (100, 200)]
    for floor in ("the complete graph", "the empty graph"):
        wanted += [(floor, data, rows, 0.0) for data in ("asia", "curved") for rows in (100, 200)]
    assert seen == sorted(wanted)
    assert len(jobs) == 3 * len(wanted) == len({job.key for job in jobs})
    assert [job.repetition for job in jobs] == sorted(job.repetition for job in jobs)
    assert {job.source for job in jobs if job.label == "em-pc"} == {"nonlinear-binned cancer"}
    given = {(job.epsilon, job.settings["round_epsilon"]) for job in jobs if job.method == "svt-pc"}
    assert given == {(0.1, 0.1), (1.0, 1.0)}


def test_methods_and_budgets_see_the_same_samples_and_noise_is_each_ones_own() -> None:
    jobs = list_jobs(read())
    samples: dict[tuple[str, int, int], set[int]] = {}
    for job in jobs:
        samples.setdefault((job.data, job.n_rows, job.repetition), set()).add(job.sample_seed)
    assert all(len(seeds) == 1 for seeds in samples.values())
    assert len({seed for seeds in samples.values() for seed in seeds}) == len(samples) == 12
    assert len({job.noise_seed for job in jobs}) == len(jobs)
    assert all(0 <= seed < 2**62 for job in jobs for seed in (job.sample_seed, job.noise_seed))
    shared = list_jobs(read(samples=2))
    assert [job.sample for job in shared] == [job.repetition % 2 for job in shared]
    assert len({job.noise_seed for job in shared}) == len(shared)


def test_keys_stay_when_labels_and_neighbours_change_and_move_when_the_run_does() -> None:
    old = {job.key for job in list_jobs(read())}
    entries = plan()["methods"]
    entries[0] |= {"label": "ours"}
    relabelled = list_jobs(read(methods=entries, published=[]))
    assert {job.key for job in relabelled} == old
    assert {job.key for job in list_jobs(read(repetitions=4))} > old
    entries[0] |= {"label": ""}
    for changes in ({"seed": 2}, {"delta": 1e-5}):
        floors = {job.key for job in list_jobs(read(**changes))}
        assert not floors & old


def test_long_runs_are_repeated_less() -> None:
    twice = [
        {"method": "measure", "rows": [100]},
        {"method": "measure", "data": ["asia"], "rows": [200], "repetitions": 2},
    ]
    study = read(methods=twice, published=[])
    runs = [(job.data, job.n_rows) for job in list_jobs(study) if job.label == "measure" and job.epsilon == 1.0]
    assert sorted(runs) == [("asia", 100)] * 3 + [("asia", 200)] * 2 + [("curved", 100)] * 3
    page = write_page(study, [], [], Form.MARKDOWN)
    assert "- measure, asia, 200 rows: 2 repetitions, because a run takes long." in page
    assert "measure, 100 rows:" not in page
    with pytest.raises(MethodError, match=r"methods\[1\]: is called 'measure' like methods\[0\]"):
        read(methods=[twice[0], twice[1] | {"rows": [100, 200]}], published=[])


def test_parts_can_be_chosen() -> None:
    jobs = list_jobs(read())
    chosen = choose_jobs(jobs, {"data": ["asia"], "epsilon": ["0.1", "1"], "method": ["svt-pc", "measure"]})
    assert {job.label for job in chosen} == {"measure", "svt-pc, as published", "measure, without noise"}
    assert {job.data for job in chosen} == {"asia"}
    assert len(choose_jobs(jobs, {"method": ["svt-pc, as published"], "rows": ["100"]})) == 6
    assert {job.role for job in choose_jobs(jobs, {"role": ["floor"]})} == {Role.FLOOR}
    assert choose_jobs(jobs, {"repetition": ["0"]}) == jobs[: len(jobs) // 3]
    one = choose_jobs(jobs, {"epsilon": ["1.00"]})
    assert {job.epsilon for job in one if job.role is Role.CONTENDER} == {1.0}
    assert [job for job in one if job.role is not Role.CONTENDER] == [j for j in jobs if j.role is not Role.CONTENDER]
    with pytest.raises(MethodError, match=r"no run has epsilon '2'; there are: 0.1; 1; 5$"):
        choose_jobs(jobs, {"epsilon": ["2"]})
    with pytest.raises(MethodError, match=r"no run has epsilon 'much'"):
        choose_jobs(jobs, {"epsilon": ["much"]})
    with pytest.raises(MethodError, match="no run has data 'mars'; there are: asia; curved"):
        choose_jobs(jobs, {"data": ["mars"]})
    with pytest.raises(MethodError, match="cannot be chosen by 'colour'; choose by data, method"):
        choose_jobs(jobs, {"colour": ["red"]})


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"rows": [0]}, r"rows\[0\]: expected `int` >= 1"),
        ({"rows": []}, "rows: expected `array` of length >= 1"),
        ({"rows": [100, 100]}, r"rows\[1\]: 100 stands twice; leave one out"),
        ({"budgets": [1, 2, 1.0]}, r"budgets\[2\]: 1 stands twice; leave one out"),
        (
            {"data": ["random 5 1.5"], "methods": [{"method": "measure"}]},
            r"data\[0\]: .* a sparseness from 0 to 1, the share of pairs that are joined",
        ),
        ({"budgets": [0.1, -1]}, r"budgets\[1\]: expected `float` > 0"),
        ({"budgets": [float("inf")]}, "budgets: must be finite"),
        ({"colour": "red"}, "object contains unknown field `colour`; choose from name, title, data, methods, budgets"),
        ({"repetition": 3}, "object contains unknown field `repetition`; did you mean repetitions[?]"),
        (
            {"methods": [{"method": "measure", "calibrate": 1}]},
            r"methods\[0\]: .*; did you mean calibration[?]",
        ),
        ({"quick": {"row": [3]}}, "quick: .*`row`; did you mean rows[?]"),
        ({"metrics": ["beauty"]}, r"metrics\[0\]: invalid enum value 'beauty'; choose from skeleton-f1, cpdag-f1, shd"),
        ({"name": "a b"}, "name: expected `str` matching regex"),
        ({"data": []}, "data: is empty"),
        ({"data": ["asia", "asia"]}, r"data\[1\]: is called 'asia' like data\[0\]"),
        ({"data": ["mars"], "methods": [{"method": "measure"}]}, r"data\[0\]: no network is called 'mars'"),
        ({"data": ["random 5"], "methods": [{"method": "measure"}]}, r"data\[0\]: .* needs a number of nodes"),
        ({"methods": [{"method": "magic"}]}, r"methods\[0\]: no method is called 'magic'"),
        ({"methods": [{"method": "measure"}] * 2}, r"methods\[1\]: is called 'measure' like methods\[0\]"),
        ({"methods": [{"method": "pcd", "settings": {"x": 1}}]}, r"methods\[0\]: pcd \(sound\) has no setting 'x'"),
        ({"methods": [{"method": "em-pc", "settings": {"level": 2.0}}]}, r"methods\[0\]: .* level: expected"),
        (
            {"methods": [{"method": "svt-pc", "calibration": "program", "settings_at": {"round_epsilon": [0.1]}}]},
            r"methods\[0\]: settings_at.round_epsilon has 1 values for 2 budgets",
        ),
        ({"methods": [{"method": "measure", "calibration": "paper"}]}, r"methods\[0\]: measure is not from a publ"),
        (
            {"methods": [{"method": "measure", "calibration": "best"}]},
            r"methods\[0\]\.calibration: .* from sound, paper, program",
        ),
        ({"methods": [{"method": "measure", "budget_setting": "x"}]}, r"methods\[0\]: measure .* no setting 'x'"),
        ({"methods": [{"method": "measure", "data": ["mars"]}]}, r"methods\[0\]: data: nothing is called 'mars'"),
        ({"methods": [{"method": "measure", "variant": "b"}]}, r"methods\[0\]: variant: 'asia' has no variant 'b'"),
        ({"methods": [{"method": "measure", "role": "floor"}]}, r"methods\[0\]: role: floors are in every study"),
        (
            {"published": [{"method": "no", "metric": "shd", "source": "s", "values": {}}]},
            r"published\[0\]: method: nothing is called 'no'",
        ),
        (
            {"published": [{"method": "measure", "metric": "shd", "source": "s", "values": {"asia": [1.0, 2.0]}}]},
            r"published\[0\]: values.asia has 2 figures",
        ),
        ({"quick": {"data": ["mars"]}}, "quick: data: nothing is called 'mars'"),
        ({"quick": {"methods": ["no"]}}, "quick: methods: nothing is called 'no'"),
    ],
)
def test_mistakes_are_told_with_their_place(changes: dict[str, Any], place: str) -> None:
    dropped = {"published": []} if "published" not in changes else {}
    with pytest.raises(MethodError, match=f"the study cannot be (read|run): {place}"):
        read(**dropped, **changes)


def test_two_entries_that_are_the_same_run_are_refused() -> None:
    study = read(methods=[{"method": "measure"}, {"method": "measure", "label": "again"}], published=[])
    with pytest.raises(MethodError, match=r"'again' and 'measure' are the same run on asia at epsilon 0.1"):
        list_jobs(study)


def test_files_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(MethodError, match="not valid TOML"):
        parse_study("name = ")
    with pytest.raises(
        DataError, match="No such file or directory; give a TOML file, or one of curate-fair, curate-fig3"
    ):
        load_study(tmp_path / "none.toml")
    odd = tmp_path / "odd.toml"
    odd.write_text('name = "odd"\n', encoding="utf-8")
    with pytest.raises(MethodError, match=r"odd\.toml: the study cannot be read: .* missing required field `title`"):
        load_study(odd)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        load_study(binary)


def test_a_plan_survives_json_with_its_gaps() -> None:
    study = read()
    assert msgspec.json.decode(study.to_json(), type=Study) == study
    (printed,) = study.published
    assert [printed.at("asia", epsilon, 100) for epsilon in (0.1, 1.0, 2.0)] == [None, 2.0, None]


def test_miniatures_keep_what_they_do_not_change() -> None:
    study = read(quick={"rows": [50], "budgets": [1.0], "data": ["curved"], "repetitions": 2}, samples=1)
    quick = study.miniature()
    jobs = list_jobs(quick)
    assert quick.name == "small-quick"
    assert {(job.data, job.n_rows, job.repetition) for job in jobs} == {("curved", 50, 0), ("curved", 50, 1)}
    assert {job.label: job.epsilon for job in jobs if job.role is not Role.FLOOR} == {
        "measure": 1.0,
        "em-pc": 1.0,
        "measure, without noise": LARGE,
    }
    assert replace(study.miniature(), name="x") == replace(study.miniature(), name="x")


def test_the_shipped_studies_are_these() -> None:
    assert tuple(shipped_studies()) == SHIPPED
    for name in SHIPPED:
        study = load_study(name)
        assert study.name == name
        assert study.repetitions >= 20
        assert {job.repetition for job in list_jobs(study.miniature())} == {0}
        # adult and the cells have figures only where their records are installed
        assert study.published or "no numbers" in " ".join(study.notes) or study.reproduces.startswith("No publication")


def test_the_budgets_of_figures_are_the_published_ones() -> None:
    study = load_study("priv-pc-fig1")
    assert study.budgets == pytest.approx(np.logspace(-2, 1.5, 21), rel=1e-5)
    assert load_study("pcd-fig2").budgets == (0.1, 0.2, 0.4, 0.8, 1.0, 2.0, 4.0, 8.0)
    headline = load_study("headline").budgets
    assert (headline[0], headline[-1]) == (0.01, 10.0)
    assert all(a < b for a, b in pairwise(headline))
    assert {0.1, 5.0, 10.0} <= set(load_study("curate-fig4").budgets)


def test_settings_follow_the_budgets() -> None:
    study = load_study("curate-fair")
    jobs = [job for job in list_jobs(study) if job.label == "svt-pc, own settings" and job.data == "cancer"]
    given = {job.epsilon: job.settings["round_epsilon"] for job in jobs}
    assert list(given) == [0.1, 1.0, 10.0]
    assert list(given.values()) == sorted(set(given.values()))
