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
from dagveil.plans.plan_file import MeasurementPlan
from dagveil.plans.planning import plan_measurement, plan_second_round
from dagveil.plans.site_run import measure_planned
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source

POOLED = 0  # stands for the pooled run, which chooses its later questions by what it has released: `measure` as it is
Codes = Mapping[str, NDArray[np.uint8]]


def count_sites(text: str) -> tuple[int, int]:
    """Read numbers of sites and rounds; a site has the whole epsilon, since its people are at no other one."""
    found = re.fullmatch(r"pooled|([1-9]\d*) sites?(, two rounds)?", text)
    if found is None:
        raise MethodError(f"{text!r} is no number of sites; write 'pooled', '1 site', '2 sites, two rounds' and so on")
    return int(found[1] or POOLED), 2 if found[2] else 1


def measure_sites(
    codes: Codes, schema: Schema, epsilon: float, delta: float, count: int, seed: int, rounds: int = 1
) -> Evidence:
    """Deal rows out to sites of equal size, let each follow one plan, and add what they release."""
    if count == POOLED:
        table = MemoryTable.from_codes(codes, schema)
        return measure_source(table, schema, epsilon, delta, noise=NoiseKind.SEEDED, seed=seed, ledger=None)
    rows = len(next(iter(codes.values())))
    cuts = np.linspace(0, rows, count + 1).astype(int)
    sizes = {f"site {k + 1}": int(cuts[k + 1] - cuts[k]) for k in range(count)}
    plan = plan_measurement(schema, epsilon, delta, sites=sizes, rounds=rounds)

    def follow(plan: MeasurementPlan, seed: int) -> list[Evidence]:
        released = []
        for k, name in enumerate(sizes):
            own = replace(schema, dataset=name, nominal_rows=sizes[name])
            part = {column: array[cuts[k] : cuts[k + 1]] for column, array in codes.items()}
            table = MemoryTable.from_codes(part, own)
            released.append(
                measure_planned(table, plan, name, schema=own, noise=NoiseKind.SEEDED, seed=seed + k, ledger=None)
            )
        return released

    first = follow(plan, seed)
    combined = combine_evidence(first) if count > 1 else first[0]
    if rounds == 1:
        return combined
    # seeds of the first round must not come again: the same noise twice would not average out
    return combine_evidence([combined, *follow(plan_second_round(plan, combined), seed + count)])
