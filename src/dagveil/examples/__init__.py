"""Known networks and simulated tables: public rows whose true graph is known."""
