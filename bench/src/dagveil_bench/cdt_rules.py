"""Rules for one pair as the package cdt computes them, where it differs from the words of the study of local privacy.

That study ran cdt. Its own words are followed by `dagveil.local.pairwise`. RECI and CDS are cdt 0.6.0's to the last
digit. Its ANM is what it means to compute: with the shapes that scikit-learn 1.9 returns it subtracts a column from a
row, so that residuals become a matrix, and both directions get the same score but for rounding.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.local.pairwise import CELLS_PER_DEVIATION, FEWEST_ROWS, LARGEST_DEVIATION, cut, scale_to_unit, standardise
from dagveil.statistics.kernels import gaussian_gram

Floats = NDArray[np.float64]

JITTER: Final = 1e-10  # variance of the noise that the Gaussian process is told of: none, but for rounding
MOST_POINTS: Final = 200  # rows, evenly spread, that the criterion is computed from


def compare_cubes(first: Floats, second: Floats) -> float:
    """Return RECI's difference of errors with the cube alone in place of a polynomial."""
    x, y = scale_to_unit(first), scale_to_unit(second)
    return _cube_error(y, x) - _cube_error(x, y)


def _cube_error(given: Floats, target: Floats) -> float:
    powers = np.stack([given**3, np.ones(len(given))], axis=1)
    weights = np.linalg.lstsq(powers, target, rcond=None)[0]
    return float(np.mean((target - powers @ weights) ** 2))


def compare_aligned_conditionals(first: Floats, second: Floats) -> float:
    """Return CDS's difference with one deviation for all cells, and with laws of few values moved onto each other."""
    return _aligned_variability(second, first) - _aligned_variability(first, second)


def _aligned_variability(given: Floats, target: Floats) -> float:
    most = 2 * CELLS_PER_DEVIATION * LARGEST_DEVIATION + 1
    cells = _cut_once_more(given) if len(np.unique(given)) > most else given
    values = np.unique(target)
    overall = np.array([np.mean(target == value) for value in values])
    spread = float(target.std())
    shares = []
    for cell in np.unique(cells):
        inside = target[cells == cell]
        if len(inside) <= FEWEST_ROWS:
            continue
        if len(values) > most:
            places = cut((inside - inside.mean()) / spread) + most // 2
            counts = np.bincount(places, minlength=most).astype(np.float64)
        else:
            law = np.array([np.sum(inside == value) for value in values], dtype=np.float64)
            shift = int(np.correlate(law, overall, "full").argmax())
            counts = np.zeros(3 * len(values) - 2)
            counts[2 * len(values) - 2 - shift :][: len(values)] = law
        shares.append(counts / len(inside))
    if not shares:
        return 0.0
    table = np.array(shares)
    return float((table - table.mean(axis=0)).std())


def _cut_once_more(values: Floats) -> NDArray[np.int64]:
    """Return cells after a second standardisation, which leaves out what lies beyond three deviations."""
    first = standardise(values)
    inner = first[np.abs(first) < LARGEST_DEVIATION]
    return cut((first - inner.mean()) / inner.std())


def compare_gaussian_processes(first: Floats, second: Floats) -> float:
    """Return ANM's difference of dependences, with residuals of a Gaussian process of length scale 1 and no noise."""
    x, y = standardise(first), standardise(second)
    return _process_dependence(y, x) - _process_dependence(x, y)


def _process_dependence(given: Floats, target: Floats) -> float:
    return few_point_hsic(process_residuals(given, target), given)


def process_residuals(given: Floats, target: Floats) -> Floats:
    """Return what a Gaussian process on the given column leaves of the target.

    Equal values of the given column have equal predictions, so one equation for each value is enough.
    """
    values, places, counts = np.unique(given, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=target) / counts
    roots = np.sqrt(counts.astype(np.float64))
    gram = gaussian_gram(values[:, None], 1.0)
    scaled = roots[:, None] * gram * roots[None, :]
    eigenvalues, vectors = np.linalg.eigh(scaled)
    kept = np.maximum(eigenvalues, 0.0)
    fitted = vectors @ (kept / (kept + JITTER) * (vectors.T @ (roots * means))) / roots
    return np.asarray(target - fitted[places])


def few_point_hsic(u: Floats, v: Floats) -> float:
    """Return m HSIC of two standardised columns by at most 200 of their rows; kernels as wide as √½ median distance."""
    if len(u) > MOST_POINTS:
        rows = np.floor(np.linspace(0.0, len(u) - 1, MOST_POINTS)).astype(np.int64)
        columns = [standardise(column)[rows] for column in (u, v)]
    else:
        columns = [standardise(column) for column in (u, v)]
    grams = []
    for column in columns:
        squares = (column[:, None] - column[None, :]) ** 2
        above = squares[np.triu_indices(len(column), 1)]
        if not (above > 0.0).any():
            return 0.0
        gram = np.exp(-squares / float(np.median(above[above > 0.0])))
        grams.append(gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean())
    return float(np.vdot(*grams)) / len(u if len(u) <= MOST_POINTS else columns[0])
