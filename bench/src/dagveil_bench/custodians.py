"""What it costs that rows may not be pooled: graphs from the added evidence of several sites, beside the pooled run."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Evidence
from dagveil.plans.combine import combine_evidence
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source

POOLED = 0  # stands for the pooled run, which chooses its later questions by what it has released: `measure` as it is
Codes = Mapping[str, NDArray[np.uint8]]


def count_sites(text: str) -> int:
    """Read a number of sites, each of which has the whole epsilon, since its people are at no other site."""
    found = re.fullmatch(r"pooled|([1-9]\d*) sites?", text)
    if found is None:
        raise MethodError(f"{text!r} is no number of sites; write 'pooled', '1 site', '2 sites' and so on")
    return int(found[1] or POOLED)


def measure_sites(codes: Codes, schema: Schema, epsilon: float, delta: float, count: int, seed: int) -> Evidence:
    """Deal rows out to sites of equal size, let each follow one plan, and add what they release."""
    if count == POOLED:
        table = MemoryTable.from_codes(codes, schema)
        return measure_source(table, schema, epsilon, delta, noise=NoiseKind.SEEDED, seed=seed, ledger=None)
    rows = len(next(iter(codes.values())))
    cuts = np.linspace(0, rows, count + 1).astype(int)
    sizes = {f"site {k + 1}": int(cuts[k + 1] - cuts[k]) for k in range(count)}
    plan = plan_measurement(schema, epsilon, delta, sites=sizes)
    released = []
    for k, name in enumerate(sizes):
        own = replace(schema, dataset=name, nominal_rows=sizes[name])
        part = MemoryTable.from_codes({column: array[cuts[k] : cuts[k + 1]] for column, array in codes.items()}, own)
        released.append(
            measure_planned(part, plan, name, schema=own, noise=NoiseKind.SEEDED, seed=seed + k, ledger=None)
        )
    return combine_evidence(released) if count > 1 else released[0]
