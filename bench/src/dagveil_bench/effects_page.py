"""The page of the study of effects."""

from __future__ import annotations

from collections.abc import Sequence

from dagveil.progress import Progress
from dagveil_bench.effects import CLIP, COMMON, Case, rival_widths, run_linear, run_tables
from dagveil_bench.peers import import_peer
from dagveil_bench.real_effects import CHALLENGE, TABLES, TRIAL, find_challenge, run_challenge, run_trial
from dagveil_bench.tables import write_table

TRIAL_RUNS = 20
CHALLENGE_RUNS = 5


def effects_page(case: Case, real: Sequence[str], command: str, progress: Progress) -> str:
    """Run everything, and write the page; `real` are tables of packages, which must be there before anything runs."""
    if TRIAL in real:
        import_peer("causaldata", "tables")
    if CHALLENGE in real:
        find_challenge()
    tally, unknown = run_tables(case, progress)
    linear = run_linear(case, progress)
    heads = ("network", "from", "estimates", "RMSE", "RMSE, not private", "ratio", "coverage", "width")
    widths = [row for rows in (10_000, 100_000) for row in rival_widths(rows, 1.0, (1, 10, 100))]
    return "\n".join(
        [
            "# Effects: error, coverage and width",
            "",
            f"{case.rows} rows, ε = {case.epsilon:g}, δ = 1e-6, add/remove; {case.pairs} pairs of each network in",
            f"which the effect lies behind the cause, {case.repetitions} repetitions. The contrasts of a table are not",
            "independent, so a coverage has a larger standard error than as many coins. Contrasts between levels of",
            f"the cause that hold at least {COMMON:.0%} of the rows; errors and widths in points. All by",
            "",
            f"    {command}",
            "",
            "## The true graph",
            "",
            "Evidence of `measure`, which was not released for any effect; `table` is exact, `additive` takes columns",
            "to act one by one and its intervals only guess at what it misses where they do not. `fresh table`:",
            "exactly the table of the effect, with the same ε, as `dagveil effect FILE --from` releases it. Not",
            "private: the same estimator on the exact counts of the same rows.",
            "",
            write_table(heads, tally.rows()),
            "",
            "## The graph of the same evidence",
            "",
            f"The truth lies in the union over possible parent sets, and in the interval of {case.redraws} redraws of",
            f"graph and effect; {case.unknown} repetitions.",
            "",
            write_table(("network", "answers", "union holds it", "width", "redraws hold it", "width"), unknown),
            "",
            "## Linear Gaussian networks",
            "",
            "Slopes in units of the columns, whose errors have deviation 1.",
            "",
            write_table(heads, linear.rows()),
            "",
            *(_tell_trial() if TRIAL in real else ()),
            *(_tell_challenge(progress) if CHALLENGE in real else ()),
            "## Width beside rivals that spend ε on each effect",
            "",
            "Formulas, for a yes/no cause and effect with shares of one half, in points: no noise; one joint table of",
            f"eight yes/no columns, for all effects together; AIPW with propensities cut at {CLIP:g}, and a difference",
            "of noisy means, both with ε divided by the number of effects.",
            "",
            write_table(("rows", "ε", "effects", "no noise", "dagveil", "AIPW", "means"), widths),
            "",
        ]
    )


def _tell_trial() -> list[str]:
    return [
        "## NSW with controls from the CPS",
        "",
        "Points by which training raised the share who worked in 1978, adjusted for work in 1975, race, marriage and",
        f"age; {TRIAL_RUNS} runs of `measure` at each ε, with deviation. 185 of 16 177 rows are trained.",
        "",
        write_table(("", "points", "width"), run_trial((0.3, 1, 3), TRIAL_RUNS)),
        "",
    ]


def _tell_challenge(progress: Progress) -> list[str]:
    return [
        "## ACIC 2016",
        "",
        f"{TABLES} tables of a challenge, as the package causallib ships them: 4802 rows and 58 covariates of a real",
        "study of births, with treatment and outcome drawn by laws that bend and interact, so the mean effect on the",
        f"rows is known. The 55 covariates that are numbers come before the treatment. {CHALLENGE_RUNS} runs of",
        "`measure` on each table at each ε, which release 57 columns at once; then slopes adjusted for all covariates,",
        "or for what the graph of the same evidence says. Exact rows: least squares. The outcome has a deviation of 5.",
        "",
        write_table(
            ("adjusted for", "from", "answers", "mean error", "RMSE", "coverage", "width"),
            run_challenge(CHALLENGE_RUNS, progress),
        ),
        "",
    ]
