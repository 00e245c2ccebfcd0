"""Named methods: each wires curator, evidence and search together."""
