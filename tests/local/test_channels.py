"""Channels: what is computed from the matrix against brute force, and the matrix against draws."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dagveil.errors import BudgetError
from dagveil.local.channel import (
    WHOLE,
    Channel,
    bounded_geometric,
    channel_from_weights,
    distances_on_line,
    geometric_with_epsilon,
    published_parameter,
    randomised_response,
    response_with_truth,
    widest_gaps,
)
from dagveil.local.combined_geometric import CombinedGeometric, distances_between
from dagveil.local.record import (
    CERTAIN,
    CombinedResponse,
    ComponentWise,
    Norm,
    Split,
    combined_response,
    combined_response_with_epsilon,
    component_wise_geometric,
    component_wise_response,
    geometric_of_truth,
    join,
    response_of_truth,
)
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from slow_twins import epsilon_of_response

DRAWS = 1_000_000


def brute_epsilon(matrix: np.ndarray) -> float:
    return max(
        math.log(matrix[x, y] / matrix[other, y])
        for y in range(matrix.shape[1])
        for x in range(len(matrix))
        for other in range(len(matrix))
    )


def brute_metric(matrix: np.ndarray, distances: np.ndarray) -> float:
    return max(
        abs(math.log(matrix[x, y] / matrix[other, y])) / distances[x, other]
        for y in range(matrix.shape[1])
        for x in range(len(matrix))
        for other in range(len(matrix))
        if x != other
    )


def write_out(channel: ComponentWise) -> np.ndarray:
    return join([part.matrix for part in channel.channels])


def all_records(levels: tuple[int, ...]) -> np.ndarray:
    return np.array(list(product(*(range(k) for k in levels))), dtype=np.int64)


def misfit(reports: np.ndarray, law: np.ndarray) -> float:
    """p-value of the draws under this law."""
    counts = np.bincount(reports, minlength=len(law))
    return float(stats.chisquare(counts, law * len(reports)).pvalue)


KINDS = {
    "response": lambda k: randomised_response(k, 1.3),
    "geometric": lambda k: bounded_geometric(k, 0.45),
}


@pytest.mark.parametrize("k", [3, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_matrix_against_a_million_draws(kind: str, k: int) -> None:
    channel = KINDS[kind](k)
    noise = noise_source(NoiseKind.SEEDED, seed=20261)
    value = k // 3
    reports = channel.report(np.full(DRAWS, value), noise)
    assert misfit(reports, channel.matrix[value]) > 1e-6
    # a channel with one wrong probability is caught
    wrong = channel.matrix[value].copy()
    wrong[value] -= 0.004
    wrong[-1] += 0.004
    assert misfit(reports, wrong) < 1e-6


@given(st.integers(2, 12), st.floats(0.01, 6.0))
def test_response_epsilon_is_the_brute_force_maximum_and_never_above_the_asked(k: int, epsilon: float) -> None:
    channel = randomised_response(k, epsilon)
    assert channel.epsilon() == pytest.approx(brute_epsilon(channel.matrix), rel=1e-9, abs=1e-9)
    assert channel.epsilon() <= epsilon
    assert channel.epsilon() == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@settings(deadline=None)
@given(st.integers(2, 12), st.floats(0.0, 1.0))
def test_geometric_against_brute_force(k: int, share: float) -> None:
    truth = 1.0 / k + share * (0.95 - 1.0 / k)
    channel = bounded_geometric(k, truth)
    distances = distances_on_line(k)
    assert np.diag(channel.matrix) == pytest.approx(truth, abs=1e-9)
    assert channel.epsilon() == pytest.approx(brute_epsilon(channel.matrix), rel=1e-9, abs=1e-9)
    assert channel.gap_of_neighbours() == pytest.approx(brute_metric(channel.matrix, distances), rel=1e-9, abs=1e-9)
    # the largest ε_x, which the publication takes for it, is never above the truth of the matter
    assert published_parameter(k, truth) <= channel.gap_of_neighbours() + 1e-6


def test_published_metric_parameter_understates() -> None:
    exact = bounded_geometric(100, 0.05).gap_of_neighbours()
    assert exact / published_parameter(100, 0.05) == pytest.approx(2.16, abs=0.005)


def test_truth_below_blind_guessing_is_refused() -> None:
    with pytest.raises(BudgetError, match="blind guessing"):
        bounded_geometric(10, 0.05)
    with pytest.raises(BudgetError, match="blind guessing"):
        response_with_truth(10, 0.05)


def test_success_of_an_attacker_with_a_prior() -> None:
    channel = randomised_response(3, 0.5)
    assert channel.success() == pytest.approx(channel.matrix[0, 0])
    prior = np.array([0.9, 0.05, 0.05])
    best = sum(max(prior[x] * channel.matrix[x, y] for x in range(3)) for y in range(3))
    assert channel.success(prior) == pytest.approx(best)
    assert channel.success(prior) == pytest.approx(0.9)  # the report does not change the attacker's mind
    with pytest.raises(BudgetError, match="prior"):
        channel.success(np.array([0.9, 0.2, 0.05]))


def test_channels_are_checked() -> None:
    with pytest.raises(BudgetError, match="add up"):
        Channel(np.array([[WHOLE - 1, 0]], dtype=np.int64))
    with pytest.raises(BudgetError, match="negative"):
        Channel(np.array([[WHOLE + 1, -1]], dtype=np.int64))
    with pytest.raises(BudgetError, match="outside"):
        randomised_response(3, 1.0).report(np.array([3]), noise_source(NoiseKind.EXACT))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.floats(0.2, 5.0), st.sampled_from(list(Split)))
def test_component_wise_against_the_written_out_channel(levels: list[int], epsilon: float, split: Split) -> None:
    for make in (component_wise_response, component_wise_geometric):
        channel = make(levels, epsilon, split)
        matrix = write_out(channel)
        records = all_records(channel.levels)
        assert channel.epsilon() <= epsilon * (1 + 1e-9) + 1e-9
        assert channel.epsilon() == pytest.approx(brute_epsilon(matrix), rel=1e-9, abs=1e-9)
        for norm in Norm:
            slow = brute_metric(matrix, distances_between(records, records, norm))
            assert channel.metric_parameter(norm) == pytest.approx(slow, rel=1e-9, abs=1e-9)


def test_component_wise_reports_have_the_product_law() -> None:
    channel = component_wise_response((2, 3), 2.0, Split.BY_LEVELS)
    records = np.tile([1, 2], (200_000, 1))
    reports = channel.report(records, noise_source(NoiseKind.SEEDED, seed=20262))
    assert misfit(reports @ [3, 1], write_out(channel)[5]) > 1e-6


@pytest.mark.parametrize("norm", list(Norm))
def test_combined_geometric_against_brute_force(norm: Norm) -> None:
    levels, truth = (3, 2, 4), 0.3
    channel = CombinedGeometric(levels, truth, norm)
    records = all_records(levels)
    distances = distances_between(records, records, norm)
    slow = np.empty_like(distances)
    for row, apart in enumerate(distances):
        low, high = 0.0, 50.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if np.exp(-middle * apart).sum() > 1 / truth else (low, middle)
        slow[row] = truth * np.exp(-low * apart)
    assert channel.write_out().matrix == pytest.approx(slow, abs=1e-9)
    assert channel.epsilon() == pytest.approx(brute_epsilon(slow), rel=1e-6)
    assert channel.metric_parameter(norm) == pytest.approx(brute_metric(slow, distances), rel=1e-6)
    assert channel.truth() == pytest.approx(truth, abs=1e-9)
    row = 13
    reports = channel.report(np.tile(records[row], (100_000, 1)), noise_source(NoiseKind.SEEDED, seed=20263))
    codes = np.ravel_multi_index(reports.T, levels)
    assert misfit(codes, slow[row]) > 1e-6
    wrong = slow[row].copy()
    wrong[row] -= 0.02
    wrong[0] += 0.02
    assert misfit(codes, wrong) < 1e-6


def test_combined_channels_of_a_domain_that_fits_nowhere() -> None:
    levels = (10,) * 11
    noise = noise_source(NoiseKind.SEEDED, seed=20264)
    records = np.full((500, 11), 4)
    response = combined_response(levels, 0.05)
    assert response.epsilon() == pytest.approx(epsilon_of_response(10**11, 0.05), rel=1e-6)
    assert response.epsilon() == pytest.approx(22.4, abs=0.05)
    assert (response.report(records, noise) == records).all(axis=1).mean() == pytest.approx(0.05, abs=0.04)
    geometric = CombinedGeometric(levels, 0.05, Norm.EUCLIDEAN)
    assert (geometric.report(records, noise) == records).all(axis=1).mean() == pytest.approx(0.05, abs=0.04)
    assert geometric.truth() == pytest.approx(0.05, abs=1e-6)
    assert math.isfinite(geometric.epsilon())
    with pytest.raises(BudgetError, match="100000000000 records"):
        geometric.metric_parameter(Norm.EUCLIDEAN)
    with pytest.raises(BudgetError, match="component-wise"):
        geometric.undo()
    with pytest.raises(BudgetError, match="more than 2"):
        combined_response((10,) * 20, 0.05)


def test_combined_response_is_a_mixture_of_truth_and_blindness() -> None:
    channel = combined_response((2, 3), 0.4)
    reports = channel.report(np.tile([1, 2], (200_000, 1)), noise_source(NoiseKind.SEEDED, seed=20265))
    kept = channel.undo().kept
    law = np.full(6, (1.0 - kept) / 6)
    law[5] += kept
    assert law[5] == pytest.approx(0.4)
    assert misfit(reports @ [3, 1], law) > 1e-6


@settings(deadline=None)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.floats(0.02, 0.98), st.sampled_from(list(Split)))
def test_equal_protection(levels: list[int], share: float, split: Split) -> None:
    blind = 1.0 / math.prod(levels)
    truth = blind + share * (0.99 - blind)
    for channel in (response_of_truth(levels, truth, split), geometric_of_truth(levels, truth, split)):
        assert channel.truth() == pytest.approx(truth, rel=1e-6)
        assert write_out(channel).max(axis=0).sum() / math.prod(levels) == pytest.approx(truth, rel=1e-6)


def test_rounding_never_leaves_a_zero() -> None:
    channel = channel_from_weights(np.array([[1.0, 1e-30], [0.5, 0.5]]))
    assert channel.weights.min() == 1
    assert math.isfinite(channel.epsilon())


def test_geometric_with_an_epsilon_uses_it() -> None:
    for epsilon in (0.1, 1.0, 4.0):
        assert geometric_with_epsilon(6, epsilon).epsilon() == pytest.approx(epsilon, rel=1e-6)


def exact_log(above: int, below: int) -> Decimal:
    """Return the logarithm of a ratio of whole numbers to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return (Decimal(above) / Decimal(below)).ln()


