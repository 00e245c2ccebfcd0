"""Whether sites agree: tests of the hypothesis that what several sites released comes from one law.

For a column y inside a level x of another, let N be a site's noisy counts, n their sum, and p the shares of y that all
sites have together. Z = (I − p1ᵀ) N has mean 0 if the site has the law p, and the covariance n (diag(p) − ppᵀ) + (I −
p1ᵀ) Cov(noise) (I − 1pᵀ). The sites' Z/n, over all x at once, are compared with their mean, weighed by inverse
covariances; what is left is compared with χ². Without x, that compares margins. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.covariance import HIDDEN, group_levels, merge_matrix
from dagveil.evidence.moments import SMALLEST_VARIANCE, NoisyCovariance, covariance_from_moments
from dagveil.evidence.pairs import CELLS_PER_BATCH
from dagveil.evidence.strata import BARELY_SEEN
from dagveil.evidence.tables import NoisyTable, ReleasedTables, group
from dagveil.privacy.release import NoisyMoments, Release

Floats = NDArray[np.float64]
Pair = tuple[str, str]
Name = TypeVar("Name", bound=Hashable)

AGREEMENT_LEVEL = 0.05  # chance, at most, to name any column if all agree, and likewise any pair

FEWEST_ROWS = 5.0
"""Levels that hold fewer rows than this at some site are merged with other rare ones; inside such a level no law of
another column is compared."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well sites agree, in p-values.

    - `columns`: of the hypothesis that a column has one distribution, or one mean, at all sites.
    - `pairs`: of the hypothesis that at least one of two columns moves with the other alike at all sites; for moments,
      that its slope is the same.
    """

    columns: Mapping[str, float]
    pairs: Mapping[Pair, float]

    @property
    def differing_columns(self) -> tuple[str, ...]:
        """Columns whose distributions differ, by Holm's procedure."""
        return reject_holm(self.columns)

    @property
    def differing_pairs(self) -> tuple[Pair, ...]:
        """Pairs whose dependence differs, whichever of the two is held fixed, by Holm's procedure."""
        return reject_holm(self.pairs)


def reject_holm(p_values: Mapping[Name, float]) -> tuple[Name, ...]:
    """Return what is rejected, the surest first; a true hypothesis is among it with a chance of AGREEMENT_LEVEL."""
    rejected = []
    for before, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[name] * (len(p_values) - before) > AGREEMENT_LEVEL:
            break
        rejected.append(name)
    return tuple(rejected)


class _Laws(NamedTuple):
    """Tables of one pair at all sites, levels merged, with the covariance of their noise.

    It is V (A ⊗ B) + T (aaᵀ ⊗ bbᵀ): `variance` V, `first` A and `second` B in the shapes (sites, levels, levels),
    `beyond` T, what the number of rows has on top, and how many declared levels each level stands for, `a` and `b`.
    """

    counts: Floats
    variance: Floats
    first: Floats
    second: Floats
    beyond: Floats
    a: Floats
    b: Floats

    def turned(self) -> _Laws:
        """Return the same with the columns in the other order."""
        counts = self.counts.transpose(0, 2, 1)
        return _Laws(counts, self.variance, self.second, self.first, self.beyond, self.b, self.a)


def compare_releases(columns: Sequence[str], sites: Sequence[Sequence[Release]]) -> Agreement:
    """Test whether what sites released comes from one law, by all counts that follow from it, or by moments."""
    moments = [release for releases in sites for release in releases if isinstance(release, NoisyMoments)]
    if len(moments) == len(sites):
        return _compare_moments([covariance_from_moments(release) for release in moments], moments[0].constant)
    released = [ReleasedTables(releases) for releases in sites]

    def find(*names: str) -> list[NoisyTable]:
        """Return the tables of all sites, or none if one site tells nothing."""
        known = [table for of in released if (table := of.find(names)) is not None]
        return known if len(known) == len(sites) else []

    merges: dict[str, Floats] = {}
    alone: dict[str, _Laws] = {}
    for name in columns:
        if known := find(name):
            variance = max(*(table.variance for table in known), (FEWEST_ROWS / HIDDEN) ** 2)
            least = np.min([table.counts for table in known], axis=0)
            merges[name] = merge_matrix(group_levels(least, variance, hide=True))
            widened = [
                NoisyTable(("", name), table.counts[None], table.variance, (1.0, *table.flatness)) for table in known
            ]
            alone[name] = _merge(widened, np.ones((1, 1)), merges[name], [None] * len(sites))
    totals = [of.total for of in released]
    together: dict[Pair, _Laws] = {}
    for x, y in combinations(merges, 2):
        if known := find(x, y):
            together[x, y] = _merge(known, merges[x], merges[y], totals)
    one_way = _judge(together, shifts=True)
    other = _judge({pair: laws.turned() for pair, laws in together.items()}, shifts=True)
    return Agreement(_judge(alone, shifts=False), {pair: max(one_way[pair], other[pair]) for pair in together})


