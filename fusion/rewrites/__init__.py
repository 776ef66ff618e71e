"""Algebraic rewrites: a table of rules, and the pass that applies those that pay."""

from fusion.rewrites.rewrite import Log, Rewrite
from fusion.rewrites.table import RULES

__all__ = ["RULES", "Log", "Rewrite"]
