"""Programs of others that ours are measured beside."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dagveil.errors import MissingExtraError


def import_peer(module: str, extra: str = "peers") -> Any:
    """Return a module of a package that an extra of ours brings."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_peer(module.partition(".")[0], extra) from error


def missing_peer(package: str, extra: str = "peers") -> MissingExtraError:
    """Return an error that says how to install a package."""
    return MissingExtraError(
        f"this needs the package {package!r}, which is not installed; install all that it needs with: "
        f"pip install './bench[{extra}]'"
    )


@contextmanager
def keep_quiet() -> Iterator[None]:
    """Let a peer neither log nor warn."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
