"""Studies that are data: a plan in TOML, a workers that runs it, a store that keeps every run, tables and figures.

Import from the modules.
"""
