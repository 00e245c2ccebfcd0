"""What a run would cost and show, before any row is read."""
