"""Zheng, Aragam, Ravikumar and Xing 2018 as published: NOTEARS, which has no privacy."""

import enum

import msgspec
import numpy as np

from dagveil.data.column import Numeric
from dagveil.evidence.moments import NoisyCovariance
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, NotNegative
from dagveil.methods.noleaks import BITS, join_arcs, read_graph, required_entries, row_plan
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.score.linear import find_linear_dag
from dagveil.search.score.notears import Acyclicity, NotearsSettings, find_weights, forbidden_entries

SMALLEST_VARIANCE = 1e-9  # added to the variances of exact columns: one that never changes has none
WHOLE_RADIUS = 100.0  # squared radius per column, in squared spreads, within which hardly any row is shrunk
NOT_PRIVATE = "it adds no noise: it is the twin without privacy, for comparison"


class NotearsRule(enum.Enum):
    """Where the penalty and the threshold of exact NOTEARS come from."""

    PUBLISHED = "published"  # the settings `penalty` and `threshold`, in the units of the data
    NOISE = "noise"  # the search of the sound method, told that there is no noise: its ceiling


class ExactNotearsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of NOTEARS without noise.

    - `penalty`: λ of the ℓ₁ penalty.
    - `threshold`: Smallest weight that counts as an edge.
    - `acyclicity`: How cycles are kept out: exponential, as published, or log-determinant, which is faster.
    - `rule`: Published takes penalty and threshold as they are; noise takes the whole search of the sound method at no
      noise, and reads none of the other settings.
    """

    penalty: NotNegative = 0.1
    threshold: NotNegative = 0.3
    acyclicity: Acyclicity = Acyclicity.LOG_DETERMINANT
    rule: NotearsRule = NotearsRule.PUBLISHED


def publish_notears(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: ExactNotearsSettings, progress: Progress
) -> Asked:
    """Run linear NOTEARS on the exact moments."""
    schema = access.schema
    columns = tuple(schema.columns)
    coded = [name for name, column in schema.columns.items() if not isinstance(column, Numeric)]
    levels = {name: access.exact_table((name,)) / max(access.n_rows, 1) for name in coded}
    plan = row_plan(schema, levels, WHOLE_RADIUS)
    moments = access.exact_moments(plan).astype(np.float64) / 4.0**BITS
    n = max(moments[0, 0], 1.0)
    mean = moments[0, 1:] / n
    scaled = moments[1:, 1:] / n - np.outer(mean, mean)
    spreads = np.array(plan.spreads)
    forbidden = forbidden_entries(columns, knowledge)
    progress("optimising", 0, 1)
    if settings.rule is NotearsRule.NOISE:
        matrix = scaled + SMALLEST_VARIANCE * np.eye(len(columns))
        noisy = NoisyCovariance(columns, matrix, 0.0, float(n), 0.0, np.zeros(len(columns)))
        unitless = np.array([name in levels for name in columns], dtype=np.bool_)
        required = required_entries(columns, knowledge)
        edges = find_linear_dag(noisy, np.where(unitless, 1.0, spreads), unitless, forbidden, required)
        progress("optimising", 1, 1)
        told = "The rows were read once, without noise."
        return Asked(join_arcs(columns, edges, knowledge), (), (told,), 1)
    # in the units of the data, as published
    covariance = scaled * np.outer(spreads, spreads)
    chosen = NotearsSettings(penalty=settings.penalty, acyclicity=settings.acyclicity)
    weights = find_weights(covariance, chosen, forbidden)
    progress("optimising", 1, 1)
    graph = read_graph(columns, weights.matrix, settings.threshold, knowledge)
    told = f"{weights.rounds} rounds and {weights.evaluations} evaluations; the rows were read once, without noise."
    return Asked(graph, (), (told,), 1)


PUBLICATIONS = {
    "measure-notears": Publication(
        {Calibration.PAPER: Reading(ExactNotearsSettings, publish_notears, NOT_PRIVATE)},
        "nothing in the authors' program differs from the text",
    ),
}
