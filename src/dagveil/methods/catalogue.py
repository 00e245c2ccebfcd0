"""Every method by its name: what it takes, what it promises, and how it is run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dagveil.curator import Curator, PublishedAccess
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import (
    curate,
    em_pc,
    lap_mech,
    measure,
    measure_features,
    measure_notears,
    noleaks,
    pcd,
    priv_pc,
    priv_pc_star,
    sampled_gaussian_pc,
    svt_pc,
)
from dagveil.methods.asking import Asked, check_countable
from dagveil.methods.measured import Measured
from dagveil.methods.plugins import Plugins, read_plugins
from dagveil.privacy.budget import Budget
from dagveil.privacy.filter import Filter
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress

Release = Callable[[Curator, Knowledge, Any, Progress], Measured]
Ask = Callable[[Curator, Knowledge, Any, Progress], Asked]
Publish = Callable[[PublishedAccess, Budget, Knowledge, Any, Progress], Asked]


@dataclass(frozen=True, slots=True)
class Method:
    """One named method; it either releases evidence once or asks adaptively.

    Parameters
    ----------
    name
        As in `--method`.
    title
        One line about it.
    paper
        Where it comes from; None for our own.
    data
        What tables it takes.
    cost
        How it spends the budget.
    settings
        Settings of the sound calibration.
    accounting
        Chooses the filter from budget, schema, settings and knowledge, before a row is touched.
    check
        Refuses a schema that the method cannot take.
    release
        Releases evidence that is then searched for free; None for an asking method.
    ask
        Asks adaptively; None for a releasing method.
    published
        Constants of the paper calibration; None if there is none.
    publish
        Runs the paper calibration.
    flaw
        Why the publication's guarantee does not hold.
    """

    name: str
    title: str
    paper: str | None
    data: str
    cost: str
    settings: type[msgspec.Struct]
    accounting: Callable[[Budget, Schema, Any, Knowledge], Filter]
    check: Callable[[Schema, Knowledge], None]
    release: Release | None = None
    ask: Ask | None = None
    published: type[msgspec.Struct] | None = None
    publish: Publish | None = None
    flaw: str = ""

    def read_settings(self, calibration: Calibration, options: Mapping[str, Any] | None) -> msgspec.Struct:
        """Read settings from names and values, as `--set` gives them; unknown names are refused."""
        kind = self.settings if calibration is Calibration.SOUND else self.published
        if kind is None:
            raise MethodError(f"{self.name} is not from a publication and has no paper calibration; leave it out")
        options = dict(options or {})
        known = kind.__struct_fields__
        unknown = [name for name in options if name not in known]
        if unknown:
            raise MethodError(
                f"{self.name} ({calibration.value}) has no setting {unknown[0]!r}; it has "
                f"{', '.join(known) if known else 'none'}"
            )
        try:
            settings = msgspec.convert(options, kind, strict=False)
        except msgspec.ValidationError as error:
            place = re.fullmatch(r"(.*) - at `\$\.(\w+)[^`]*`", str(error))
            what = f"{place[2]}: {place[1].lower()}" if place else str(error)
            raise MethodError(
                f"a setting of {self.name} cannot be read: {what}; `dagveil methods {self.name}` lists the settings"
            ) from error
        for name in known:
            value = getattr(settings, name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not all(math.isfinite(number) for number in numbers if isinstance(number, float)):
                raise MethodError(f"a setting of {self.name} cannot be read: {name} must be a finite number")
        return settings


def _release_measured(
    curator: Curator, knowledge: Knowledge, settings: measure.MeasureSettings, progress: Progress
) -> Measured:
    return measure.measure(curator, knowledge, progress)


def _check_counts(schema: Schema, knowledge: Knowledge) -> None:
    check_countable(schema)
    knowledge.check(schema.columns)


_XU = "Xu, Yuan and Wu, Differential privacy preserving causal graph discovery, PAC 2017"
_WANG = "Wang, Pang and Song, Towards practical differentially private causal graph discovery, NeurIPS 2020"
_BHATTACHARJEE = "Bhattacharjee and Tandon, CURATE: scaling-up differentially private causal graph discovery, 2024"
_MA = "Ma, Ji, Pang and Wang, NoLeaks: differentially private causal discovery under functional causal model, 2022"
_ZHENG = "Zheng, Aragam, Ravikumar and Xing, DAGs with NO TEARS: continuous optimization for structure learning, 2018"
_ZHANG = "Zhang, Xia, Ren, Guan and Zhou, Differentially private nonlinear causal discovery from numerical data, 2023"
_COUNTED = "categorical, ordinal, yes/no, and numeric with bins"

_ALL = (
    Method(
        "measure",
        "noisy small tables or moments once, then any search for free",
        None,
        "any",
        "one to three releases",
        measure.MeasureSettings,
        measure.accounting,
        measure.check_measurable,
        release=_release_measured,
    ),
    Method(
        "measure-ges",
        "the same releases, searched by a noise-aware score",
        None,
        "any",
        "one to three releases",
        measure.MeasureSettings,
        measure.accounting,
        measure.check_measurable,
        release=_release_measured,
    ),
    Method(
        "measure-notears",
        "noisy second moments once, then a linear model without cycles",
        _ZHENG,
        "numeric, and levels by their scores",
        "one to three releases",
        measure_notears.MeasureNotearsSettings,
        measure_notears.accounting,
        measure_notears.check,
        release=measure_notears.release,
        published=measure_notears.ExactNotearsSettings,
        publish=measure_notears.publish,
        flaw=measure_notears.NOT_PRIVATE,
    ),
    Method(
        "measure-features",
        "noisy moments of nonlinear features once, then any search for free",
        None,
        "numeric",
        "one to three releases",
        measure_features.MeasureFeaturesSettings,
        measure_features.accounting,
        measure_features.check,
        release=measure_features.release,
    ),
    Method(
        "em-pc",
        "exponential mechanism: how many neighbours of each node go, and which",
        _XU,
        _COUNTED,
        "about two choices per node and order",
        em_pc.EmPcSettings,
        em_pc.accounting,
        _check_counts,
        ask=em_pc.ask,
        published=em_pc.EmPcPublished,
        publish=em_pc.publish,
        flaw=em_pc.FLAW,
    ),
    Method(
        "lap-mech",
        "Laplace noise on the table of all columns",
        _XU,
        _COUNTED + "; small domains",
        "one release",
        lap_mech.LapMechSettings,
        lap_mech.accounting,
        lap_mech.check,
        release=lap_mech.release,
        published=lap_mech.LapMechPublished,
        publish=lap_mech.publish,
        flaw=lap_mech.FLAW,
    ),
    Method(
        "priv-pc-star",
        "noise on the covariance matrix",
        _XU,
        "numeric",
        "one or two releases",
        priv_pc_star.PrivPcStarSettings,
        priv_pc_star.accounting,
        priv_pc_star.check,
        release=priv_pc_star.release,
        published=priv_pc_star.PrivPcStarPublished,
        publish=priv_pc_star.publish,
        flaw=priv_pc_star.FLAW,
    ),
    Method(
        "svt-pc",
        "PC's questions through the sparse vector technique",
        _WANG,
        _COUNTED,
        "one round per removed edge, and one more",
        svt_pc.SvtPcSettings,
        svt_pc.accounting,
        _check_counts,
        ask=svt_pc.ask,
        published=svt_pc.SvtPcPublished,
        publish=svt_pc.publish,
        flaw=svt_pc.FLAW,
    ),
    Method(
        "priv-pc",
        "sieve on a sub-sample, examine on all rows",
        _WANG,
        _COUNTED,
        "one round per examined question, and one more",
        priv_pc.PrivPcSettings,
        priv_pc.accounting,
        _check_counts,
        ask=priv_pc.ask,
        published=priv_pc.PrivPcPublished,
        publish=priv_pc.publish,
        flaw=priv_pc.FLAW,
    ),
    Method(
        "sampled-gaussian-pc",
        "Gaussian noise on fresh sub-samples, a baseline",
        _WANG,
        _COUNTED,
        "every question",
        sampled_gaussian_pc.SampledGaussianSettings,
        sampled_gaussian_pc.accounting,
        sampled_gaussian_pc.check,
        ask=sampled_gaussian_pc.ask,
        published=sampled_gaussian_pc.SampledGaussianPublished,
        publish=sampled_gaussian_pc.publish,
        flaw=sampled_gaussian_pc.FLAW,
    ),
    Method(
        "noleaks",
        "NOTEARS with a private gradient in every iteration",
        _MA,
        "numeric, and levels by their scores",
        "every gradient",
        noleaks.NoleaksSettings,
        noleaks.accounting,
        noleaks.check,
        ask=noleaks.ask,
        published=noleaks.NoleaksPublished,
        publish=noleaks.publish,
        flaw=noleaks.FLAW,
    ),
    Method(
        "curate-score",
        "the same, with a budget that rises from iteration to iteration",
        _BHATTACHARJEE,
        "numeric, and levels by their scores",
        "every gradient",
        noleaks.CurateScoreSettings,
        noleaks.accounting,
        noleaks.check,
        ask=noleaks.ask,
        published=noleaks.CurateScorePublished,
        publish=noleaks.publish,
        flaw=noleaks.FLAW,
    ),
    Method(
        "curate",
        "PC with an optimised budget for each order",
        _BHATTACHARJEE,
        _COUNTED,
        "every question",
        curate.CurateSettings,
        curate.accounting,
        _check_counts,
        ask=curate.ask,
        published=curate.CuratePublished,
        publish=curate.publish,
        flaw=curate.FLAW,
    ),
    Method(
        "pcd",
        "PC by kernel tests of regression residuals",
        _ZHANG,
        "numeric, and levels by their scores",
        "every question",
        pcd.PcdSettings,
        pcd.accounting,
        pcd.check,
        ask=pcd.ask,
        published=pcd.PcdPublished,
        publish=pcd.publish,
        flaw=pcd.FLAW,
    ),
)

METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}
"""Every method of dagveil itself, by name."""

GROUP = "dagveil.methods"
"""Entry point group by which other packages add methods: each entry is a `Method`, under its own name."""


def method_plugins() -> Plugins[Method]:
    """Return the methods of other packages; their guarantees are those packages' own."""
    return read_plugins(GROUP, _check_plugin)


