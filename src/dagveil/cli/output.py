"""Files that a command will write."""

from __future__ import annotations

from pathlib import Path

from dagveil.errors import DataError


def check_writable(*paths: Path) -> None:
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
                f"cannot write {path}: {error.strerror}; choose another place with -o. Nothing was spent."
            ) from error
