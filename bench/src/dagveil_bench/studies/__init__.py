"""Studies that are data: a plan in TOML, a crew that runs it, a store that keeps every run, tables and figures.

Import from the modules.
"""
