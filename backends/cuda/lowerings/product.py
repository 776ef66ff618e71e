"""What lowerings of products share: which calls they take, sums in float32, and their rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax, te, tirx

from backends.tensorir.emit import Expr
from fusion.declined import Declined
from fusion.shapes import is_static
from partition.access import ANCHOR

_PRODUCT = "product"
"""The kind of these anchors, but for matmuls, of which chains are made."""
_DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class ProductLowering:
    """A `Lowering`."""

    name: str
    write: Callable[[relax.BlockBuilder, relax.Call], relax.Expr]

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return True: there is one form of each operator."""
        return True

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return `call` as an anchor.

        Raises:
            Declined: Its sizes are not known, or it multiplies other numbers than two of one type.
        """
        if not all(is_static(part) for part in (call, *call.args)):
            raise Declined("only the run knows a shape of it")
        if reason := why_not_multiplied(call):
            raise Declined(reason)
        return self.write(builder, call)


def why_not_multiplied(call: relax.Call) -> str:
    """Return why the dtypes of a product's operands have no anchor; "" where they have one."""
    left, right = (str(operand.ty.dtype.dtype) for operand in call.args)
    return "" if left == right and left in _DTYPES else f"it multiplies {left} and {right}"


def at_broadcast(shape: Sequence[Expr], at: Sequence[Expr]) -> list[Expr]:
    """Return where a tensor is read that is broadcast."""
    extents = [int(extent) for extent in shape]
    own = at[len(at) - len(extents) :]
    return [index if extent != 1 else tirx.const(0, "int64") for extent, index in zip(extents, own, strict=True)]


def sum_of_products(left: Expr, right: Expr, axes: list[tirx.IterVar]) -> Expr:
    """Return the sum of products of two elements over `axes`, in float32."""
    wide = [factor if str(factor.ty.dtype) == "float32" else factor.astype("float32") for factor in (left, right)]
    return te.sum(wide[0] * wide[1], axis=axes)


def anchor(shape: tuple[Expr, ...], value: Callable[..., Expr], name: str, kind: str = _PRODUCT) -> te.Tensor:
    """Return the tensor of these sums, marked as an anchor."""
    return te.compute(shape, value, name=name, attrs={ANCHOR: kind})


def rounded(sums: te.Tensor, dtype: str) -> te.Tensor:
    """Return sums as `dtype`: themselves where they are of it."""
    if sums.dtype == dtype:
        return sums
    return te.compute(sums.shape, lambda *at: sums(*at).astype(dtype), name="rounded")
