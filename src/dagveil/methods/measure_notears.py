"""The method `measure-notears`: a linear model without cycles, from one matrix of second moments.

Its `paper` calibration is the published NOTEARS: exact moments, no noise, no privacy.
"""

from dagveil.curator import Curator
from dagveil.data.column import LevelColumn, Numeric
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure
from dagveil.methods.measure_moments import release_moments, scale_columns
from dagveil.methods.method import TWO_NUMBERS, ZHENG_2018, Measured, Method, NoSettings, SharpCase, account_gaussian
from dagveil.progress import Progress
from dagveil.search.settings import SearchRule

# spread of a column with levels, in deviations of its scores: rows of levels are shrunk less, since shrinking them
# joins independent columns
LEVEL_WIDTH = 1.6
# no level lies farther from the centre than this many spreads: a rare level would shrink the rest of its row
LEVEL_REACH = 2.0


def release(curator: Curator, knowledge: Knowledge, settings: NoSettings, progress: Progress) -> Measured:
    """Release the moments of all columns, levels by their scores."""
    schema = curator.schema
    rows, share, measured = measure.release_rows(curator)
    levels = {}
    tables = measure.release_levels(curator, measure.LEVELS_SHARE)
    for table in tables:
        column = schema.columns[table.columns[0]]
        if not isinstance(column, Numeric):
            levels[table.columns[0]] = widen_levels(column, *measure.scale_levels(column, measure.read_shares(table)))
    if tables:
        share -= measure.LEVELS_SHARE
        why = "columns with levels are centred and scaled by them"
        cells = sum(len(table.values) for table in tables)
        deviation = tables[0].count_variance ** 0.5
        stage = Stage("one-way tables", len(tables), cells, float(measure.LEVELS_SHARE), deviation, why)
        measured += Measured(tables, (stage,))
    measured += release_moments(curator, rows, scale_columns(curator, share, progress), progress, levels)
    told = "Columns with levels took part by public scores: 0, 1, 2, … where none are declared."
    return measured + Measured(findings=(told,) if levels else ())


def widen_levels(column: LevelColumn, center: float, spread: float) -> tuple[float, float]:
    """Return the centre and the spread by which scores of levels enter moments."""
    reach = max(abs(number - center) for number in column.numbers)
    return center, max(LEVEL_WIDTH * spread, reach / LEVEL_REACH)


METHOD = Method(
    name="measure-notears",
    title="noisy second moments once, then a linear model without cycles",
    paper=ZHENG_2018,
    data="numeric, and levels by their scores",
    cost="one to three releases",
    settings=NoSettings,
    accounting=account_gaussian,
    check=measure.check_measurable,
    release=release,
    search=SearchRule.NOTEARS,
    sharp=(SharpCase(TWO_NUMBERS),),
)
