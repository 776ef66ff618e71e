"""Which device runs which part of a model: costs, plans, bounds, and the methods that find plans."""
