"""Numbers and dates as people read them; budgets are rounded up, shares never to a false 0 or 100."""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from dagveil.privacy.budget import round_up

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def write_epsilon(epsilon: Fraction) -> str:
    """Print epsilon, rounded up."""
    return round_up(epsilon, 4)


def write_delta(delta: Fraction) -> str:
    """Print delta in scientific notation, rounded up."""
    if delta == 0:
        return "0"
    context = Context(prec=2, rounding=ROUND_CEILING)
    shown = context.divide(Decimal(delta.numerator), Decimal(delta.denominator)).normalize(context)
    mantissa, exponent = f"{shown:e}".split("e")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPT)
    return power if mantissa == "1" else f"{mantissa} × {power}"


def write_share(share: float | None) -> str:
    """Print a confidence as whole percent."""
    if share is None:
        return "–"
    percent = round(100 * share)
    if percent == 0 and share > 0:
        return "< 1 %"
    if percent == 100 and share < 1:
        return "> 99 %"
    return f"{percent} %"


def write_percent(share: float) -> str:
    """Print a share as percent for machines."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".")


def write_part(part: float) -> str:
    """Print a part of the budget with one decimal."""
    if 0 < part < 0.0005:
        return "< 0.1 %"
    return f"{100 * part:.1f}".removesuffix(".0") + " %"


def write_count(count: int | None) -> str:
    """Print a whole number in groups of three."""
    return "–" if count is None else f"{count:,}".replace(",", "\u202f")


def write_number(number: float | None) -> str:
    """Print a measured number with three significant digits."""
    if number is None:
        return "–"
    if abs(number) >= 1000:
        return write_count(round(number))
    return f"{number:.3g}"


def write_date(stamp: str) -> str:
    """Print a time stamp; text that is no time stamp stays as it is."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    zone = "" if moment.tzinfo is None else " UTC" if not moment.utcoffset() else f" UTC{moment:%z}"
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}, {moment:%H:%M}{zone}"


def write_plural(count: int, noun: str) -> str:
    """Print a count with its noun."""
    return f"{write_count(count)} {noun}" if count == 1 else f"{write_count(count)} {noun}s"
