"""The kinds of fusion. Each can be disabled, to measure what it is worth (`bench.ablation`)."""

from __future__ import annotations

from enum import Enum


class Technique(Enum):
    """A way in which operators share a kernel or vanish, in the order in which `bench.ablation` adds them."""

    EPILOGUE = "elementwise operators in the registers of the matmul or convolution before them"
    STITCHING = "memory-bound neighbours in one kernel"
    INTENSIVE = "several matmuls or convolutions in one kernel"
    REWRITES = "algebraic rewrites of the graph as it was imported"


ALL = frozenset(Technique)
