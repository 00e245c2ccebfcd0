"""Files that a command will write."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.errors import DataError


def check_writable(*paths: Path, option: str = "-o") -> None:
    """Find out, before any budget is spent, whether all these files can be written.

    Folders are made. Existing files keep their content, and no new ones stay behind.
    """
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not path.exists()
            with path.open("ab"):
                pass
            if is_new:
                path.unlink()
        except OSError as error:
            raise DataError(
                f"cannot write {path}: {error.strerror}; choose another place with {option}. Nothing was spent."
            ) from error


def keep_earlier(path: Path) -> None:
    """Move what an earlier run wrote aside: it was paid for."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    click.echo(f"kept the {path.stem} of an earlier run as {aside}", err=True)