def _compare_moments(sites: Sequence[NoisyCovariance], constant: float) -> Agreement:
    """Compare means, and slopes of each column on each other one; moments of all sites are in the same units."""
    columns = sites[0].columns
    means, mean_variance, slopes, slope_variance = [], [], [], []
    for site in sites:
        matrix, mu = site.matrix, site.means
        own, noise = np.diag(matrix), site.deviation**2
        means.append(mu * constant)
        mean_variance.append(own / site.n_rows + noise * (1.0 + 2.0 * mu**2) / constant**2)
        # [x, y]: y on x, whose residual direction has the mean `left`
        slope = matrix / own[:, None]
        left = mu - slope * mu[:, None]
        spread = (1.0 + mu[:, None] ** 2) * (1.0 + slope**2 + left**2) + (mu[:, None] * left - slope) ** 2
        residual = np.maximum(own - slope * matrix, SMALLEST_VARIANCE * own)
        slopes.append(slope)
        slope_variance.append(residual / (site.n_rows * own[:, None]) + noise * spread / own[:, None] ** 2)
    of_means = _compare_numbers(np.stack(means), np.stack(mean_variance))
    of_slopes = _compare_numbers(np.stack(slopes), np.stack(slope_variance))
    both = np.maximum(of_slopes, of_slopes.T)
    return Agreement(
        dict(zip(columns, of_means.tolist(), strict=True)),
        {(columns[x], columns[y]): float(both[x, y]) for x, y in combinations(range(len(columns)), 2)},
    )


def _compare_numbers(found: Floats, variance: Floats) -> Floats:
    """Return p-values of the hypothesis that all sites, along the first axis, estimate one number."""
    mean = (found / variance).sum(axis=0) / (1.0 / variance).sum(axis=0)
    return np.asarray(special.chdtrc(float(len(found) - 1), ((found - mean) ** 2 / variance).sum(axis=0)))


def _merge(
    tables: Sequence[NoisyTable], merge_x: Floats, merge_y: Floats, totals: Sequence[NoisyTable | None]
) -> _Laws:
    """Merge levels and write down the covariance of the noise.

    - `totals`: the number of rows of each site, where it was measured on its own.
    """
    rows, levels = tables[0].counts.shape
    flat_x, flat_y = np.array([table.flatness for table in tables]).T[:, :, None, None]
    variance = np.array([table.variance for table in tables])
    a, b = merge_x.sum(axis=1), merge_y.sum(axis=1)
    # along all cells together a table moves as the number of rows does
    whole = np.array([np.nan if total is None else total.variance for total in totals]) / (rows * levels)
    beyond = np.where(np.isnan(whole), 0.0, whole - variance * flat_x[:, 0, 0] * flat_y[:, 0, 0]) / (rows * levels)
    return _Laws(
        merge_x @ np.stack([table.counts for table in tables]) @ merge_y.T,
        variance,
        merge_x @ merge_x.T + (flat_x - 1.0) / rows * np.outer(a, a),
        merge_y @ merge_y.T + (flat_y - 1.0) / levels * np.outer(b, b),
        beyond,
        a,
        b,
    )


