"""Statistics of rows of numbers and of levelled rows, each with its declared sensitivity, ready to be searched.

A search measures millions of small tables, so each statistic has a twin that measures many at once. Twins only rank the
tables: the pair that a search reports is measured by the statistic itself. Tables with several records per person are
searched for persons whose records together move too much: a neighbour gains or loses all records of a person.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.audit import search
from dagveil.audit.search import AuditedStatistic, Domain, Floats, Found, Look, Norm
from dagveil.data import moments as plans
from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.gradients import GradientPlan, _clip_products, _products, sum_curvatures, sum_gradients
from dagveil.data.ids import KEY_BYTES
from dagveil.data.memory import MemoryTable
from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.data.moments import AdditiveFunction, MomentPlan, ResidualPlan
from dagveil.data.persons import open_persons
from dagveil.data.schema import Schema
from dagveil.data.streams import ArrowRows
from dagveil.data.table import Table
from dagveil.data.weighed import refine
from dagveil.privacy.budget import Relation
from dagveil.statistics import contingency, kernels
from dagveil.statistics import residuals as regression
from dagveil.statistics.contingency import counts_sensitivity, counts_squared_sensitivity
from dagveil.statistics.gcm import gcm_sensitivities, gcm_sums
from dagveil.statistics.moments import (
    curvature_squared_sensitivity,
    gradient_squared_sensitivity,
    moments_squared_sensitivity,
    pair_moments_squared_sensitivity,
)

COLUMNS: Final = 3
RADIUS_SQUARED: Final = 9.0
RADIUS: Final = math.sqrt(RADIUS_SQUARED)
BITS: Final = 8
LATTICE: Final = 3
SLOTS: Final = 12  # levelled rows; the slot that changes is one of them
BANDWIDTH: Final = 0.5  # of all kernels
BOUND: Final = 2.0  # where residuals are cut
MAGNITUDE_BOUND: Final = 4.0
EXPONENTS: Final = range(-4, 4)  # columns that are counted by magnitude, and the powers of two that they are counted by
_NAMES: Final = tuple("abc")
_ROWS: Final = plans.MomentPlan(_NAMES, (0.0,) * COLUMNS, (1.0,) * COLUMNS, RADIUS_SQUARED, 1.0, BITS)


def number_statistics() -> tuple[AuditedStatistic, ...]:
    """Return the statistics of rows of numbers, and those of levelled rows."""
    return (*_sums_of_rows(), *_kernel_statistics(), *_residual_statistics())


def _split(rows: Floats) -> list[Floats]:
    return [np.ascontiguousarray(column) for column in rows.T]


def _sums_of_rows() -> list[AuditedStatistic]:
    features = plans.FeaturePlan(
        _NAMES, (0.0,) * COLUMNS, (3.0,) * COLUMNS, plans.Basis.LEGENDRE, 2, RADIUS_SQUARED, 1.0, BITS
    )
    # the first column counts by its code, the second enters as it is, the third by two features and an indicator
    mixed = MixedPlan(("a",), (3,), ("b", "c"), (0.0, 0.0), (1.0, 3.0), (1, 2), RADIUS_SQUARED, 1.0, BITS, ("c",))
    functions = AdditiveFunction(0.1, ((0.5, -0.2),)), AdditiveFunction(-0.3, ((0.9,),))
    residuals = ResidualPlan(("b", "c"), ("a",), functions, (0.0, 0.1), (0.5, 0.4))
    moments, of_features = _look_at_products(_ROWS, RADIUS), _look_at_products(features, 3.0)
    of_residuals = _look_at_products(residuals, 1.0, Domain.BOUNDED)  # columns come scaled to [-1, 1]
    gradients = search.join_looks([_look_at_gradients(np.zeros((3, 3))), _look_at_gradients(np.diag([2.0, 2.0, 0.0]))])
    magnitudes = search.look_at_records(
        _count_magnitudes,
        2,
        MAGNITUDE_BOUND,
        lambda relation: math.sqrt(counts_squared_sensitivity(relation, 2, LATTICE)),
        batch=_batch_magnitudes,
    )
    squared = "statistics.moments.moments_squared_sensitivity"
    of_pairs = "statistics.moments.pair_moments_squared_sensitivity"
    return [
        AuditedStatistic("second moments", squared, moments),
        AuditedStatistic("second moments of features", squared, of_features),
        AuditedStatistic("second moments of levels beside numbers", squared, _look_at_products(mixed, RADIUS)),
        AuditedStatistic("second moments of chosen pairs", of_pairs, _look_at_pairs(mixed)),
        AuditedStatistic("second moments of residuals of public functions", squared, of_residuals),
        AuditedStatistic("sum of clipped gradients", "statistics.moments.gradient_squared_sensitivity", gradients),
        AuditedStatistic(
            "sum of clipped curvatures", "statistics.moments.curvature_squared_sensitivity", _look_at_curvatures()
        ),
        AuditedStatistic("counts by magnitude", "statistics.contingency.counts_squared_sensitivity", magnitudes),
    ]


def _look_at_products(query: plans.OuterProducts, reach: float, domain: Domain = Domain.ANY) -> Look:
    """Search sums of outer products, upper triangle; the diagonal weighs 1/√2: its noise has twice the variance."""

    def weigh(products: np.ndarray) -> Floats:
        rows, columns = np.triu_indices(products.shape[-1])
        return np.asarray(products[..., rows, columns] * np.where(rows == columns, math.sqrt(0.5), 1.0))

    def batch(tables: Floats) -> Floats:
        columns = list(tables.reshape(-1, tables.shape[2]).T)
        vectors = plans.quantise_rows(np.asarray(query.expand(columns), dtype=np.float64).T, query.rows)
        vectors = vectors.reshape(*tables.shape[:2], vectors.shape[1]).astype(np.float64)
        return weigh(np.matmul(vectors.transpose(0, 2, 1), vectors))

    def measure(rows: Floats) -> Floats:
        return weigh(plans.sum_outer_products(_split(rows), query, n_rows=len(rows)))

    def declare(relation: Relation) -> float:
        return math.sqrt(moments_squared_sensitivity(relation, query))

    return search.look_at_records(measure, COLUMNS, reach, declare, domain=domain, batch=batch)


def _look_at_pairs(plan: MixedPlan) -> Look:
    """Search the blocks of chosen pairs: of levels and a number, and of two numbers."""
    query = MixedPairs(plan, (("a", "b"), ("c", "b")))
    places = query.places()

    def cut(products: np.ndarray) -> Floats:
        parts = [products[..., places[x], places[y]] for x, y in query.pairs]
        return np.concatenate([part.reshape(*part.shape[:-2], -1) for part in parts], axis=-1).astype(np.float64)

    def batch(tables: Floats) -> Floats:
        vectors = query.expand(list(tables.reshape(-1, tables.shape[2]).T)).T
        vectors = np.hstack([np.zeros((len(vectors), 1)), vectors])
        vectors = vectors.reshape(*tables.shape[:2], vectors.shape[1])
        return cut(np.matmul(vectors.transpose(0, 2, 1), vectors))

    return search.look_at_records(
        lambda rows: cut(plans.sum_outer_products(_split(rows), query, n_rows=len(rows))),
        COLUMNS,
        RADIUS,
        lambda relation: math.sqrt(pair_moments_squared_sensitivity(relation, query)),
        batch=batch,
    )


def _look_at_gradients(weights: Floats) -> Look:
    plan = GradientPlan(_ROWS, tuple(map(tuple, weights.tolist())), clip=5.0)

    def batch(tables: Floats) -> Floats:
        z = _scale(tables)
        pair = _clip_products(z, z - _products(z, np.array(plan.weights), _ROWS), plan)
        left, right = (part.T.reshape(tables.shape) for part in pair)
        return np.asarray(np.matmul(left.transpose(0, 2, 1), right).reshape(len(tables), -1))

    return search.look_at_records(
        lambda rows: sum_gradients(_split(rows), plan, n_rows=len(rows)).reshape(-1).astype(np.float64),
        COLUMNS,
        RADIUS,
        lambda relation: math.sqrt(gradient_squared_sensitivity(relation, plan)),
        batch=batch,
    )


def _look_at_curvatures() -> Look:
    direction, cap = np.array([[0.0, 1.0, 0.5], [0.0, 0.0, -1.0], [0.2, 0.0, 0.0]]), 4.0

    def measure(rows: Floats) -> Floats:
        return np.array([sum_curvatures(_split(rows), _ROWS, direction, cap, n_rows=len(rows))], dtype=np.float64)

    def batch(tables: Floats) -> Floats:
        z = _scale(tables)
        squares = np.zeros(z.shape[1])
        for column in _products(z, direction, _ROWS):
            squares += np.square(column)
        integers = np.floor(np.minimum(squares, cap) * 2.0**BITS)
        return np.asarray(integers.reshape(tables.shape[:2]).sum(axis=1)[:, None])

    declared = math.sqrt(curvature_squared_sensitivity(_ROWS, cap))
    return search.look_at_records(measure, COLUMNS, RADIUS, lambda relation: declared, batch=batch)


def _scale(tables: Floats) -> Floats:
    columns = np.ascontiguousarray(tables.reshape(-1, tables.shape[2]).T)
    return plans.scale_rows(columns, _ROWS, np.empty_like(columns))


def _count_magnitudes(rows: Floats) -> Floats:
    """Return the counts of two columns by powers of two, as the engine gives them."""
    columns = {name: Numeric(bounds=(-MAGNITUDE_BOUND, MAGNITUDE_BOUND)) for name in "ab"}
    schema = Schema(dataset="audit", columns=columns, reviewed=True, public=True)
    table = MemoryTable.from_source(dict(zip("ab", _split(rows), strict=True)), schema)
    counts = [table.magnitude_counts(name, 0.0, EXPONENTS) for name in "ab"]
    return LATTICE * np.concatenate(counts).astype(np.float64)


def _batch_magnitudes(tables: Floats) -> Floats:
    """Measure the twin of counts by magnitude around 0; missing values count as 0."""
    values = np.nan_to_num(tables, nan=0.0, posinf=np.inf, neginf=-np.inf)
    sizes = np.abs(np.clip(values, -MAGNITUDE_BOUND, MAGNITUDE_BOUND))
    mantissas, powers = np.frexp(sizes)
    powers = np.where(sizes == 0.0, EXPONENTS[0], powers - (mantissas == 0.5))
    cells = np.clip(powers, EXPONENTS[0], EXPONENTS[-1]) - EXPONENTS[0]
    counts = (cells[..., None] == np.arange(len(EXPONENTS))).sum(axis=1)
    return np.asarray(LATTICE * counts.reshape(len(tables), -1), dtype=np.float64)


def _slot_statistic(name: str, function: str, *looks: Look) -> AuditedStatistic:
    """Return a statistic of levelled rows: one slot takes another value, whatever the relation."""
    return AuditedStatistic(name, function, search.join_looks(looks), (Relation.REPLACE_ONE,))


def _look_at_slots(measure: search.RowMeasure, batch: search.BatchMeasure, declared: float, reach: float = 1.0) -> Look:
    """Return the search for a statistic of two levelled columns."""
    sizes, bounded = (SLOTS - 1,), Domain.BOUNDED
    return search.look_at_records(measure, 2, reach, lambda relation: declared, Norm.LARGEST, sizes, bounded, batch)


def _kernel_statistics() -> list[AuditedStatistic]:
    kernel = kernels.kernel_features(BANDWIDTH, 2.0)
    permutations = np.random.default_rng(0).permuted(np.tile(np.arange(SLOTS), (20, 1)), axis=1)
    none = permutations[:0]

    def root(rows: Floats, orders: NDArray[np.intp]) -> Floats:
        return kernels.root_hsic(kernel.map(rows[:, 0]), kernel.map(rows[:, 1]), orders)

    permuted = _look_at_slots(
        lambda rows: root(rows, permutations)[1:],
        lambda tables: _batch_root_hsic(tables, kernel, permutations)[:, 1:],
        kernels.root_hsic_sensitivity(SLOTS, kernel, kernel),
    )
    paired = _look_at_slots(
        lambda rows: root(rows, none),
        lambda tables: _batch_root_hsic(tables, kernel, none),
        kernels.paired_root_hsic_sensitivity(SLOTS, kernel, kernel),
    )
    residuals = [
        _look_at_residuals(ridge, gram, penalty)
        for ridge, gram in (
            (
                regression.ridge_residuals,
                lambda given: np.exp(-0.5 / BANDWIDTH**2 * (given[:, :, None] - given[:, None, :]) ** 2),
            ),
            # (ΦᵀΦ + r)⁻¹Φᵀ = Φᵀ(ΦΦᵀ + r)⁻¹, and there are fewer slots than features
            (regression.ridge_residuals_by_features, lambda given: _multiply(_map(kernel, given))),
        )
        for penalty in (0.1, 1.0)
    ]
    return [
        _slot_statistic("root HSIC, permuted", "statistics.kernels.root_hsic_sensitivity", permuted),
        _slot_statistic("root HSIC, pairs as they are", "statistics.kernels.paired_root_hsic_sensitivity", paired),
        _slot_statistic("residual of another slot", "statistics.residuals.residual_sensitivity", *residuals),
    ]


def _map(kernel: kernels.KernelFeatures, columns: Floats) -> Floats:
    return kernel.map(columns.reshape(-1)).reshape(*columns.shape, -1)


def _multiply(features: Floats) -> Floats:
    """Return the products of all pairs of slots, table by table."""
    return np.asarray(np.matmul(features, features.transpose(0, 2, 1)))


def _batch_root_hsic(tables: Floats, kernel: kernels.KernelFeatures, permutations: NDArray[np.intp]) -> Floats:
    """Measure root HSIC for pairs as they are and for each permutation, by Gram matrices: few rows make them small."""
    batch, slots, _ = tables.shape
    mapped = [_map(kernel, tables[:, :, column]) for column in (0, 1)]
    first, second = (_multiply(features - features.mean(axis=1, keepdims=True)) for features in mapped)
    every = np.vstack([np.arange(slots)[None], permutations])
    squares = np.empty((batch, len(every)))
    for place, order in enumerate(every):
        squares[:, place] = np.einsum("bij,bij->b", first[:, order][:, :, order], second)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)) / slots)


def _look_at_residuals(
    ridge: Callable[[Floats, Floats, float, float], Floats], gram: Callable[[Floats], Floats], penalty: float
) -> Look:
    """Return the search for residuals of the second column given the first, of the slots that do not change."""

    def batch(tables: Floats) -> Floats:
        given, target = tables[:, :, 0], tables[:, :, 1]
        weight = 0.5 * given.shape[1] * penalty
        solved = np.linalg.solve(gram(given) + weight * np.eye(given.shape[1]), target[:, :, None])[:, :, 0]
        return regression.clip_residuals(target, weight * solved)[:, :-1]

    def measure(rows: Floats) -> Floats:
        return ridge(rows[:, :1], rows[:, 1], penalty, BANDWIDTH)[:-1]

    return _look_at_slots(measure, batch, regression.residual_sensitivity(SLOTS, penalty))


def _residual_statistics() -> list[AuditedStatistic]:
    declared = gcm_sensitivities(SLOTS, BOUND)

    def multiply(tables: Floats) -> Floats:
        """Return both sums, each as a part of what is declared for it."""
        products = np.clip(tables, -BOUND, BOUND).prod(axis=2)
        return np.column_stack([products.sum(axis=1), (products**2).sum(axis=1)]) / declared

    products = _look_at_slots(
        lambda rows: np.array(gcm_sums(rows[:, 0], rows[:, 1], BOUND)) / declared, multiply, 1.0, BOUND
    )
    sums = _look_at_slots(
        lambda rows: np.asarray(np.clip(rows, -BOUND, BOUND).sum(axis=0)),
        lambda tables: np.asarray(np.clip(tables, -BOUND, BOUND).sum(axis=1)),
        2.0 * BOUND,
        BOUND,
    )
    ranks = _look_at_slots(
        lambda rows: np.array([regression.residual_rank_score(rows[:, 0], rows[:, 1])]),
        _batch_rank_scores,
        regression.residual_rank_sensitivity(SLOTS),
    )
    return [
        _slot_statistic("sums of residual products and of their squares", "statistics.gcm.gcm_sensitivities", products),
        _slot_statistic("sums of clipped residuals", "curator.kernel_questions.KernelQuestions.gcm", sums),
        _slot_statistic("rank score of residuals", "statistics.residuals.residual_rank_sensitivity", ranks),
    ]


def _batch_rank_scores(tables: Floats) -> Floats:
    """Measure rank scores of residuals: Spearman's correlation by centred midranks has the factor 12/slots³."""
    column, sizes = tables[:, :, 0], np.abs(tables[:, :, 1])
    centred = [_centre_midranks(values) for values in (column, np.abs(column), sizes)]
    products = [np.abs((ranks * centred[2]).sum(axis=1)) for ranks in centred[:2]]
    return np.asarray((12.0 * (products[0] + products[1]) / column.shape[1] ** 3)[:, None])


