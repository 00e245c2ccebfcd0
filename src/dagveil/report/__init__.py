"""The report: one HTML page, or one SVG drawing, computed from a result and from nothing else.

A report never sees a row. It is a pure function of result.json, so it costs no budget and can be written again at any
time.
"""
