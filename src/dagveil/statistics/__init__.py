"""Exact statistics with their named sensitivities, one file each."""
