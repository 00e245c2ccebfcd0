"""Options that several commands share, and a run on rows as they order it."""

import enum
import shlex
from collections.abc import Callable, Container
from dataclasses import dataclass, fields
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from sqlalchemy.engine import make_url

from dagveil.cli.failure import INTERRUPT
from dagveil.cli.output import check_writable, print_recovery
from dagveil.data.engine import DatabaseTable, Engine, Rows, choose_engine
from dagveil.data.schema import Schema, load_schema
from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.ledger.account import Account, describe_left
from dagveil.privacy.ledger.ledger import WAIT_SECONDS, Ledger, WatchedLedger
from dagveil.privacy.noise.kind import DEFAULT_NOISE
from dagveil.privacy.receipt import Calibration
from dagveil.runs.run import LEDGER_VARIABLE, check_reviewed, default_ledger, open_private
from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings
from dagveil.text import clean_text

LEDGER_WAIT_SECONDS = WAIT_SECONDS

Command = TypeVar("Command", bound=Callable[..., Any])


VALUES: Final = {"P": float, "SHARE": float, "INTEGER": int}  # types by what stands for a value; others are texts


def option(usage: str, text: str, **more: Any) -> Callable[[Any], Any]:
    """Return an option with its help.

    The usage has the parameter's name if it is not the flag's, the flags, and what stands for the value, as in
    `path -o --output FILE`; without a value it is a flag that is given or not. `more` goes to click as it is.
    """
    words = usage.split()
    declared = [word for word in words if word.startswith("-") or (word.isidentifier() and word.islower())]
    value = " ".join(words[len(declared) :])
    own = {"type": VALUES[value]} if value in VALUES else {"is_flag": True} if not value and not more else {}
    return click.option(*declared, metavar=value or None, help=text, **{**own, **more})


