"""The float64 reference: what a model's outputs are when rounding is (almost) taken away."""

from bench.reference.evaluate import evaluate
from bench.reference.widen import widen

__all__ = ["evaluate", "widen"]
