"""The account of a data set in words."""

from __future__ import annotations

import shlex

import click

from dagveil.cli.options import name_ledger
from dagveil.errors import LedgerError
from dagveil.privacy.budget import round_up
from dagveil.privacy.ledger.account import Account, tell_left
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.text import clean_text


def describe(account: Account) -> str:
    """Say what is spent, reserved and left.

    Examples
    --------
    >>> from dagveil.privacy.budget import Budget
    >>> from dagveil.privacy.ledger.composition import Allowance, Composition
    >>> describe(Account("visits", Allowance.of(Budget.of(3, 1e-5), Composition.SUM)))
    'visits: spent epsilon 0, delta 0 in 0 runs; lifetime epsilon 3, delta 1e-5; left epsilon 3, delta 1e-5'
    """
    words = [account.words]
    if account.reserved_epsilon:
        words.append(
            f"reserved by open runs epsilon {round_up(account.reserved_epsilon, 4)}, "
            f"delta {round_up(account.reserved_delta, 4)}"
        )
    if account.lifetime is None:
        words.append(f"`dagveil budget set {shlex.quote(account.dataset)} --epsilon NUMBER` sets one")
    else:
        words.append(tell_left(account.lifetime, account.spending))
    # analysts name data sets, and whoever keeps the ledger reads this on a terminal
    return clean_text("; ".join(words))


def tell_account(books: Ledger, place: str, dataset: str) -> None:
    """Say on the error stream what a data set has spent; a ledger that cannot be read now is no failure of a run."""
    try:
        told = describe(books.account(dataset))
    except LedgerError:
        told = "the account cannot be read just now; `dagveil budget show` tells it later"
    click.echo(f"ledger {name_ledger(place)}: {told}", err=True)


def describe_shares(account: Account) -> str:
    """Say what each analyst has spent and has left, a line each; nothing if one person spends without a limit.

    Examples
    --------
    >>> from dagveil.privacy.budget import Budget
    >>> from dagveil.privacy.ledger.account import Share, Spending
    >>> from dagveil.privacy.ledger.composition import Allowance, Composition
    >>> share = Share("ann", Allowance.of(Budget.of(1, 0), Composition.SUM), Spending())
    >>> print(describe_shares(Account("visits", shares=(share,))), end="")
      ann: spent epsilon 0, delta 0 in 0 runs; limit epsilon 1, delta 0; left epsilon 1, delta 0
    """
    if len(account.shares) < 2 and all(share.limit is None for share in account.shares):
        return ""
    return "".join(f"  {clean_text(share.words)}\n" for share in account.shares)
