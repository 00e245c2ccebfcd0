"""The method `priv-pc-star`: noise on the covariance matrix, once (Xu, Yuan and Wu 2017, there "PrivPC*")."""

from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.measure import check_measurable, is_numeric, measure
from dagveil.methods.method import TWO_NUMBERS, XU_2017, Method, NoSettings, SharpCase, account_gaussian


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse tables with columns that are not numeric."""
    check_measurable(schema, knowledge)
    if not is_numeric(schema):
        raise MethodError(
            "priv-pc-star needs numeric columns without bins only; choose `measure`, or leave the other columns out"
        )


METHOD = Method(
    name="priv-pc-star",
    title="noise on the covariance matrix",
    paper=XU_2017,
    data="numeric",
    cost="one or two releases",
    settings=NoSettings,
    accounting=account_gaussian,
    check=check,
    release=measure,  # moments of clipped rows: repaired, PrivPC* is what `measure` does with numeric columns
    sharp=(SharpCase(TWO_NUMBERS),),
)