def method_named(name: str) -> Method:
    """Return a method of dagveil or of a plug-in, or say which there are.

    Examples
    --------
    >>> method_named("measure").cost
    'one to three releases'
    """
    if name in METHODS:
        return METHODS[name]
    plugins = method_plugins()
    if name not in plugins:
        raise MethodError(f"no method is called {name!r}; choose one of {', '.join((*METHODS, *plugins.names))}")
    return plugins.load(name)


def method_origin(name: str) -> str | None:
    """Return the package and version that bring a method; None if dagveil does.

    Examples
    --------
    >>> method_origin("measure") is None
    True
    """
    if name in METHODS:
        return None  # looking for plug-ins reads a file of every installed package
    plugins = method_plugins()
    return plugins.origin(name) if name in plugins else None


def _check_plugin(name: str, found: object) -> Method:
    if not isinstance(found, Method):
        raise MethodError(f"it is of type {type(found).__name__}, not a dagveil.methods.catalogue.Method")
    if name in METHODS:
        raise MethodError("dagveil has a method of this name; choose another")
    if found.name != name:
        raise MethodError(f"the method calls itself {found.name!r}; name the entry point the same")
    if found.release is None and found.ask is None and found.publish is None:
        raise MethodError("it has none of release, ask and publish, so it cannot run")
    return found
