"""The method `pc`: PC with exact tests, and no privacy at all (Spirtes, Glymour and Scheines 2000)."""

from dagveil.data.schema import Schema
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import check_countable
from dagveil.methods.measure import is_numeric
from dagveil.methods.method import Method, NoSettings, account_plainly


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse tables that mix numbers without bins with levels."""
    knowledge.check(schema.columns)
    if not is_numeric(schema):
        check_countable(schema)


METHOD = Method(
    name="pc",
    title="PC with exact tests, for public data: no privacy",
    paper="Spirtes, Glymour and Scheines, Causation, prediction, and search, 2000",
    data="levels only, or numbers only",
    cost="no guarantee at any cost",
    settings=NoSettings,
    accounting=account_plainly,  # of nothing
    check=check,
)
