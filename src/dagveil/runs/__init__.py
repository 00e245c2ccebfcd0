"""From an order to a result: the run, its search, its result, and what it leaves on disk."""