EPSILONS = st.floats(1e-6, 36.0) | st.sampled_from([1e-6, 10.0, 14.0, 16.0, 20.0, 25.0, 30.0, 33.0, 36.0])


@settings(deadline=None)
@given(st.integers(2, 200), EPSILONS)
def test_response_keeps_to_every_epsilon_and_wastes_less_than_a_unit(k: int, epsilon: float) -> None:
    channel = randomised_response(k, epsilon)
    truth, other = (int(weight) for weight in channel.weights[0, :2])
    assert exact_log(truth, other) <= Decimal(channel.epsilon())
    assert channel.epsilon() <= epsilon
    assert other <= WHOLE / (k - 1 + math.exp(epsilon)) * (1.0 + 1e-10) + 1.0


@settings(deadline=None)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=16), EPSILONS)
def test_combined_response_keeps_to_every_epsilon(levels: list[int], epsilon: float) -> None:
    channel = combined_response_with_epsilon(levels, epsilon)
    size = math.prod(levels)
    truth, others = channel.truth_weight * (size - 1), CERTAIN - channel.truth_weight
    assert abs(exact_log(truth, others)) <= Decimal(channel.epsilon())
    # a unit of the weight is all that may be above: 2⁻¹⁰ of chance if there are 2⁵² records
    unit = size / CERTAIN
    assert channel.epsilon() <= epsilon or (epsilon < 2 * unit and channel.epsilon() < 2 * unit + 1e-12)
    # one unit more would be too much; a few of 2⁶² are below the precision of floats
    less = others - 1 - math.ceil(others * 1e-10)
    more = channel.truth_weight + 1 + math.ceil(channel.truth_weight * 1e-10)
    assert less <= 0 or more * (size - 1) / less > math.exp(epsilon)


