"""Text that is safe to print and to draw: without control characters, and read in the order in which it is written."""

import html
import unicodedata
from collections.abc import Iterable
from typing import Final

# Overrides and isolates can make a name read as another one, so they are shown instead of obeyed.
_TURNING: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean_text(text: str) -> str:
    r"""Replace characters that XML forbids or that turn the reading direction.

    Examples
    --------
    >>> clean_text("two\nlines\x00")
    'two lines�'
    """
    return "".join(_clean(character) for character in text)


def clean_lines(text: str) -> str:
    r"""Clean every line of a text, and keep the lines.

    Examples
    --------
    >>> clean_lines("one\n\x1b[2Jtwo\n")
    'one\n�[2Jtwo\n'
    """
    return "\n".join(clean_text(line) for line in text.split("\n"))


def write_html_table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a table for a notebook; every text is cleaned and escaped, and numbers are rounded."""
    lines = ["".join(f"<th>{_escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{_escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def write_html_lines(lines: Iterable[str]) -> str:
    """Write sentences for a notebook, one below the other."""
    return "".join(f'<p style="max-width: 60em">{_escape(line)}</p>' for line in lines)


def _escape(cell: object) -> str:
    return html.escape(clean_text("" if cell is None else f"{cell:.5g}" if isinstance(cell, float) else str(cell)))


def _clean(character: str) -> str:
    if character in "\t\n\r\u2028\u2029":
        return " "
    code = ord(character)
    category = unicodedata.category(character)
    if category in ("Cc", "Cs") or character in _TURNING or code & 0xFFFE == 0xFFFE:
        return "\ufffd"
    return character
