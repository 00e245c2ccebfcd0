"""The account of a data set in words."""

from __future__ import annotations

import shlex

from dagveil.privacy.budget import round_down, round_up
from dagveil.privacy.ledger.account import Account
from dagveil.report.labels import clean_text


def describe(account: Account) -> str:
    """Say what is spent, reserved and left.

    Examples
    --------
    >>> from dagveil.privacy.budget import Budget
    >>> from dagveil.privacy.ledger.account import Spending
    >>> describe(Account("visits", Budget.of(3, 1e-5), Spending(), unbounded=False))
    'visits: spent epsilon 0, delta 0 in 0 runs; lifetime epsilon 3, delta 1e-5; left epsilon 3, delta 1e-5'
    """
    words = [account.words]
    if account.reserved_epsilon:
        words.append(
            f"reserved by open runs epsilon {round_up(account.reserved_epsilon, 4)}, "
            f"delta {round_up(account.reserved_delta, 4)}"
        )
    if account.remaining_epsilon is None or account.remaining_delta is None:
        words.append(f"`dagveil budget set {shlex.quote(account.dataset)} --epsilon NUMBER` sets one")
    else:
        words.append(
            f"left epsilon {round_down(account.remaining_epsilon, 4)}, delta {round_down(account.remaining_delta, 4)}"
        )
    # analysts name data sets, and whoever keeps the ledger reads this on a terminal
    return clean_text("; ".join(words))


def describe_shares(account: Account) -> str:
    """Say what each analyst has spent and has left, a line each; nothing if one person spends without a limit.

    Examples
    --------
    >>> from dagveil.privacy.budget import Budget
    >>> from dagveil.privacy.ledger.account import Share, Spending
    >>> share = Share("ann", Budget.of(1, 0), Spending())
    >>> print(describe_shares(Account("visits", None, Spending(), unbounded=False, shares=(share,))), end="")
      ann: spent epsilon 0, delta 0 in 0 runs; limit epsilon 1, delta 0; left epsilon 1, delta 0
    """
    if len(account.shares) < 2 and all(share.limit is None for share in account.shares):
        return ""
    return "".join(f"  {clean_text(share.words)}\n" for share in account.shares)
