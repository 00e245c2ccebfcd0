"""What a paper's own program does under the name of a method, and where it is looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Method, read_options
from dagveil.papers.access import PublishedAccess
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress

Publish = Callable[[PublishedAccess, Budget, Knowledge, Any, Progress], Asked]


@dataclass(frozen=True, slots=True)
class Publication:
    """One method as published.

    Parameters
    ----------
    settings
        Constants of the publication.
    publish
        Runs its program.
    flaw
        Why its guarantee does not hold.
    """

    settings: type[msgspec.Struct]
    publish: Publish
    flaw: str


PAPERS: Mapping[str, str] = {
    "measure-notears": "zheng2018",
    "em-pc": "xu2017",
    "lap-mech": "xu2017",
    "priv-pc-star": "xu2017",
    "svt-pc": "wang2020",
    "priv-pc": "wang2020",
    "sampled-gaussian-pc": "wang2020",
    "noleaks": "ma2022",
    "curate-score": "bhattacharjee2024",
    "curate": "bhattacharjee2024",
    "pcd": "zhang2023",
}
"""The file of this room that holds the publication of a method; it ends in its `PUBLICATIONS`."""


def publication_of(name: str) -> Publication | None:
    """Return the publication of a method; None for a method of our own or of a plug-in.

    Examples
    --------
    >>> publication_of("svt-pc").settings.__name__, publication_of("measure")
    ('SvtPcPublished', None)
    """
    if name not in PAPERS:
        return None
    publication: Publication = import_module(f"dagveil.papers.{PAPERS[name]}").PUBLICATIONS[name]
    return publication


def require_publication(method: Method) -> Publication:
    """Return the publication of a method, or say that there is none."""
    publication = publication_of(method.name)
    if publication is None:
        raise MethodError(f"{method.name} is not from a publication and has no paper calibration; leave it out")
    return publication


def settings_of(method: Method, calibration: Calibration) -> type[msgspec.Struct]:
    """Return the kind of settings that a calibration of a method takes, or say that there is none."""
    return method.settings if calibration is Calibration.SOUND else require_publication(method).settings


def read_settings(method: Method, calibration: Calibration, options: Mapping[str, Any] | None) -> msgspec.Struct:
    """Read the settings of a calibration from names and values, as `--set` gives them; unknown names are refused."""
    return read_options(settings_of(method, calibration), f"{method.name} ({calibration.value})", options)
