"""The privacy core: budgets, events, filters, noise, mechanisms, the ledger and the receipt.

Nothing in this room knows what the numbers mean: it charges events against a budget, draws exact noise and keeps the
books. A privacy reviewer reads this room first. Import from its modules.
"""
