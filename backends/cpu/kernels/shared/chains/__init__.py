"""Kernels of several anchors: how they are read, what one leaves for the next, and what they save."""
