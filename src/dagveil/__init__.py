"""Causal graph discovery from sensitive tables, under differential privacy."""