def test_a_truth_that_is_rarer_than_chance_is_no_combined_response() -> None:
    for levels, weight in (((2,), 1), ((2,), CERTAIN // 2 - 10), ((3, 3), CERTAIN // 9 - 1), ((2,), 0), ((2,), -5)):
        with pytest.raises(BudgetError, match="rarer than chance"):
            CombinedResponse(levels, weight)
    with pytest.raises(BudgetError, match="certainty"):
        CombinedResponse((2,), CERTAIN)
    # less than a unit below chance: the ratio counts whichever of the two is larger
    rounded = CombinedResponse((3, 3), CERTAIN // 9)
    assert Decimal(rounded.epsilon()) >= -exact_log(rounded.truth_weight * 8, CERTAIN - rounded.truth_weight) > 0
    assert rounded.metric_parameter(Norm.EUCLIDEAN) == rounded.epsilon()
    assert rounded.truth() >= 1 / 9
    many = CombinedResponse((3,) * 32, CERTAIN // 3**32)
    assert many.epsilon() > 1e-4
    assert many.truth() > many.truth_weight / CERTAIN
    assert CombinedResponse((2, 2), CERTAIN // 4).epsilon() == 0.0
    one = combined_response((1, 1), 0.5)
    assert one.report(np.zeros((3, 2), dtype=np.int64), noise_source(NoiseKind.EXACT)).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("shift", [1, 2, 3, 7, 31, 10**4, 10**9, 10**14])
def test_rounding_never_understates(shift: int) -> None:
    half = WHOLE // 2
    channel = Channel(np.array([[half + shift, half - shift], [half - shift, half + shift]], dtype=np.int64))
    exact = exact_log(half + shift, half - shift)
    assert Decimal(channel.epsilon()) >= exact
    assert Decimal(channel.gap_of_neighbours()) >= exact
    assert Decimal(float(widest_gaps(channel)[1])) >= exact
    for norm in Norm:
        assert Decimal(ComponentWise((channel,)).metric_parameter(norm)) >= exact
    assert channel.epsilon() <= float(exact) + 3e-13


def test_equal_weights_have_no_gap_and_impossible_reports_none_either() -> None:
    blind = Channel(np.full((2, 2), WHOLE // 2, dtype=np.int64))
    never = Channel(np.array([[WHOLE, 0], [WHOLE, 0]], dtype=np.int64))
    for channel in (blind, never):
        assert channel.epsilon() == channel.gap_of_neighbours() == widest_gaps(channel).max() == 0.0
    assert Channel(np.array([[WHOLE, 0], [WHOLE // 2, WHOLE // 2]], dtype=np.int64)).epsilon() == math.inf


@pytest.mark.parametrize("n_columns", [53, 60, 1200, 20_000])
def test_products_that_are_too_large_are_refused_in_words(n_columns: int) -> None:
    levels = (2,) * n_columns
    for make in (
        lambda: combined_response(levels, 0.5),
        lambda: combined_response_with_epsilon(levels, 1.0),
        lambda: CombinedResponse(levels, CERTAIN // 2),
        lambda: CombinedGeometric(levels, 0.5, Norm.MANHATTAN),
    ):
        with pytest.raises(BudgetError, match=r"more than 2\*\*52; group levels"):
            make()
    with pytest.raises(BudgetError, match="below 1"):
        response_of_truth(levels, 1.5, Split.UNIFORM)


@pytest.mark.parametrize("law_norm", list(Norm))
def test_the_metric_parameter_of_combined_noise_is_that_of_what_is_drawn(law_norm: Norm) -> None:
    """Far records have one unit for all of them: a written-out matrix in units would be wrong about them."""
    levels = (5, 5, 2)
    channel = CombinedGeometric(levels, 0.99999, law_norm)
    records = all_records(levels)
    matrix = np.empty((len(records), len(records)))
    steps = distances_between(records, records, law_norm) ** (2 if law_norm is Norm.EUCLIDEAN else 1)
    for row, record in enumerate(records):
        law = channel._law(tuple(record.tolist()))
        matrix[row] = [law.weights[round(s)] / WHOLE / law.counts[-1][round(s)] for s in steps[row]]
    assert matrix.sum(axis=1) == pytest.approx(1.0)
    assert channel.epsilon() == pytest.approx(brute_epsilon(matrix), rel=1e-9)
    for norm in Norm:
        slow = brute_metric(matrix, distances_between(records, records, norm))
        assert channel.metric_parameter(norm) == pytest.approx(slow, rel=1e-9)
        assert channel.metric_parameter(norm) >= slow * (1.0 - 1e-14)
