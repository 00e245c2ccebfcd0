"""Rigorous bounds on exp(−x) for rational x, in integer arithmetic."""

from __future__ import annotations


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers with lower ≤ 2^bits · exp(−numerator/denominator) ≤ upper; the fraction is at least 0.

    The argument is halved until it is below 1/8, the series is summed with a bound on every rounding, and the result is
    squared back. docs/proofs/exact-noise.md proves the bounds.

    Examples
    --------
    >>> exp_bounds(1, 1, 10), exp_bounds(0, 1, 10)
    ((376, 377), (1024, 1024))
    """
    if numerator == 0:
        return 1 << bits, 1 << bits
    whole = numerator // denominator
    if whole >= bits:  # e^-bits < 2^-bits
        return 0, 1
    halvings = whole.bit_length() + 3
    work = bits + halvings + 16
    argument = (numerator << (work - halvings)) // denominator
    term = total = 1 << work
    count = 0
    while term:
        count += 1
        term = ((term * argument) >> work) // count
        total += -term if count & 1 else term
    error = 3 * count + 8
    lower, upper = total - error, min(total + error, 1 << work)
    for _ in range(halvings):
        lower = (lower * lower) >> work
        upper = ((upper * upper) >> work) + 1
    shift = work - bits
    return lower >> shift, -(-upper >> shift)
