"""Graphs over named columns: DAGs, CPDAGs, mixed graphs, Meek's rules, knowledge and exchange.

No file in this room has heard of data or of privacy. Import from the modules.
"""