def _centre_midranks(values: Floats) -> Floats:
    """Return midranks less their mean: half the sum of the signs of differences to the other slots."""
    return np.asarray(0.5 * np.sign(values[:, :, None] - values[:, None, :]).sum(axis=2))


_COLUMNS: Final[dict[str, Column]] = {
    "x": Categorical(levels=("a", "b"), outside="a"),
    "y": Categorical(levels=("a", "b", "c"), outside="a"),
    "z": Numeric(bounds=(-1.0, 1.0), bins=2),
}
_LEVELS: Final = {name: column.n_levels for name, column in _COLUMNS.items()}
_SETS: Final = [("x", "y"), ("x", "z"), ("y", "z")]
_PLAN: Final = MomentPlan(("x", "y", "z"), (0.5, 1.0, 0.0), (0.5, 1.0, 1.0), 2.0, 1.0, 8)
_FEWER: Final = 20
_FEWEST_PAIRS: Final = 60
_MOST_PAIRS: Final = 2_000
_SIZES: Final = (1, 2, 3, 5, 17, 60, 300)

Rows = dict[str, NDArray[Any]]
Measure = Callable[[Table], Floats]


class ShuffledRows(ArrowRows):
    """Rows of an Arrow table, as a database may hand them out: in another order at every reading."""

    def __init__(self, table: pa.Table, rng: np.random.Generator) -> None:
        super().__init__(table)
        self._rng = rng

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows."""
        order = self._rng.permutation(self._table.num_rows)
        most = int(self._rng.integers(1, len(order) + 2))
        yield from self._table.select(list(columns)).take(order).combine_chunks().to_batches(max_chunksize=most)


def person_statistics() -> tuple[AuditedStatistic, ...]:
    """Return counts, interactions and moments of persons: by one record of each, and by all that weigh one."""
    counted = "statistics.contingency.counts_sensitivity"
    rules: dict[str, dict[str, str]] = {
        "the last record": {"which": "last", "order": "day"},
        "any record": {"which": "any"},
        "weighed records": {"records": "weigh"},
    }
    weighed, query = (rules["weighed records"], Norm.SQUARES), refine(_PLAN, None)
    sensitivity = contingency.interactions_squared_sensitivity
    interactions = _look(_centre, *weighed, lambda it: sensitivity(it, _SETS, _LEVELS))
    moments = _look(_multiply_records, *weighed, lambda it: moments_squared_sensitivity(it, query))
    centred = "statistics.contingency.interactions_squared_sensitivity"
    squared = "statistics.moments.moments_squared_sensitivity"
    counts = [_look(_count, rule, Norm.SIZES, lambda it: counts_sensitivity(it, 1)) for rule in rules.values()]
    return (
        *(
            AuditedStatistic(f"counts of persons by {words}", counted, look)
            for words, look in zip(rules, counts, strict=True)
        ),
        AuditedStatistic("interactions of persons by weighed records", centred, interactions),
        AuditedStatistic("moments of persons by weighed records", squared, moments),
    )


def _look(measure: Measure, rule: dict[str, str], norm: Norm, declare: Callable[[Relation], Fraction | int]) -> Look:
    """Return the search for a statistic of persons; where squares are summed, a squared sensitivity is declared."""
    schema = Schema(dataset="audit", columns=_COLUMNS, person="id", reviewed=True, public=True, **rule)  # type: ignore[arg-type]

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        tried = min(max(pairs // _FEWER, _FEWEST_PAIRS), _MOST_PAIRS)
        best, words = -1.0, ""
        for core, one, other in _draw_pairs(tried, relation, rng):
            key = rng.bytes(KEY_BYTES)
            tables = (ShuffledRows(_join(core, person), rng) for person in (one, other))
            first, second = (measure(open_persons(rows, schema, key, math.inf)) for rows in tables)
            change = float(norm.measure((first - second)[None])[0])
            if change > best:
                best, words = change, f"persons with {len(one['id'])} and {len(other['id'])} records"
        declared = declare(relation)
        return Found(best, tried, words), math.sqrt(declared) if norm is Norm.SQUARES else float(declared)

    return look


def _draw_pairs(pairs: int, relation: Relation, rng: np.random.Generator) -> Iterator[tuple[Rows, Rows, Rows]]:
    for number in range(pairs):
        core = _draw_person(0, rng, "core")
        core["id"] = np.array([f"core {place % 5}" for place in range(len(core["id"]))], dtype=object)
        size = _SIZES[number % len(_SIZES)]
        # bounds are reached by persons whose records agree
        one = _draw_person(size, rng, "p", alike=number % 2 == 0)
        other = _draw_person(0, rng, "p")
        if relation is Relation.REPLACE_ONE:
            other = _draw_person(int(rng.choice(_SIZES)), rng, "p", alike=number % 3 == 0)
        else:
            other = {name: cells[:0] for name, cells in other.items()}
        yield core, one, other


def _draw_person(size: int, rng: np.random.Generator, name: str, *, alike: bool = False) -> Rows:
    size = size or int(rng.integers(1, 12))
    distinct = 1 if alike else size
    return {
        "id": np.array([name] * size, dtype=object),
        "day": rng.integers(0, 3, size),
        "x": np.resize(rng.choice(["a", "b"], distinct), size),
        "y": np.resize(rng.choice(["a", "b", "c"], distinct), size),
        "z": np.resize(rng.choice([-1.0, -0.5, 0.0, 1.0], distinct), size),
    }


def _join(core: Rows, person: Rows) -> pa.Table:
    return pa.table({name: pa.array(np.concatenate([core[name], person[name]]).tolist()) for name in core})


def _count(table: Table) -> Floats:
    return table.counts(["x", "y", "z"]).reshape(-1) / table.lattice


def _centre(table: Table) -> Floats:
    tables = [contingency.centre_counts(one[None])[0] / one.size for one in table.counts_many(_SETS)]
    return np.concatenate([one.reshape(-1) for one in tables]) / table.lattice


def _multiply_records(table: Table) -> Floats:
    exact = table.outer_products(refine(_PLAN, None)).astype(np.float64)
    rows, columns = np.triu_indices(len(exact))
    # entries on the diagonal get noise of twice the variance
    return np.asarray(exact[rows, columns] * np.where(rows == columns, math.sqrt(0.5), 1.0))
