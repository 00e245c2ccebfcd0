"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def write_table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Write a table in Markdown.

    >>> print(write_table(("method", "F1"), [("measure", 0.9)]))
    | method | F1 |
    |---|---|
    | measure | 0.9 |
    """
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])
