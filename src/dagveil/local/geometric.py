"""The bounded geometric mechanism: near values are likelier reports than far ones.

P(y | x) = p exp(−ε_x |y − x|) on the declared values, with one public p, the probability of the truth, and an ε_x for
each true value that makes the probabilities add up to 1 (Binkytė and others, Causal discovery under local privacy,
2024). The ε_x differ between values, so none of them is the parameter of metric privacy: `Channel.metric_parameter` is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dagveil.local.channel import Channel, channel_from_weights, distances_on_line
from dagveil.local.randomised_response import check_truth

Floats = NDArray[np.float64]


def bounded_geometric(n_values: int, truth: float) -> Channel:
    """Return the bounded geometric mechanism on so many values in a row.

    Examples
    --------
    >>> bounded_geometric(3, 0.5).matrix.round(3).tolist()
    [[0.5, 0.309, 0.191], [0.25, 0.5, 0.25], [0.191, 0.309, 0.5]]
    """
    check_truth(n_values, truth)
    distances = distances_on_line(n_values)
    rates = np.array([find_rate(row, np.ones(n_values), truth) for row in distances])
    return channel_from_weights(np.exp(-rates[:, None] * distances))


def find_rate(distances: Floats, counts: Floats, truth: float) -> float:
    """Return the ε_x ≥ 0 with Σ counts · exp(−ε_x · distances) = 1 / truth, by bisection.

    Parameters
    ----------
    distances
        From the true value; the truth itself has distance 0 and is counted once.
    counts
        How many values lie at each distance.
    truth
        Probability that the truth is reported.

    Examples
    --------
    >>> round(find_rate(np.array([0.0, 1.0]), np.ones(2), 0.75), 6) == round(math.log(3), 6)
    True
    """
    wanted = 1.0 / truth
    if float(counts.sum()) <= wanted:
        return 0.0
    low, high = 0.0, 1.0
    while float((counts * np.exp(-high * distances)).sum()) > wanted:
        high *= 2.0
    while True:
        middle = (low + high) / 2.0
        if middle in (low, high):
            return high
        if float((counts * np.exp(-middle * distances)).sum()) > wanted:
            low = middle
        else:
            high = middle


def published_parameter(n_values: int, truth: float) -> float:
    """Return the largest ε_x, which the publication takes for the parameter of metric privacy.

    It understates: docs/proofs/channels.md has the exact one, up to 2.16 times larger.

    Examples
    --------
    >>> channel = bounded_geometric(100, 0.05)
    >>> round(channel.metric_parameter(distances_on_line(100)) / published_parameter(100, 0.05), 2)
    2.16
    """
    distances = distances_on_line(n_values)
    return max(find_rate(row, np.ones(n_values), truth) for row in distances)


def geometric_with_epsilon(n_values: int, epsilon: float) -> Channel:
    """Return the bounded geometric mechanism whose exact ε of local privacy is at most this, by bisection.

    Examples
    --------
    >>> geometric_with_epsilon(5, 2.0).epsilon() <= 2.0
    True
    """
    low, high = 1.0 / n_values, 1.0 - 2.0**-40
    for _ in range(40):
        middle = (low + high) / 2.0
        if bounded_geometric(n_values, middle).epsilon() <= epsilon:
            low = middle
        else:
            high = middle
    channel = bounded_geometric(n_values, low)
    return channel if channel.epsilon() <= epsilon else bounded_geometric(n_values, math.nextafter(1.0 / n_values, 1.0))
