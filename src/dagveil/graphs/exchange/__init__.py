"""Graphs to and from other programs: as objects of their packages, and as text in their formats."""
