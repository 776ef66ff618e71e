"""What converters get of a node of torch's graph: its operands by the names of the operator's schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from tvm import relax
from tvm.ir import GenericConst

from fusion.constants import constant
from fusion.tensors import as_numpy

HALVES = ("float16", "bfloat16")

Converter = Callable[[fx.Node, Any], Any]
"""Takes a node of torch's graph and TVM's importer; returns what the importer has for the node."""


def operands(node: fx.Node, importer: Any) -> dict[str, Any]:
    """Return the operands of `node`, defaults included, tensors as the importer has them."""
    schema = node.target._schema.arguments
    given = dict(zip((argument.name for argument in schema), importer.retrieve_args(node), strict=False))
    keywords = {name: importer._retrieve_args(value) for name, value in node.kwargs.items()}
    defaults = {argument.name: argument.default_value for argument in schema}
    return {**defaults, **given, **keywords}


def cast(emit: Callable[[relax.Expr], relax.Expr], value: relax.Expr, dtype: str) -> relax.Expr:
    """Return a value in another dtype; constants stay constants, which kernels pack."""
    if str(value.ty.dtype) == dtype:
        return value
    if isinstance(value, GenericConst):
        return constant(as_numpy(value.value).astype(dtype))
    return emit(relax.op.astype(value, dtype))


def spread(values: Sequence[int], axes: int) -> list[int]:
    """Return the number of each of so many axes, of which torch gives one for all or one each."""
    return list(values) * axes if len(values) == 1 else list(values)
