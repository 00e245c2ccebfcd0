"""Simulated records in place of real ones that are not installed; tables call them by another name."""

from __future__ import annotations

from msgspec.structs import replace

from dagveil.errors import DagveilError, MissingExtraError
from dagveil_bench.studies.plan import DataSet, Study
from dagveil_bench.studies.requirements import check_source_of


def settle_data(study: Study) -> Study:
    """Return the study as it can be run here: data sets whose records are missing are replaced by their stand-ins.

    A stand-in has a name of its own in every table, a note says why it is there, and no published figure stands beside
    it.
    """
    renamed: dict[str, str] = {}
    lacks: dict[str, list[str]] = {}
    chosen: list[str | DataSet] = []
    for item, data in zip(study.data, study.data_sets, strict=True):
        reason = _find_lack(study, data)
        if data.stand_in is None or reason is None:
            chosen.append(item)
            continue
        label = data.stand_in.label or f"{data.title}, simulated"
        renamed[data.title] = label
        lacks.setdefault(reason, []).append(data.title)
        chosen.append(replace(data.stand_in, label=label, rows=data.stand_in.rows or data.rows))
    if not renamed:
        return study
    return replace(
        study,
        data=tuple(chosen),
        methods=tuple(replace(m, data=tuple(renamed.get(label, label) for label in m.data)) for m in study.methods),
        published=tuple(
            replace(p, values={label: values for label, values in p.values.items() if label not in renamed})
            for p in study.published
        ),
        notes=(
            *study.notes,
            *(f"Simulated records stand in for {'; '.join(real)}. Why: {why}." for why, real in lacks.items()),
        ),
        quick=replace(study.quick, data=tuple(renamed.get(label, label) for label in study.quick.data)),
    )


def _find_lack(study: Study, data: DataSet) -> str | None:
    """Return why the records of a data set are missing; other mistakes are told later, with their place."""
    try:
        for source in (data.source, *data.variants.values()):
            check_source_of(study.task, source)
    except MissingExtraError as error:
        return str(error)
    except DagveilError:
        return None
    return None
