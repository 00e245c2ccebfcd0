"""Random tables whose graph is known: numbers beside levels, ordered levels, and values that are missing.

Half of the columns of a mixed network are numbers, the others have two to four levels. A number is a sum of effects of
its parents and normal noise, scaled to variance 1; a level is drawn from a multinomial logit of such effects. Curved
networks bend half of the effects that a number has, by a sine or a square. No effect of a parent is below 0.4 spreads.

A column of an ordinal network has five to ten levels: a latent number, the sum of effects of its parents' scores and
logistic noise, cut at thresholds. Bent networks have U-shaped effects in half of all edges, which no trend sees.

Where values go missing, three quarters of the columns lose them, each at a rate between half and one and a half times
the nominal one, completely at random (MCAR) or by the logit of one complete column in spreads (MAR).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.special import ndtri

from dagveil.data.column import OWN_LEVEL, PAIRWISE, Categorical, Column, Numeric, Ordinal
from dagveil.data.schema import Schema
from dagveil.errors import GraphError, MethodError
from dagveil.examples.networks import (
    NETWORK_NAMES,
    Network,
    check_graph_size,
    load_network,
    network_schema,
    sample_codes,
)
from dagveil.graphs.cpdag import Dag

Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]

MIXED: Final = "mixed"
MIXED_COLUMNS: Final = 10  # of a mixed network whose values go missing
EDGES_PER_COLUMN: Final = 1.2
MOST_PARENTS: Final = 3
MOST_LEVELS: Final = 4
WEAKEST: Final = 0.4
STRONGEST: Final = 0.9
LOGIT: Final = 2.0
"""An effect on a level, in logits, is this times one on a number: the noise of a logit is that much wider."""

MOST_PARENTS_OF_LEVELS: Final = 4  # more are dropped from a network of levels: its tables grow with their product

COMPLETE: Final = "complete"
WAYS: Final = (COMPLETE, OWN_LEVEL, PAIRWISE)
"""All values kept; or missing ones become a level, or an indicator beside the centre of a number; or are left out."""

_GRAMMAR: Final[Mapping[str, tuple[str, str]]] = {
    "mixed(-curved)?": (r"[1-9]\d+( [2-9])?", "a number of columns, 10 or more, and perhaps one of bins: 'mixed 10 3'"),
    "(ordinal|unordered)(-bent)?": (r"[1-9]\d+", "a number of columns, 10 or more: 'ordinal 10'"),
    "missing": (
        rf"({'|'.join((*NETWORK_NAMES, MIXED))}) (MCAR|MAR) 0\.\d+ ({'|'.join(WAYS)})",
        f"a network, MCAR or MAR, a rate, and one of {', '.join(WAYS)}: 'missing child MAR 0.3 {PAIRWISE}'",
    ),
}
KINDS: Final = ("mixed", "mixed-curved", "ordinal", "ordinal-bent", "unordered", "unordered-bent", "missing")


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """Rows with numbers as floats and levels as texts, what a person would declare about them, and their graph."""

    rows: pa.Table
    schema: Schema
    dag: Dag


def check_drawn(source: str) -> None:
    """Refuse a source of these kinds that cannot be drawn."""
    kind, _, words = source.partition(" ")
    form, example = next(rule for name, rule in _GRAMMAR.items() if re.fullmatch(name, kind))
    if not re.fullmatch(form, words):
        raise MethodError(f"{source!r} needs {example}")


def draw_table(source: str, n_rows: int, rng: np.random.Generator) -> DrawnTable:
    """Draw a network and rows from it; the same generator gives the same rows, however they are declared.

    Sources are "mixed D" and "mixed-curved D" with D columns, followed by K where numbers get K bins; "ordinal D" and
    "ordinal-bent D", which "unordered" declares without their order; and "missing NETWORK MECHANISM RATE WAY".
    """
    kind, *words = source.split()
    if kind == "missing":
        return _draw_missing(words[0], words[1], float(words[2]), words[3], n_rows, rng)
    dag = draw_graph(int(words[0]), rng)
    if kind.startswith(MIXED):
        drawn = draw_mixed(dag, n_rows, kind.endswith("curved"), rng)
        return DrawnTable(_to_table(drawn), declare_mixed(drawn, n_rows, int(words[1]) if words[1:] else None), dag)
    drawn = draw_ordinal(dag, n_rows, kind.endswith("bent"), rng)
    declared = Ordinal if kind.startswith("ordinal") else Categorical
    columns: dict[str, Column] = {
        name: declared(levels=tuple(map(str, range(int(codes.max()) + 1))), outside="0")
        for name, codes in drawn.items()
    }
    schema = Schema(dataset="ordinal", columns=columns, reviewed=True, public=True, nominal_rows=n_rows)
    return DrawnTable(_to_table(drawn), schema, dag)


def _to_table(drawn: Columns) -> pa.Table:
    return pa.table(
        {name: column if column.dtype.kind == "f" else column.astype(str) for name, column in drawn.items()}
    )


def draw_graph(columns: int, rng: np.random.Generator) -> Dag:
    """Draw a graph in which no column has more than `MOST_PARENTS` parents."""
    names = tuple(f"c{place}" for place in range(columns))
    order = rng.permutation(columns)
    chance = 2.0 * EDGES_PER_COLUMN / (columns - 1)
    edges = set()
    for place, child in enumerate(order):
        parents = [parent for parent in order[:place] if rng.random() < chance][:MOST_PARENTS]
        edges |= {(names[parent], names[child]) for parent in parents}
    return Dag(names, frozenset(edges))


def draw_mixed(dag: Dag, rows: int, curved: bool, rng: np.random.Generator) -> Columns:
    """Draw a model over the graph, and rows from it: numbers as floats, levels as integers.

    The model does not depend on the number of rows.
    """
    (chance,) = rng.spawn(1)
    sizes: dict[str, int] = {}
    numbers = set(rng.permutation(dag.nodes)[: len(dag.nodes) // 2].tolist())
    drawn: Columns = {}
    for name in dag.order():
        parents = sorted(dag.parents(name))
        if name in numbers:
            total = chance.standard_normal(rows)
            for parent in parents:
                total += _effect(rng) * _bend(drawn[parent], curved, rng)
            drawn[name] = (total - total.mean()) / total.std()
            continue
        levels = int(rng.integers(2, MOST_LEVELS + 1))
        sizes[name] = levels
        logits = chance.gumbel(size=(levels, rows)) + 0.3 * rng.standard_normal((levels, 1))
        for parent in parents:
            slopes = rng.standard_normal(levels)
            slopes = (slopes - slopes.mean()) / slopes.std()
            if drawn[parent].dtype.kind == "f":
                logits += LOGIT * _effect(rng) * slopes[:, None] * _bend(drawn[parent], curved, rng)
            else:
                moved = rng.standard_normal((levels, sizes[parent]))
                moved -= moved.mean(axis=1, keepdims=True)
                logits += LOGIT * _effect(rng) * (moved / moved.std())[:, drawn[parent]]
        drawn[name] = logits.argmax(axis=0)
    return {name: drawn[name] for name in dag.nodes}


def _effect(rng: np.random.Generator) -> float:
    return float(rng.uniform(WEAKEST, STRONGEST) * rng.choice((-1.0, 1.0)))


def _bend(column: NDArray[Any], curved: bool, rng: np.random.Generator) -> Floats:
    """Return a parent as numbers of variance 1 or so."""
    if column.dtype.kind != "f":
        values = np.asarray(rng.standard_normal(MOST_LEVELS)[column])
        return np.asarray((values - values.mean()) / (values.std() or 1.0))
    if not curved or rng.random() < 0.5:
        return np.asarray(column)
    bent = np.sin(1.5 * column) * math.sqrt(2.0) if rng.random() < 0.5 else (column**2 - 1.0) / math.sqrt(2.0)
    return np.asarray(bent)


def declare_mixed(columns: Columns, rows: int, bins: int | None) -> Schema:
    """Return a schema as a person would write it: numbers have variance 1, and a normal column fills bins evenly."""
    edges = None if bins is None else tuple(ndtri(np.arange(1, bins) / bins).tolist())
    declared = {
        name: Numeric(bounds=(-10.0, 10.0), center=0.0, spread=1.0, bins=edges)
        if column.dtype.kind == "f"
        else Categorical(levels=tuple(map(str, range(max(2, int(column.max()) + 1)))), outside="0")
        for name, column in columns.items()
    }
    return Schema(dataset=MIXED, columns=declared, reviewed=True, public=True, nominal_rows=rows)


def draw_ordinal(dag: Dag, rows: int, bent: bool, rng: np.random.Generator) -> Columns:
    """Draw a model over the graph, and codes of levels from it."""
    drawn: Columns = {}
    for name in dag.order():
        total = rng.logistic(size=rows)
        for parent in sorted(dag.parents(name)):
            score = (drawn[parent] - drawn[parent].mean()) / (drawn[parent].std() or 1.0)
            if bent and rng.random() < 0.5:
                score = (score**2 - 1.0) / math.sqrt(2.0)
            total += LOGIT * rng.uniform(WEAKEST, STRONGEST) * rng.choice((-1.0, 1.0)) * score
        levels = int(rng.integers(5, 11))
        shares = np.cumsum(rng.dirichlet(np.full(levels, 5.0)))[:-1]
        drawn[name] = np.searchsorted(np.quantile(total, shares), total)
    return {name: drawn[name] for name in dag.nodes}


def _draw_missing(
    network: str, mechanism: str, rate: float, way: str, n_rows: int, rng: np.random.Generator
) -> DrawnTable:
    if network == MIXED:
        whole = draw_table(f"{MIXED} {MIXED_COLUMNS}", n_rows, rng)
    else:
        known = load_network(network)
        codes = sample_codes(known, n_rows, rng)
        texts = {name: np.array(known.levels[name])[column] for name, column in codes.items()}
        whole = DrawnTable(pa.table(texts), replace(network_schema(known, n_rows), public=True), known.dag())
    if way == COMPLETE:
        return whole
    columns = {name: whole.rows[name].to_numpy() for name in whole.rows.column_names}
    gone = choose_missing(columns, mechanism, rate, rng.spawn(1)[0])
    rows = pa.table({name: pa.array(column, mask=gone.get(name)) for name, column in columns.items()})
    declared = dict(whole.schema.columns) | {name: replace(whole.schema.columns[name], missing=way) for name in gone}
    return DrawnTable(rows, replace(whole.schema, columns=declared), whole.dag)


def choose_missing(
    columns: Columns, mechanism: str, rate: float, rng: np.random.Generator
) -> dict[str, NDArray[np.bool_]]:
    """Return which values of each column go missing; complete columns are left out."""
    names = list(rng.permutation(list(columns)))
    stay = names[: max(1, len(names) // 4)]
    n_rows = len(columns[names[0]])
    gone = {}
    for name in names[len(stay) :]:
        share = rate * rng.uniform(0.5, 1.5)
        driver = columns[stay[int(rng.integers(len(stay)))]]
        if mechanism == "MCAR":
            gone[name] = rng.random(n_rows) < share
            continue
        numbers = driver if driver.dtype.kind == "f" else np.unique(driver, return_inverse=True)[1].astype(float)
        odds = np.exp((numbers - numbers.mean()) / (numbers.std() or 1.0))
        # the constant that gives the share wanted
        low, high = 1e-6, 1e6
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if (middle * odds / (1 + middle * odds)).mean() < share else (low, middle)
        gone[name] = rng.random(n_rows) < low * odds / (1 + low * odds)
    return gone


def random_network(
    n_nodes: int, sparseness: float, rng: np.random.Generator, n_levels: tuple[int, int] = (2, 4)
) -> Network:
    """Draw a random network over the columns x1, x2, ….

    The nodes are put in a random order, so that the order of the columns says nothing about the graph. Each pair is
    an edge with probability `sparseness`, from the earlier to the later; of more than four parents a random four
    stay. Numbers of levels are uniform between the two given, both included; each row of a table is uniform on the
    simplex (a Dirichlet distribution with all parameters 1).

    Examples
    --------
    >>> random_network(5, 0.4, np.random.default_rng(0)).nodes
    ('x1', 'x2', 'x3', 'x4', 'x5')
    """
    check_graph_size(n_nodes, sparseness)
    fewest, most = n_levels
    if not 1 <= fewest <= most <= 256:
        raise GraphError(f"numbers of levels must run from 1 to 256 at most, not from {fewest} to {most}")
    nodes = tuple(f"x{position + 1}" for position in range(n_nodes))
    counts = rng.integers(fewest, most, size=n_nodes, endpoint=True)
    levels = {node: tuple(f"v{code}" for code in range(count)) for node, count in zip(nodes, counts, strict=True)}
    order = [nodes[position] for position in rng.permutation(n_nodes)]
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, NDArray[np.float64]] = {}
    for position, node in enumerate(order):
        chosen = [order[earlier] for earlier in np.flatnonzero(rng.random(position) < sparseness)]
        if len(chosen) > MOST_PARENTS_OF_LEVELS:
            chosen = [str(parent) for parent in rng.choice(chosen, size=MOST_PARENTS_OF_LEVELS, replace=False)]
        parents[node] = tuple(sorted(chosen, key=nodes.index))
        shape = tuple(len(levels[parent]) for parent in parents[node])
        tables[node] = rng.dirichlet(np.ones(len(levels[node])), size=shape)
    return Network(f"random-{n_nodes}-{sparseness:g}", nodes, levels, parents, tables)
