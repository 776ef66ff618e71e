"""A model for all sizes of the dimensions it leaves open: what its static forms have in common, with symbols."""
