"""Studies that are data: a plan in TOML, workers that run it, a store that keeps every run, tables and figures.

Import from the modules.
"""
