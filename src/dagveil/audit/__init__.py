"""The audit: attacks on every guarantee.

It searches for neighbours that move a statistic too far, replays runs on a neighbour with the answers frozen, and tries
to tell two neighbours apart from what many runs told.
"""
