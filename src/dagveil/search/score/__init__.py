"""Searches that score whole graphs: continuous optimisation with a smooth measure of cycles, and greedy moves."""
