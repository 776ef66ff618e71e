"""Give libraries the parts of the graph that their patterns match."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from backends.backend import Library
from backends.subgraphs import FALLBACK

_COMPOSITE = "Composite"
"""The attribute by which TVM says of what pattern a function is."""


@dataclass(frozen=True)
class TakeSubgraphs:
    """`gelu(x)`  ->  `call_pure_packed("fusion.fallback", key, x)`, where a pattern of a library matches.

    A library that comes first takes what several could.

    Attributes:
        libraries: What is asked, in this order.
        taken: After a call, what each subgraph is made from, by its key.
        notes: After a call, who took what, one sentence each.
    """

    libraries: Sequence[Library]
    taken: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    name: str = "take_subgraphs"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        for library in self.libraries:
            matched = relax.transform.FuseOpsByPattern(list(library.patterns))(mod)
            parts = {symbol: func for symbol, func in matched.functions.items() if _pattern_of(func)}
            mod = tvm.IRModule(
                {symbol: func for symbol, func in matched.functions.items() if symbol not in parts}, attrs=mod.attrs
            )
            keys = {symbol: self._take(library, func) for symbol, func in parts.items()}
            mod["main"] = _Caller(keys).visit_expr(matched["main"])
        return mod

    def _take(self, library: Library, func: relax.Function) -> str:
        data = library.export(func)
        key = f"{library.name}:{hashlib.sha256(data).hexdigest()}"
        self.taken[key] = data
        self.notes.append(f"{_pattern_of(func)} runs {', '.join(_operators(func))}")
        return key


@mutator
class _Caller(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    """Replaces calls of functions by calls of subgraphs by their keys."""

    def __init__(self, keys: dict[tvm.ir.GlobalVar, str]) -> None:
        super().__init__()
        self.keys = keys

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Replace the callee of a call of a subgraph."""
        call = self.visit_expr_post_order(call)
        key = self.keys.get(call.op) if isinstance(call.op, tvm.ir.GlobalVar) else None
        if key is None:
            return call
        return relax.op.call_pure_packed(FALLBACK, tvm.ir.StringImm(key), *call.args, ty_args=call.ty)


def _pattern_of(func: tvm.ir.BaseFunc) -> str:
    """Return the name of the pattern that `func` was made of; "" of any other function."""
    return str(func.attrs.get(_COMPOSITE, "")) if func.attrs else ""


def _operators(func: relax.Function) -> list[str]:
    calls = (binding.value for block in func.body.blocks for binding in block.bindings)
    return [str(call.op.name).removeprefix("relax.") for call in calls if isinstance(call, relax.Call)]
