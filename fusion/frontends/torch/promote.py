"""Writes torch's promotion of dtypes out as casts, as Relax's operators take operands of one dtype.

    add(int32, float32) -> add(cast(int32), float32);  sin(int64) -> sin(cast(int64))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

# Operators that compute in the dtype of their result.
_COMPUTE = frozenset(
    {
        "acos", "acosh", "add", "addcdiv", "addcmul", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
        "bitwise_or", "bitwise_xor", "cat", "clamp", "clamp_max", "clamp_min", "cos", "cosh", "cumprod", "cumsum",
        "div", "elu", "erf", "exp", "expm1", "floor_divide", "fmod", "gelu", "hardtanh", "leaky_relu", "lerp",
        "log", "log10", "log1p", "log2", "logaddexp", "maximum", "mean", "minimum", "mul", "pow", "prod",
        "reciprocal", "remainder", "rsqrt", "rsub", "sigmoid", "silu", "sin", "sinh", "sqrt", "stack", "std", "sub",
        "sum", "tan", "tanh", "true_divide", "var", "where",
    }
)  # fmt: skip
# Operators that compute in the common dtype of their operands and return booleans.
_COMPARE = frozenset(["eq", "ge", "gt", "le", "lt", "ne"])


def promote(graph: fx.Graph) -> None:
    """Insert the casts; what computes is not changed."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target._schema.name.removeprefix("aten::")
        result = node.meta.get("val")
        if name in _COMPUTE and isinstance(result, torch.Tensor):
            _cast_operands(graph, node, result.dtype, skipped=1 if name == "where" else 0)
        elif name in _COMPARE:
            left, right = (getattr(value, "meta", {}).get("val", value) for value in node.args[:2])
            _cast_operands(graph, node, torch.result_type(left, right), skipped=0)


def _cast_operands(graph: fx.Graph, node: fx.Node, dtype: torch.dtype, skipped: int) -> None:
    def cast(value: Any) -> Any:
        found = value.meta.get("val")
        if not isinstance(found, torch.Tensor) or found.dtype == dtype:
            return value
        with graph.inserting_before(node):
            new = graph.call_function(torch.ops.aten._to_copy.default, (value,), {"dtype": dtype})
        new.meta = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
        new.meta["val"] = found.to(dtype)
        return new

    kept, cut = node.args[:skipped], node.args[skipped:]
    node.args = (*kept, *fx.map_arg(cut, cast))
