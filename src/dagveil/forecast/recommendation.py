"""From curves to words: which method, order and epsilon reach a wanted accuracy, and what that gives away."""

import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np
from scipy.optimize import isotonic_regression

from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.forecast.detection import POWER, Weakest, find_weakest
from dagveil.privacy.budget import Budget, Relation, round_down, round_up
from dagveil.privacy.receipt import PER_PERSON, bound_advantage, describe_guessing, name_unit

SHOWN_DIGITS = 2  # digits of a recommended epsilon, rounded up: a curve through a few points says no more
FLAT = 0.02  # where a curve is closer to its end than this, more budget does not help
_ORDERS = {1: "those of single columns", 2: "those of pairs", 3: "those of three columns"}


class Point(msgspec.Struct, frozen=True):
    """One epsilon of a curve.

    `f1` is the mean of the skeleton's F1 over synthetic tables, between the ends of its interval; None if a run failed.
    `order` is the largest number of columns in a released table, in most runs; None for methods that release none.
    `weakest` is the weakest dependence that `measure` would see.
    """

    epsilon: Fraction
    f1: float | None
    low: float | None
    high: float | None
    order: int | None
    weakest: Weakest
    failure: str | None = None


class Curve(msgspec.Struct, frozen=True):
    """Expected accuracy of one method, by growing epsilon."""

    method: str
    points: tuple[Point, ...]


class Recommendation(msgspec.Struct, frozen=True):
    """What the curves say about a wanted accuracy.

    It names the method that reaches the wanted accuracy with the smallest epsilon, and the accuracy expected there; or,
    if none reaches it, what is best at the largest epsilon. `order` is the largest order of tables that the method, or
    else `measure`, asks for there. `advantage` is the most by which an attacker's true positives exceed false ones.
    """

    wanted_f1: float
    reached: bool
    method: str
    epsilon: Fraction
    f1: float
    order: int | None
    weakest: Weakest
    advantage: float
    words: tuple[str, ...]


def recommend(
    curves: Sequence[Curve], wanted_f1: float, schema: Schema, delta: Fraction, rows: int, left: Fraction | None = None
) -> Recommendation:
    """Read a recommendation off curves.

    The first curve wins ties. Not more is recommended than is `left` of the lifetime budget.
    """
    if left is not None:
        curves = [_cut(curve, left) for curve in curves]
    reached = [(epsilon, place) for place, curve in enumerate(curves) if (epsilon := reach(curve, wanted_f1))]
    if reached:
        exact, place = min(reached)
        epsilon = min(Fraction(round_up(exact, SHOWN_DIGITS)), curves[place].points[-1].epsilon)
        chosen, f1 = curves[place], read_curve(curves[place], epsilon)
        first = f"{chosen.method} reaches an expected skeleton F1 of {wanted_f1:g} at epsilon {round_up(epsilon, 4)}"
        first += f", the smallest of {len(curves)} methods explored." if len(curves) > 1 else "."
        if exact == chosen.points[0].epsilon:
            first += " That is the smallest epsilon explored; less may do."
    else:
        ends = [(point.f1, -place) for place, curve in enumerate(curves) if (point := curve.points[-1]).f1 is not None]
        if not ends:
            reasons = "; ".join(f"{curve.method}: {curve.points[-1].failure}" for curve in curves)
            raise MethodError(f"no method could be tried at the largest epsilon; {reasons}")
        best, place = max(ends)
        largest = curves[-place].points[-1].epsilon
        first = (
            f"None of these methods reaches an expected skeleton F1 of {wanted_f1:g} up to epsilon "
            f"{round_up(largest, 4)}; the best is {curves[-place].method} with {best:.2f} there. "
        )
        # the same but for chance: whoever asks for less gets nearly the same for less
        epsilon, place = min(
            (epsilon, place)
            for place, curve in enumerate(curves)
            for _, height, epsilon in zip(*_steps(curve), strict=True)
            if height >= best - FLAT
        )
        chosen, f1 = curves[place], read_curve(curves[place], epsilon)
        if epsilon < largest:
            first += (
                f"{chosen.method} at epsilon {round_up(epsilon, 4)} has {f1:.2f}: more budget hardly helps from there. "
            )
        first += (
            "Rows and the strength of dependence set a limit too: try more rows, a lower wanted F1, or another law of "
            "synthetic tables (degree, strength)."
        )
    if left is not None:
        first += f" More than epsilon {round_down(left, 4)} is not recommended: that is left of the lifetime budget."
    # at the first explored epsilon that is no smaller, of the method itself or else of `measure`
    measured = [curve for curve in curves if curve.method == "measure"]
    asked = (point for curve in (chosen, *measured) for point in curve.points)
    order = next((point.order for point in asked if point.epsilon >= epsilon and point.order is not None), None)
    weakest = find_weakest(schema, Budget(epsilon, delta), rows)
    advantage = bound_advantage(float(epsilon), float(delta))
    return Recommendation(
        wanted_f1=wanted_f1,
        reached=bool(reached),
        method=chosen.method,
        epsilon=epsilon,
        f1=f1,
        order=order,
        weakest=weakest,
        advantage=advantage,
        words=(
            first,
            *_describe_reach(chosen, order, weakest, len(schema.columns)),
            describe_attacker(epsilon, delta, schema),
        ),
    )


