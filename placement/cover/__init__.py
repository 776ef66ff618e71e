"""Which backend runs which subgraph: the cheapest cover of the graph by candidates, and its refinement by evolution."""
