"""The method `curate-score`: `noleaks` with a budget that rises from iteration to iteration."""

from dataclasses import replace

from dagveil.methods import noleaks
from dagveil.methods.method import BHATTACHARJEE_2024

METHOD = replace(
    noleaks.METHOD,
    name="curate-score",
    title="the same, with a budget that rises from iteration to iteration",
    paper=BHATTACHARJEE_2024,
    settings=noleaks.CurateScoreSettings,
)
