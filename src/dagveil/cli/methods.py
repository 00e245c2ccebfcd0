"""`dagveil methods`."""

import enum
import inspect
import re

import click
import msgspec
from rich.table import Table

from dagveil.cli.output import open_console, say
from dagveil.methods.method import EXACT_NAMES, METHODS, Method, method_named, method_plugins
from dagveil.papers.publication import readings_of
from dagveil.text import clean_text


@click.command()
@click.argument("name", required=False)
def methods(name: str | None) -> None:
    """List all methods, or describe one in detail."""
    if name is not None:
        _describe(method_named(name))
        return
    table = Table("method", "what it does", "data", "spends on", "calibrations", show_edge=False)
    plugins = method_plugins()
    added, broken = plugins.load_all()
    for method in (*METHODS.values(), *map(method_named, EXACT_NAMES), *added.values()):
        sound = () if method.name in EXACT_NAMES else ("sound",)
        calibrations = ", ".join((*sound, *(reading.value for reading in readings_of(method.name))))
        table.add_row(method.name, method.title, method.data, method.cost, calibrations)
    open_console().print(table)
    for name in added:
        say("", f"{name} comes from {plugins.origin(name)}: what it promises is that package's word, not ours.")
    for reason in broken.values():
        click.echo(clean_text(f"Warning: {reason}."), err=True)
    say(
        "",
        "Every method is sound by default: epsilon and delta are fixed before the run and hold. "
        "`dagveil methods NAME` lists settings and papers.",
    )


def _describe(method: Method) -> None:
    say(f"{method.name}: {method.title}", f"data: {method.data}", f"spends on: {method.cost}")
    if method.name in METHODS:
        say("guarantee: (epsilon, delta) as given, fixed before the run, enforced before every draw")
    elif method.name in EXACT_NAMES:
        say("guarantee: none; refused on data with a lifetime budget unless the schema calls it public")
    else:
        say(f"guarantee: that of {method_plugins().origin(method.name)}, which brings this method; not ours")
    if method.paper is not None:
        say(f"paper: {method.paper}")
    kinds = [("settings", method.settings)]
    for calibration, reading in readings_of(method.name).items():
        say(f"--calibration {calibration.value} claims nothing here, because {reading.flaw}")
        kinds.append((f"settings of --calibration {calibration.value}", reading.settings))
    for title, kind in kinds:
        if kind.__struct_fields__:
            say("", f"{title}:")
            meanings = _meanings(kind)
            for field in msgspec.structs.fields(kind):
                value = _shown(field.default)
                say(f"  {field.name} (default {value}): {meanings.get(field.name, '')}")


def _shown(value: object) -> str:
    if value is None:
        return "by rule"
    if isinstance(value, enum.Enum):
        return f"{value.value} of {', '.join(member.value for member in type(value))}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Read what settings mean from the docstrings of their class and of those that it extends."""
    meanings: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        # a list, "- `name`: meaning", or a section of numpydoc
        pattern = r"^(?:- `)?(\w+)(?:`: |\n    )(.*(?:\n  .*)*)"
        found = re.findall(pattern, inspect.cleandoc(part.__doc__ or ""), flags=re.MULTILINE)
        meanings |= {name: " ".join(text.split()) for name, text in found}
    return meanings
