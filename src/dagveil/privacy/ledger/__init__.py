"""The ledger: what every data set has spent, on disk, before any noise is drawn.

Runs reserve their whole budget before they start and record each event before its noise. The history's entries are
chained by digests and only ever added; totals are recomputed from it. PostgreSQL adds roles, MemoryLedger forgets.
"""

from dagveil.privacy.ledger.account import Account, RunRecord, RunState
from dagveil.privacy.ledger.ledger import Ledger, LedgerRun, MemoryLedger

__all__ = ["Account", "Ledger", "LedgerRun", "MemoryLedger", "RunRecord", "RunState"]
