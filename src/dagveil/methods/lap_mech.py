"""The method `lap-mech`: Laplace noise on the table of counts of all columns, once (Xu, Yuan and Wu 2017)."""

import math

from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import method
from dagveil.methods.measure import measure_jointly

MOST_CELLS = 2**22  # cells of the joint table beyond which the method refuses: its evidence would take gigabytes


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse a domain that does not fit, with its size."""
    method.check_counts(schema, knowledge)
    cells = math.prod(column.n_levels for column in schema.columns.values())
    if cells > MOST_CELLS:
        raise MethodError(
            f"lap-mech puts noise on every cell of the declared domain, which has {cells:.4g} cells; the limit is "
            f"{MOST_CELLS}. Leave columns out, group levels, or choose `measure`, which needs small tables only."
        )


METHOD = method.Method(
    name="lap-mech",
    title="Laplace noise on the table of all columns",
    paper=method.XU_2017,
    data=method.COUNTED + "; small domains",
    cost="one release",
    settings=method.NoSettings,
    accounting=method.account_plainly,  # the cheapest for one release of Laplace noise
    check=check,
    release=measure_jointly,
    sharp=(method.SharpCase(method.TWO_COLUMNS),),
)
