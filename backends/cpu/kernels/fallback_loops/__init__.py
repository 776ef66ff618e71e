"""Plain loops for what no other family takes."""
