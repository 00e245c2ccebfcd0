"""Mechanisms with exact probabilities; each charges before it draws. Import from its modules."""
