"""Tables and what is publicly known about them.

A schema declares the levels and bounds of every column. A source (file or frame) is read and encoded by that schema
alone, and an engine answers exact counts and sums. Nothing in this room is private: every answer of an engine is exact,
and only the curator may hold one.
"""
