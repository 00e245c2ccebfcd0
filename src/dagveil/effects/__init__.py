"""What a graph and its evidence say about interventions: post-processing, without the rows."""
