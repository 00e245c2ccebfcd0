"""Plans of a measurement that several custodians follow: the file, its making, a site's run, and the sum."""
