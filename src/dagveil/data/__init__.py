"""Tables and what is publicly known about them. Nothing here is private: only the curator may hold an engine.

A schema declares the levels and bounds of every column. A source (file or frame) is read and encoded by that schema
alone, and an engine answers exact counts and sums.
"""
