"""Softmax, normalisations and what stands around them: the lanes of a warp share a row, which they read once."""
