"""Compute operators whose operands are all known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name, data_of
from fusion.constants import constant
from fusion.passes.numpy_operators import BROADCASTS, GENERATORS, MOVES, OPERATORS, Array
from fusion.passes.rebuild import rebuild_main
from fusion.shapes import known_extents
from fusion.system.memory import usable_memory
from fusion.tensors import as_numpy, numpy_dtype, tensor_bytes


@dataclass(frozen=True)
class FoldConstants:
    """`y = R.reshape(R.const(w), s)`  ->  `R.const(w.reshape(s))`, for the operators that rearrange or combine weights.

    Frontends fold what their formats can express; these are left by the rewriting of single operators. A tensor of one
    value everywhere stays, as kernels have it without memory; what is made of it is folded.

    Attributes:
        generators: Whether results of arange, full and broadcast_to are known too, and with them all that is computed
            of those, such as a causal mask.
    """

    generators: bool = True
    name: str = "fold_constants"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        known: dict[relax.Var, _Known] = {}
        left = min(_MOST_BYTES, usable_memory() // 4)

        def visit(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
            nonlocal left
            is_left_out = not self.generators and call_name(value) in GENERATORS
            folded = None if is_left_out else _fold(builder, value, known, left)
            if folded is None:
                return value
            if folded.value is not value:
                left -= _size_of(folded.value)
            made = builder.emit(folded.value if folded.is_kept else value, var.name)
            known[made] = folded
            return made

        return relax.transform.CanonicalizeBindings()(rebuild_main(mod, visit))


@dataclass(frozen=True)
class _Known:
    """The value of a variable.

    Attributes:
        is_kept: Whether it takes the place of what computes it.
        elements: How many the largest tensor has that the model gives of those it is made of.
    """

    value: GenericConst
    is_kept: bool
    elements: int

    @property
    def kept_elements(self) -> int:
        """Elements of a constant that takes the place of what computes it; 0 where none does."""
        return prod(map(int, self.value.value.shape)) if self.is_kept else 0


def _fold(
    builder: relax.BlockBuilder, value: relax.Expr, known: dict[relax.Var, _Known], left: int
) -> _Known | None:
    """Return the value of `value`, or None where it is not known, or has more than `left` bytes."""
    if isinstance(value, GenericConst):
        return _given(value)
    if call_name(value) == "shape_to_tensor":
        extents = _extents(builder, data_of(value))
        return None if extents is None else _given(extents)
    evaluate = OPERATORS.get(call_name(value))
    if evaluate is None:
        return None
    args = [arg for arg in value.args if not isinstance(arg, relax.ShapeExpr) and not _are_numbers(arg)]
    found = [known.get(arg) if isinstance(arg, relax.Var) else _given(arg) for arg in args]
    kept = _MOVED if call_name(value) in MOVES else _COMPUTED
    operands = [each for each in found if each is not None and str(each.value.ty.dtype.dtype) in kept]
    if len(operands) < len(found):
        return None
    arrays = [as_numpy(operand.value.value) for operand in operands]
    if not has_value(value, arrays):
        return None
    result = builder.normalize(value).ty
    shape, dtype = known_extents(result.shape), str(result.dtype.dtype)
    if shape is None or dtype not in _MOVED:  # axes that only the run knows, of a reshape
        return None
    elements = max((operand.elements for operand in operands), default=0)
    is_small = prod(shape) <= max(_LARGE, 4 * elements, *(operand.kept_elements for operand in operands))
    if (not is_small and prod(shape) > _MOST_MADE) or tensor_bytes(shape, dtype) > left:
        return None
    is_kept = call_name(value) not in BROADCASTS and (is_small or dtype == "bool")
    with np.errstate(all="ignore"):
        folded = evaluate(value, arrays)
    made = constant(folded.astype(numpy_dtype(dtype), copy=False).reshape(shape))
    return _Known(made, is_kept, elements)


def _given(value: relax.Expr) -> _Known | None:
    return _Known(value, True, prod(map(int, value.value.shape))) if _is_tensor(value) else None


INDEXING = ("take", "gather_elements")
"""Operators that read at positions which have to be inside an axis."""


def has_value(call: relax.Call, operands: Sequence[Array]) -> bool:
    """Return whether runs give a result: they fail where an integer is divided by zero or an index is outside."""
    if call_name(call) == "divide" and operands[1].dtype.kind in "iu":
        return bool(operands[1].all())
    if call_name(call) not in INDEXING or str(getattr(call.attrs, "mode", "fast")) != "fast":
        return True
    size = operands[0].size if call.attrs.axis is None else operands[0].shape[int(call.attrs.axis)]
    return bool(((operands[1] >= -size) & (operands[1] < size)).all())


_LARGE = 1 << 16
"""Elements of a result that broadcasting may make out of nothing; a larger one is computed by every run, but for masks
and what has no more elements than one, as the numbers that are added for it."""


_MOST_MADE = 1 << 20
"""The same of masks, which have a byte an element, and of what they are made of, as a causal one of distances. What is
computed of one grows no further."""


_MOST_BYTES = 4 << 30
"""Of all results together, each of which may have four times the elements that the model gives."""


def _size_of(value: GenericConst) -> int:
    return tensor_bytes(tuple(int(extent) for extent in value.value.shape), str(value.value.dtype))


def _extents(builder: relax.BlockBuilder, shape: relax.Expr) -> GenericConst | None:
    """Return the extents of a tensor whose shape is known, as `shape_to_tensor(shape_of(x))` does."""
    source = builder.lookup_binding(shape) if isinstance(shape, relax.Var) else shape
    if call_name(source) == "shape_of":
        source = data_of(source).ty.shape
    extents = known_extents(source)
    return None if extents is None else constant(np.array(extents, "int64"))


def _are_numbers(arg: relax.Expr) -> bool:
    """Return whether an argument is a known number, as the first one of a range is, or a tuple of known integers, as
    the ends of a slice are."""
    if isinstance(arg, relax.Tuple):
        return all(isinstance(item, tvm.tirx.IntImm) for item in arg.fields)
    return isinstance(arg, (tvm.tirx.IntImm, tvm.tirx.FloatImm))


def _is_tensor(value: relax.Expr) -> bool:
    return isinstance(value, GenericConst) and isinstance(value.value, tvm.runtime.Tensor)


_COMPUTED = {
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
"""What NumPy computes in; float8 and int4 are left alone."""


_MOVED = _COMPUTED | {"bfloat16"}
"""What is moved and cast: as a bias of bfloat16 is widened for sums."""
