"""Turns the constants of `main` into parameters, so that weights live outside the code and can be memory-mapped.

Scalars too: an argument costs 10 ns a call, and with none left the code has no constants, about each of which TVM
prints a warning when it loads a library, and `profile` can call every kernel by itself.

Before: `main(x)` with `R.add(x, metadata["ir.Constant"][0])`; after: `main(x, w0)` with `R.add(x, w0)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from fusion.tensors import byte_view, fills_bytes

_PREFIX_BYTES = 4096


@dataclass
class _Weights:
    """The constants found so far.

    Attributes:
        values: The different ones.
        places: Which of these stands at each place where one is read, in order.
    """

    values: list[tvm.runtime.Tensor] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    seen: dict[tuple[str, tuple[int, ...], bytes], list[int]] = field(default_factory=dict)

    def add(self, value: tvm.runtime.Tensor) -> None:
        """Take in the constant at the next place."""
        self.places.append(self._number(value))

    def _number(self, value: tvm.runtime.Tensor) -> int:
        data = byte_view(value)
        # Most weights differ in their first page; only those that do not are compared whole.
        candidates = self.seen.setdefault((str(value.dtype), tuple(value.shape), data[:_PREFIX_BYTES].tobytes()), [])
        for index in candidates:
            if np.array_equal(byte_view(self.values[index]), data):
                return index
        candidates.append(len(self.values))
        self.values.append(value)
        return candidates[-1]


Lifted = tuple[tvm.IRModule, tuple[tvm.runtime.Tensor, ...]]
"""A module without constants, and what they were."""


def lift_weights(mod: tvm.IRModule) -> Lifted:
    """Return `mod` with every constant of `main` as a parameter after the inputs, and their values; equal ones share a
    parameter."""
    return _lifted(mod, _find(mod).places)


def lift_weights_alike(mods: Sequence[tvm.IRModule]) -> list[Lifted]:
    """Return `mods`, forms of one model at several sizes, as `lift_weights` does, but that constants share a parameter
    where they are equal in all of them: positions in a height of 86 are those in twice the half of it, not so at 85."""
    places = [_find(mod).places for mod in mods]
    if len(set(map(len, places))) > 1:
        return list(map(lift_weights, mods))
    numbers = dict[tuple[int, ...], int]()
    alike = [numbers.setdefault(key, len(numbers)) for key in zip(*places, strict=True)]
    return [_lifted(mod, alike) for mod in mods]


def _find(mod: tvm.IRModule) -> _Weights:
    weights = _Weights()

    def keep(constant: tvm.ir.GenericConst) -> relax.Expr:
        weights.add(constant.value)
        return constant

    _ReplaceConstants(keep).visit_expr(mod["main"].body)
    return weights


def _lifted(mod: tvm.IRModule, places: Sequence[int]) -> Lifted:
    """Return `mod` with a parameter for each number in `places`, which begin with 0 and have no gaps, in the place of
    the constants there."""
    main, left = mod["main"], iter(places)
    params, values = list[relax.Var](), list[tvm.runtime.Tensor]()

    def param(constant: tvm.ir.GenericConst) -> relax.Expr:
        number, value = next(left), constant.value
        if number == len(params):
            params.append(relax.Var(f"w{number}", relax.TensorType(value.shape, str(value.dtype))))
            values.append(value)
        return params[number]

    body = _ReplaceConstants(param).visit_expr(main.body)
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    lifted = relax.Function([*main.params, *params], body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), lifted)
    return result, tuple(values)


@mutator
class _ReplaceConstants(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(self, replaced: Callable[[tvm.ir.GenericConst], relax.Expr]) -> None:
        super().__init__()
        self.replaced = replaced

    def visit_generic_const_(self, op: tvm.ir.GenericConst) -> relax.Expr:
        """Replace one constant."""
        value = op.value
        # Packed types (int4) are not handed through NumPy and stay in the code.
        is_lifted = isinstance(value, tvm.runtime.Tensor) and fills_bytes(str(value.dtype))
        return self.replaced(op) if is_lifted else op
