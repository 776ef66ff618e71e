"""Sums of products of two tensors, on tensor cores or in float32: matmuls, batches, and convolutions as such."""
