"""Published networks, simulated tables and the suites that measure every method on them."""
