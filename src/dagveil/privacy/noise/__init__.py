"""Noise sources: integer noise that follows its stated distribution exactly.

Every source offers the same draws and realises the same scales, so a result does not depend on which one drew it.
Only sources fed by the operating system are private; a seeded source says so wherever it goes.
"""
