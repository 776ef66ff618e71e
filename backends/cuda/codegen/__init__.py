"""CUDA C of kernels, and what the toolkit makes of it."""