def option_group(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return what adds these options to a command, in this order."""
    return lambda command: reduce(lambda built, add: add(built), reversed(options), command)


def choice_option(
    flag: str, default: enum.Enum | type[enum.Enum], text: str, *left_out: enum.Enum
) -> Callable[[Command], Command]:
    """Return an option whose choices are those of an enumeration; the bare class stands for no default."""
    kind, value = (default, None) if isinstance(default, type) else (type(default), default.value)
    choices = [member.value for member in kind if member not in left_out]
    return click.option(flag, type=click.Choice(choices), default=value, help=text)


ledger_option = option(
    "--ledger PATH|URL",
    "Where spending is recorded: an SQLite file, or a postgresql:// URL for teams. "
    f"[default: ${LEDGER_VARIABLE}, or else dagveil/ledger.sqlite in your data folder]",
    envvar=LEDGER_VARIABLE,
    default=default_ledger,
    show_default=False,
)

# of a run that spends budget
run_options = option_group(
    option(
        "schema_path --schema SCHEMA.toml",
        "Levels, bounds and other public facts; `dagveil schema draft` writes a first one. Needed for rows.",
    ),
    option("--epsilon NUMBER", "Privacy budget of this run, for example 1. Needed for rows."),
    option(
        "--delta NUMBER",
        "Probability with which the epsilon bound may fail; greater than 0 and much smaller than 1/rows.",
        default="1e-6",
    ),
    ledger_option,
    choice_option(
        "--noise",
        DEFAULT_NOISE,
        "Where noise comes from: our own exact sampler, OpenDP's (slower), or a seed (for tests only, never private).",
    ),
    option("--seed INTEGER", "The seed; only with --noise seeded.", type=click.IntRange(0)),
    choice_option(
        "--engine",
        Engine.AUTO,
        "Where rows are held and counted: in memory, or where they are, by DuckDB or Spark; answers are the same. "
        "`auto` uses memory for small files.",
    ),
    option("--memory-limit SIZE", "For DuckDB, such as 8GB.  [default: half of what is free]"),
    option("--table NAME", "Table of the database or cluster that FILE names (or, on Spark, a path)."),
    option("--accept-draft", "Use an unreviewed schema as it is; the receipt will say so."),
    option(
        "--accept-no-guarantee",
        "Let a run as published or with seeded noise touch a data set that has a lifetime budget; the ledger "
        "records the run as unbounded.",
    ),
)
settings_option = option(
    "options --set NAME=VALUE",
    "A setting of the method; `dagveil methods NAME` lists them. May be given several times.",
    multiple=True,
)
# they choose and set a method that releases evidence
releasing_options = option_group(
    option(
        "--method NAME",
        "How the graph is found; `dagveil methods` lists the names. auto: a trial on synthetic tables chooses.",
        default="measure",
    ),
    settings_option,
)
# they choose and set a method
method_options = option_group(
    releasing_options,
    choice_option(
        "--calibration",
        Calibration.SOUND,
        "With a guarantee that holds (sound), as the paper prints it, or as its authors' program has it: the last "
        "two claim nothing. None is for `pc`, which adds no noise.",
    ),
)
SEARCH_NAMES = tuple(field.name for field in fields(SearchSettings))

# what has no meaning for a search over evidence
RUN_NAMES = (
    *("schema_path", "epsilon", "delta", "ledger", "noise", "seed", "engine", "memory_limit", "table"),
    *("accept_draft", "accept_no_guarantee", "method", "calibration", "options"),
)
# of a search whose strategy is chosen otherwise; they cost nothing
level_options = option_group(
    option(
        "--marginal-level P",
        "Keep a pair of columns at first if its p-value is below this.  [default: by kind of evidence]",
    ),
    option(
        "--conditional-level P",
        "Columns separate a pair if its p-value given them is above this.  [default: by kind of evidence]",
    ),
    option("--largest-order INTEGER", "Maximum size of the conditioning set (0 to 5).  [default: by kind of evidence]"),
    choice_option("--arrows", ArrowRule.EVIDENCE, "How arrows are found."),
    option(
        "--false-edges NUMBER",
        "How many edges may appear on average if nothing depended on anything.",
        default=SearchSettings().false_edges,
    ),
    option(
        "--redraws INTEGER",
        "How often noise is drawn again, at no cost, for the confidence of edges; 0 leaves it out.",
        default=SearchSettings().redraws,
    ),
    option(
        "knowledge_path --knowledge FILE.toml",
        "Background knowledge (tiers, forbidden, required) in place of the schema's.",
    ),
)
search_options = option_group(
    choice_option(
        "--search",
        SearchRule,
        "Search strategy: independence tests (PC), a noise-aware score (GES), NOTEARS, for moments only, or auto: "
        "tests, and the score where they are in doubt.  [default: by method]",
    ),
    option(
        "--hidden-causes",
        "Allow for causes that were not measured: the graph is a PAG, with circles where the evidence does not tell.",
    ),
    option("--selection-bias", "Allow also for rows that were selected by what is studied; only with --hidden-causes."),
    option(
        "--edges-at P", "Draw the edges with at least this probability.  [default: those that 80 % of the redraws have]"
    ),
    level_options,
)


def list_given(context: click.Context, names: Container[str]) -> list[str]:
    """List those of these options that were given on the command line."""
    return [
        one.opts[0]
        for one in context.command.params
        if one.name in names and context.get_parameter_source(one.name) is ParameterSource.COMMANDLINE
    ]


def refuse_given(context: click.Context, names: Container[str], why: str) -> None:
    """Refuse options that have no meaning here, rather than ignore them; braces in the reason stand for them."""
    if given := list_given(context, names):
        raise click.UsageError(why.format(", ".join(given)), context)


def read_options(options: tuple[str, ...]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a list is written with commas, one of a single value with a comma at its end."""
    read: dict[str, Any] = {}
    for given in options:
        name, mark, value = given.partition("=")
        if not mark or not name.strip():
            raise click.UsageError(f"--set takes NAME=VALUE, for example --set level=0.05; got {given!r}")
        read[name.strip().replace("-", "_")] = read_list(value) if "," in value else value.strip()
    return read


def read_list(text: str) -> list[str]:
    """Read a list that is written with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def split_names(words: tuple[str, ...], columns: Container[str]) -> list[str]:
    """Split lists of names at commas; a word that is itself a column stays whole."""
    return [name for word in words for name in ([word] if word in columns else map(str.strip, word.split(",")))]


def search_settings(chosen: dict[str, Any]) -> SearchSettings:
    """Take the options of the search out of all that were chosen."""
    given = {name: chosen.pop(name) for name in SEARCH_NAMES if name in chosen}
    rule = None if given.get("search") is None else SearchRule(given["search"])
    return SearchSettings(**given | {"arrows": ArrowRule(given["arrows"]), "search": rule})


def require_schema(path: str | None) -> Schema:
    """Load the schema, or say how to get one."""
    if path is None:
        raise click.UsageError(
            "a run on rows needs --schema SCHEMA.toml; `dagveil schema draft FILE -o schema.toml` writes a first one"
        )
    return load_schema(path)


def name_ledger(place: str) -> str:
    """Return the ledger's place as it may be shown: without a password."""
    return make_url(place).render_as_string(hide_password=True) if "://" in place else place


def open_ledger(place: str) -> Ledger:
    """Open the ledger; a new one is for its owner alone."""
    return open_private(place, LEDGER_WAIT_SECONDS)


def describe(account: Account) -> str:
    """Say what is spent, reserved and left."""
    words, reserved = [account.words], account.spending.reserved
    if reserved.epsilon:
        words.append(
            f"reserved by open runs epsilon {round_up(reserved.epsilon, 4)}, delta {round_up(reserved.delta, 4)}"
        )
    if account.lifetime is None:
        words.append(f"`dagveil budget set {shlex.quote(account.dataset)} --epsilon NUMBER` sets one")
    else:
        words.append(describe_left(account.lifetime, account.spending))
    # analysts name data sets, and whoever keeps the ledger reads this on a terminal
    return clean_text("; ".join(words))


def describe_shares(account: Account) -> str:
    """Say what each analyst has spent and has left, a line each; nothing if one person spends without a limit."""
    if len(account.shares) < 2 and all(share.limit is None for share in account.shares):
        return ""
    return "".join(f"  {clean_text(share.words)}\n" for share in account.shares)


@dataclass(frozen=True, slots=True)
class Order:
    """The options of a run on rows, checked."""

    rows: Rows
    schema: Schema
    budget: Budget
    books: Ledger
    place: str
    options: dict[str, Any]  # what every run takes: `RunOptions`

    def print_account(self) -> None:
        """Say what the data set has spent; a ledger that cannot be read now is no failure of a run."""
        try:
            told = describe(self.books.account(self.schema.dataset))
        except LedgerError:
            told = "the account cannot be read just now; `dagveil budget show` tells it later"
        click.echo(f"ledger {name_ledger(self.place)}: {told}", err=True)


def read_order(
    file: str,
    outputs: tuple[Path, ...],
    recovery: Path,
    run: dict[str, Any],
    *,
    reads: tuple[str | None, ...] = (),
    schema: Schema | None = None,
    budget: Budget | None = None,
) -> Order:
    """Refuse what can be refused before the ledger and the rows are opened.

    The recovery file keeps the answers until the outputs are written. A schema or a budget that is given stands in
    place of the one that the options name.
    """
    run = dict(run)
    path, epsilon, delta, place = (run.pop(name) for name in ("schema_path", "epsilon", "delta", "ledger"))
    if budget is None:
        if epsilon is None:
            raise click.UsageError("a run on rows needs --epsilon, for example --epsilon 1")
        budget = Budget.of(epsilon, delta)
    if schema is None:
        schema = require_schema(path)
        check_reviewed(schema, accept_draft=run["accept_draft"])
    check_writable(*outputs, recovery, reads=(file, path, *reads), ledger=place)
    print_recovery(recovery, goes_on=True)
    source = file if (table := run.pop("table")) is None else DatabaseTable(file, table)
    rows = choose_engine(source, run.pop("engine"), run.pop("memory_limit"))  # nothing is read yet
    # no signal cuts through the ledger's steps, and a swallowed one is heard at the next
    books = WatchedLedger(open_ledger(place), INTERRUPT, INTERRUPT.note_run)
    return Order(rows, schema, budget, books, place, {**run, "ledger": books, "recovery": recovery})
