"""Studies, peers, load generators and test servers: what measures dagveil, and is not part of it."""
