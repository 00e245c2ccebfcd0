"""From options to a protocol: the channels, and what they promise."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from dagveil._version import __version__
from dagveil.data.schema import Schema, load_toml
from dagveil.errors import BudgetError, DataError, SchemaError
from dagveil.local import record
from dagveil.local.channel import Floats
from dagveil.local.combined_geometric import CombinedGeometric
from dagveil.local.protocol import (
    PROTOCOL_VERSION,
    Figures,
    Form,
    MatrixWeights,
    Mechanism,
    PlannedColumn,
    Protocol,
    ResponseWeights,
    column_figures,
    record_figures,
)
from dagveil.local.record import ComponentWise, Norm, RecordChannel, Split

# of one channel: beyond it, probabilities of other values than the truth would fall below 2⁻⁵³
LARGEST_EPSILON: Final = 36.0
SMALLEST_EPSILON: Final = 1e-6  # of a record: below it no number of reports would tell anything
MOST_BISECTED: Final = 1000  # records, up to symmetry, of a combined geometric channel whose truth is searched for
_ROUNDS: Final = 36
_HAIR: Final = 1.0 - 1e-12  # the exact ε is rounded up, so a hair less is asked for
COMPONENT_WISE: Final = {  # channels by ε, and by the probability of the truth
    Mechanism.RESPONSE: (record.component_wise_response, record.response_of_truth),
    Mechanism.GEOMETRIC: (record.component_wise_geometric, record.geometric_of_truth),
}


def load_priors(path: str | Path, protocol: Protocol) -> tuple[Floats, ...]:
    """Read shares by column and label; labels that are left out have none, columns that are left out are even.

    - `path`: a TOML file with one table for each column, such as `[smokes]` with `true = 0.2` and `false = 0.8`.
    """
    hint = "give the path of a file with one table of shares for each column"
    document = load_toml(path, DataError, "the file of priors", hint)
    try:
        shares = msgspec.convert(document, dict[str, dict[str, float]])
    except msgspec.ValidationError as error:
        raise DataError(f"the priors in {path} cannot be read: {error}; write label = share under [column]") from error
    protocol.find_places(shares)
    return tuple(_read_column(column.name, column.labels, shares.get(column.name)) for column in protocol.columns)


def _read_column(name: str, labels: tuple[str, ...], shares: dict[str, float] | None) -> Floats:
    if shares is None:
        return np.full(len(labels), 1.0 / len(labels))
    unknown = [label for label in shares if label not in labels]
    if unknown:
        raise DataError(f"column {name!r} has no label {unknown[0]!r}; it has {', '.join(labels)}")
    prior = np.array([shares.get(label, 0.0) for label in labels])
    total = float(prior.sum())
    if not (np.isfinite(prior).all() and (prior >= 0.0).all() and math.isclose(total, 1.0, rel_tol=1e-6)):
        raise DataError(f"the shares of column {name!r} add up to {total:g}; they must be 0 or more and add up to 1")
    return prior / total


def plan_protocol(
    schema: Schema,
    mechanism: Mechanism,
    form: Form = Form.COMPONENT_WISE,
    *,
    epsilon: float | Fraction | None = None,
    truth: float | None = None,
    split: Split = Split.UNIFORM,
    norm: Norm = Norm.MANHATTAN,
) -> Protocol:
    """Plan a collection.

    - `epsilon`: the largest ε of local privacy of a record; give this or `truth`.
    - `truth`: probability that the true record is reported, as the publication fixes it.
    - `split`: how columns share the ε of a record; for the component-wise form.
    - `norm`: distance between records, in steps of codes: of the combined geometric mechanism, and of metric privacy.
    """
    if (epsilon is None) == (truth is None):
        raise BudgetError("give either epsilon or the probability of the truth, one of the two")
    levels = tuple(column.n_levels for column in schema.columns.values())
    if max(levels) < 2:
        raise SchemaError("no column has more than one level, so there is nothing to report; declare more levels")
    if epsilon is not None:
        asked = float(epsilon)
        shares = record.split_epsilon(levels, asked, split) if form is Form.COMPONENT_WISE else [asked]
        if not (asked > 0.0 and max(shares) <= LARGEST_EPSILON):
            raise BudgetError(
                f"epsilon is {asked:g}; choose a number above 0 that gives no channel more than {LARGEST_EPSILON:g}, "
                "which already hides nothing"
            )
        channel = _make_channel(levels, mechanism, form, asked * _HAIR, False, split, norm)
        if Fraction(channel.epsilon()) > Fraction(epsilon):
            raise BudgetError(
                f"epsilon {asked:g} is finer than the whole numbers that reports are drawn with: the nearest channel "
                f"has {channel.epsilon():.4g}; raise epsilon, or choose fewer levels or component-wise noise"
            )
    else:
        assert truth is not None
        channel = _make_channel(levels, mechanism, form, truth, True, split, norm)
    if channel.epsilon() < SMALLEST_EPSILON:
        raise BudgetError("with these options reports have nothing to do with the records; raise epsilon or the truth")
    kind = ResponseWeights if mechanism is Mechanism.RESPONSE else MatrixWeights
    columns = []
    for place, (name, column) in enumerate(schema.columns.items()):
        own, figures = None, Figures(None, None, None)
        if isinstance(channel, ComponentWise):
            own = kind.of(channel.channels[place])
            figures = column_figures(own.read(column.n_levels), own)
        columns.append(PlannedColumn(name, column.labels, own, figures))
    return Protocol(
        format="dagveil-protocol",
        version=PROTOCOL_VERSION,
        software=__version__,
        schema=schema,
        schema_digest=schema.digest(),
        mechanism=mechanism,
        form=form,
        split=split if form is Form.COMPONENT_WISE else None,
        norm=norm,
        truth_weight=getattr(channel, "truth_weight", None),
        truth_probability=getattr(channel, "truth_probability", None),
        columns=tuple(columns),
        record=record_figures(channel, norm, [column.figures for column in columns]),
    )


def _make_channel(
    levels: tuple[int, ...], mechanism: Mechanism, form: Form, amount: float, by_truth: bool, split: Split, norm: Norm
) -> RecordChannel:
    if form is Form.COMPONENT_WISE:
        return COMPONENT_WISE[mechanism][by_truth](levels, amount, split)
    if mechanism is Mechanism.RESPONSE:
        return (record.combined_response if by_truth else record.combined_response_with_epsilon)(levels, amount)
    return CombinedGeometric(levels, amount, norm) if by_truth else _geometric_with_epsilon(levels, amount, norm)


def _geometric_with_epsilon(levels: tuple[int, ...], epsilon: float, norm: Norm) -> CombinedGeometric:
    """Return the combined geometric mechanism whose exact ε is at most this, by bisection over the truth's log-odds.

    Of many records chance is so small that steps of a probability would jump over all that is near it.
    """
    chance = 1.0 / record.check_product(levels)
    channel = CombinedGeometric(levels, math.nextafter(chance, 1.0), norm)
    if channel.n_classes > MOST_BISECTED:
        raise BudgetError(
            f"this combined geometric channel has {channel.n_classes} kinds of records, too many to find the truth for "
            f"an epsilon (the limit is {MOST_BISECTED}); give --truth P (in Python truth=P) and read the exact epsilon "
            "from the protocol, or choose component-wise noise"
        )
    low, high = math.log(chance) - math.log1p(-chance), math.log(2.0**40)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        tried = CombinedGeometric(levels, 1.0 / (1.0 + math.exp(-middle)), norm)
        if tried.epsilon() <= epsilon:
            low, channel = middle, tried
        else:
            high = middle
    return channel
