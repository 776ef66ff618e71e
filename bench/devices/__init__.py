"""Plans for a simulated server: every method, the exact optimum where it is known, and the bound."""