def _judge(laws: Mapping[Name, _Laws], *, shifts: bool) -> dict[Name, float]:
    """Return p-values of the hypothesis that all sites have the same law of the second column given the first.

    - `shifts`: whether each site may have a shift of its own.
    """
    found = dict.fromkeys(laws, 1.0)
    for (sites, rows, levels), names in group(laws, lambda name: laws[name].counts.shape).items():
        step = max(1, CELLS_PER_BATCH // (sites * (rows * levels) ** 2))
        for start in range(0, len(names) if levels > 1 else 0, step):
            part = names[start : start + step]
            found |= dict(zip(part, _compare([laws[name] for name in part], shifts).tolist(), strict=True))
    return found


def _compare(laws: Sequence[_Laws], shifts: bool) -> Floats:
    """Return p-values for pairs of one shape; parameters are those of `_judge`."""
    counts, variance, first, second, beyond, a, b = map(np.stack, zip(*laws, strict=True))
    q, sites, rows, levels = counts.shape
    noise = np.einsum("qk,qkxu,qkyv->qkxyuv", variance, first, second)
    noise += np.einsum("qk,qx,qu,qy,qv->qkxyuv", beyond, a, a, b, b, optimize=True)
    total = counts.sum(axis=3)
    deviation = np.sqrt(np.einsum("qkxyxv->qkx", noise))
    seen = (total > np.maximum(BARELY_SEEN * deviation, FEWEST_ROWS)).all(axis=1)
    # a level is never rarer than what noise hides
    cell = np.sqrt(np.einsum("qkxyxy->qxy", noise))
    pooled = np.maximum(counts.sum(axis=1), np.maximum(cell, 0.5))
    p = pooled / pooled.sum(axis=2, keepdims=True)
    n = np.maximum(total, FEWEST_ROWS)
    project = (np.eye(levels) - p[..., :, None])[:, :, :-1]  # (q, x, y − 1, y)
    share = np.einsum("qxay,qkxy->qkxa", project, counts) / n[..., None]
    spread = np.einsum("qxay,qkxyuv,qubv->qkxaub", project, noise, project, optimize=True)
    spread /= n[:, :, :, None, None, None] * n[:, :, None, None, :, None]
    inner = p[:, :, :-1, None] * (np.eye(levels - 1) - p[:, :, None, :-1])
    own = np.arange(rows)
    spread[:, :, own, :, own] += (inner[:, None] / n[..., None, None]).transpose(2, 0, 1, 3, 4)
    # strata that some site does not show have no say
    share = np.where(seen[:, None, :, None], share, 0.0).reshape(q, sites, -1)
    both = seen[:, :, None, None, None] & seen[:, None, None, :, None]
    size = rows * (levels - 1)
    spread = np.where(both[:, None], spread, 0.0).reshape(q, sites, size, size)
    spread += np.where(seen, 0.0, 1.0).repeat(levels - 1, axis=1)[:, None, :, None] * np.eye(size)
    weight = np.linalg.inv(spread)
    strata = seen.sum(axis=1)
    free = np.zeros((q, size, size))
    if shifts:
        strata = np.maximum(strata - 1, 0)
        moves = (seen[:, :, None, None] * np.eye(levels - 1)).reshape(q, 1, size, levels - 1)
        lost = weight @ moves
        unseen = np.where(seen.any(axis=1), 0.0, 1.0)[:, None, None, None]
        inner = lost.transpose(0, 1, 3, 2) @ moves + unseen * np.eye(levels - 1)
        weight = weight - lost @ np.linalg.solve(inner, lost.transpose(0, 1, 3, 2))
        free = (moves @ moves.transpose(0, 1, 3, 2))[:, 0]  # no site says anything in the direction of a shift
    weighed = np.einsum("qkab,qkb->qka", weight, share)
    sum_, whole = weighed.sum(axis=1), weight.sum(axis=1)
    whole += free * np.trace(whole, axis1=1, axis2=2)[:, None, None] / size
    statistic = np.einsum("qka,qka->q", weighed, share)
    statistic -= np.einsum("qa,qa->q", sum_, np.linalg.solve(whole, sum_[..., None])[..., 0])
    freedom = ((sites - 1) * (levels - 1) * strata).astype(np.float64)
    return np.asarray(np.where(freedom > 0, special.chdtrc(np.maximum(freedom, 1.0), np.maximum(statistic, 0.0)), 1.0))
