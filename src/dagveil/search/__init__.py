"""Searches over evidence: post-processing, free and repeatable, never near a row."""
