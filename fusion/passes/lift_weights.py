"""Turns the constants of `main` into parameters, so that weights live outside the code and can be memory-mapped.

Scalars too: an argument costs 10 ns a call, and with none left the code has no constants, about each of which TVM
prints a warning when it loads a library, and `profile` can call every kernel by itself.

Before: `main(x)` with `R.add(x, metadata["ir.Constant"][0])`; after: `main(x, w0)` with `R.add(x, w0)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from fusion.tensors import byte_view, fills_bytes

_PREFIX_BYTES = 4096


@dataclass
class _Weights:
    """The constants found so far: equal ones share a parameter."""

    params: list[relax.Var] = field(default_factory=list)
    values: list[tvm.runtime.Tensor] = field(default_factory=list)
    seen: dict[tuple[str, tuple[int, ...], bytes], list[int]] = field(default_factory=dict)

    def param(self, value: tvm.runtime.Tensor) -> relax.Var:
        """Return the parameter that holds `value`."""
        data = byte_view(value)
        # Most weights differ in their first page; only those that do not are compared whole.
        candidates = self.seen.setdefault((str(value.dtype), tuple(value.shape), data[:_PREFIX_BYTES].tobytes()), [])
        for index in candidates:
            if np.array_equal(byte_view(self.values[index]), data):
                return self.params[index]
        candidates.append(len(self.params))
        self.params.append(relax.Var(f"w{len(self.params)}", relax.TensorType(value.shape, str(value.dtype))))
        self.values.append(value)
        return self.params[-1]


def lift_weights(mod: tvm.IRModule) -> tuple[tvm.IRModule, tuple[tvm.runtime.Tensor, ...]]:
    """Return `mod` with every constant of `main` as a parameter after the inputs, and their values."""
    weights = _Weights()
    main = mod["main"]
    body = _ReplaceConstants(weights).visit_expr(main.body)
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    lifted = relax.Function([*main.params, *weights.params], body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), lifted)
    return result, tuple(weights.values)


@mutator
class _ReplaceConstants(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(self, weights: _Weights) -> None:
        super().__init__()
        self.weights = weights

    def visit_generic_const_(self, op: tvm.ir.GenericConst) -> relax.Expr:
        """Replace one constant."""
        value = op.value
        if not isinstance(value, tvm.runtime.Tensor):
            return op
        # Packed types (int4) are not handed through NumPy and stay in the code.
        return self.weights.param(value) if fills_bytes(str(value.dtype)) else op