def reach(curve: Curve, wanted: float) -> Fraction | None:
    """Return the smallest epsilon at which a curve reaches a height; None if it does not.

    More budget cannot hurt in expectation, so heights that fall are pooled with their neighbours first. Between two
    points the curve is straight over the logarithm of epsilon.
    """
    logs, heights, epsilons = _steps(curve)
    for place, height in enumerate(heights):
        if height < wanted:
            continue
        if place == 0 or heights[place - 1] >= wanted:
            return epsilons[place]
        share = (wanted - heights[place - 1]) / (height - heights[place - 1])
        between = math.exp(logs[place - 1] + share * (logs[place] - logs[place - 1]))
        return min(Fraction(float(f"{between:.12g}")), epsilons[place])
    return None


def read_curve(curve: Curve, epsilon: Fraction) -> float:
    """Return the height of a curve, pooled as in `reach`, at an epsilon inside it."""
    logs, heights, _ = _steps(curve)
    return float(np.interp(math.log(epsilon), logs, heights))


def describe_attacker(epsilon: Fraction, delta: Fraction, schema: Schema) -> str:
    """Say what someone who sees the result gains at most about one record."""
    unit = "one record" if schema.person is None else f"one {name_unit(schema.person_word)}"
    guessing = describe_guessing(epsilon, delta, Relation(schema.relation), unit)
    advantage = bound_advantage(float(epsilon), float(delta))
    return (
        f"What an attacker gains at most at {Budget(epsilon, delta).words}: {guessing} Their membership advantage, "
        f"true positives less false ones, is at most {math.ceil(advantage * 1000 - 1e-9) / 1000:g}. That is for "
        + (f"one record: {PER_PERSON}." if schema.person is None else f"{unit}, with all records.")
    )


def _cut(curve: Curve, left: Fraction) -> Curve:
    """Return a curve up to what is left, with a last point there between two that were explored."""
    kept = tuple(point for point in curve.points if point.epsilon <= left)
    after = next((point for point in curve.points if point.epsilon > left and point.f1 is not None), None)
    end = Fraction(round_down(left, SHOWN_DIGITS))
    if after is not None and any(point.f1 is not None for point in kept) and end > kept[-1].epsilon:
        kept += (msgspec.structs.replace(after, epsilon=end, f1=read_curve(curve, end), low=None, high=None),)
    return Curve(curve.method, kept)


def _steps(curve: Curve) -> tuple[list[float], list[float], list[Fraction]]:
    """Return the logarithms of epsilon, heights that never fall, and the epsilons, of points that have a height."""
    points = [point for point in curve.points if point.f1 is not None]
    if not points:
        return [], [], []
    heights = isotonic_regression([point.f1 for point in points]).x
    return [math.log(point.epsilon) for point in points], heights.tolist(), [point.epsilon for point in points]


def _describe_reach(chosen: Curve, order: int | None, weakest: Weakest, columns: int) -> list[str]:
    seen = (
        f"The weakest dependence that a test of measure still sees there with probability {POWER:g}: {weakest.words}."
    )
    if order is None:
        return [seen]
    largest = _ORDERS.get(order, f"those of {'all ' if order == columns else ''}{order} columns")
    owner = chosen.method if any(point.order is not None for point in chosen.points) else "measure"
    return [f"Order {order}: the largest tables that {owner} asks for are {largest}.", seen]
