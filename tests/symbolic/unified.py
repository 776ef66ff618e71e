"""A function with symbols of its forms at several sizes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from fusion.symbolic.fit import Fit
from fusion.symbolic.unify import FunctionText, unify


def unified(funcs: Sequence[tvm.ir.BaseFunc], fit: Fit) -> tvm.ir.BaseFunc:
    """Return what `funcs`, each made at one of the probes of `fit`, have in common."""
    return unify([FunctionText.of(func) for func in funcs], fit).function()
