"""Kernels some of whose extents only a call knows: int64 variables in the shapes of their parameters."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from fusion.structural import find, map_nodes


def symbols_of(func: tirx.PrimFunc) -> tuple[Var, ...]:
    """Return the variables in the shapes of the parameters of `func`, in the order in which they come."""
    dims = [dim for param in func.params if hasattr(param.ty, "shape") for dim in param.ty.shape]
    return tuple(dict.fromkeys(var for dim in dims for var in find(dim, Var)))


def bind(func: tirx.PrimFunc, sizes: Mapping[str, int]) -> tirx.PrimFunc:
    """Return `func` at these sizes of its symbols, by name: a kernel as it would be without symbols."""
    values = {var: tirx.const(sizes[var.name], var.ty.dtype) for var in symbols_of(func) if var.name in sizes}
    analyzer = Analyzer()
    numbers = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min, tirx.Cast)
    return map_nodes(func, (Var, lambda var: values.get(var, var)), (numbers, lambda node: _folded(node, analyzer)))


def _folded(node: tirx.PrimExpr, analyzer: Analyzer) -> tirx.PrimExpr:
    """Return arithmetic of numbers alone as the number: shapes of static kernels are numbers."""
    operands = (node.value,) if isinstance(node, tirx.Cast) else (node.a, node.b)
    return analyzer.simplify(node) if all(isinstance(each, tirx.IntImm) for each in operands) else node
