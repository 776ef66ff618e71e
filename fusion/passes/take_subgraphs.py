"""Give libraries the parts of the graph that their patterns match."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax

from backends.backend import Library
from backends.subgraphs import RUN_SUBGRAPH
from fusion.passes.rebuild import bindings, call_name, rebuild_main

_COMPOSITE = "Composite"
"""The attribute by which TVM says of what pattern a function is."""


@dataclass(frozen=True)
class TakeSubgraphs:
    """`gelu(x)`  ->  `call_pure_packed("fusion.fallback", key, x)`, where a pattern of a library matches.

    A library that comes first takes what several could.

    Attributes:
        libraries: What is asked, by name, in this order.
        taken: After a call, what each subgraph is made from, by its key.
        notes: After a call, who took what, one sentence each.
    """

    libraries: Mapping[str, Library]
    taken: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    name: str = "take_subgraphs"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        for name, library in self.libraries.items():
            matched = relax.transform.FuseOpsByPattern(list(library.patterns))(mod)
            parts = {symbol: func for symbol, func in matched.functions.items() if _pattern_of(func)}
            keys = {symbol: self._take(name, library, func) for symbol, func in parts.items()}
            mod = rebuild_main(matched, _Call(keys))
        return mod

    def _take(self, name: str, library: Library, func: relax.Function) -> str:
        data = library.export(func)
        key = f"{name}:{hashlib.sha256(data).hexdigest()}"
        self.taken[key] = data
        self.notes.append(f"{_pattern_of(func)} runs {', '.join(_operators(func))}")
        return key


@dataclass(frozen=True)
class _Call:
    """Replaces calls of functions by calls of subgraphs by their keys."""

    keys: Mapping[tvm.ir.GlobalVar, str]

    def __call__(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        key = self.keys.get(value.op) if isinstance(value, relax.Call) else None
        if key is None:
            return value
        return relax.op.call_pure_packed(RUN_SUBGRAPH, tvm.ir.StringImm(key), *value.args, ty_args=var.ty)


def _pattern_of(func: tvm.ir.BaseFunc) -> str:
    """Return the name of the pattern that `func` was made of; "" of any other function."""
    return str(func.attrs.get(_COMPOSITE, "")) if func.attrs else ""


def _operators(func: relax.Function) -> list[str]:
    return [name for name in (call_name(value) for _, value in bindings(func)) if name]
