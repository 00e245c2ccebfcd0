"""The audit: attacks on every guarantee.

It searches for neighbours that move a statistic too far, replays runs on a neighbour with the answers frozen, tries to
tell two neighbours apart from what many runs told, and tries to tell who was in a table. It tries published claims too.
"""
