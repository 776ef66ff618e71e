"""Give libraries the parts of the graph that their patterns match."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax

from backends.backend import Library
from backends.subgraphs import RUN_SUBGRAPH, subgraph_key
from fusion.apart import asking_apart, open_apart
from fusion.bindings import Bindings, call_name
from fusion.facts import PassResult, TellingPass
from fusion.passes.rebuild import rebuild_main
from fusion.passes.try_library import try_library

_log = logging.getLogger("fusion.backends")

COMPOSITE = "Composite"
"""The attribute by which TVM says of what pattern a function is."""


@dataclass(frozen=True)
class Taken:
    """What libraries took.

    Attributes:
        subgraphs: What each is made from, by its key.
        notes: Who took what, one sentence each.
    """

    subgraphs: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TakeSubgraphs(TellingPass[Taken]):
    """`gelu(x)`  ->  `call_pure_packed("fusion.fallback", key, x)`, where a pattern of a library matches.

    A library that comes first takes what several could.

    Attributes:
        libraries: What is asked, by name, in this order.
        threads: Of each.
    """

    libraries: Mapping[str, Library]
    threads: int
    name: str = "take_subgraphs"

    def run(self, mod: tvm.IRModule) -> PassResult[Taken]:
        """Return the module with calls of subgraphs, and what those are; a library that fails takes nothing."""
        with asking_apart():
            return self._run(mod)

    def _run(self, mod: tvm.IRModule) -> PassResult[Taken]:
        subgraphs: dict[str, bytes] = {}
        notes: list[str] = []
        for name, library in self.libraries.items():
            try:
                try_library(mod, name, self.threads)
                matched, matches = find_matches(mod, library)
                exported = {symbol: library.export(func) for symbol, func in matches.items()}
                for data in exported.values():
                    open_apart(name, data, self.threads)
            except MemoryError:
                raise
            except Exception as error:  # whatever the code of another package raises
                _log.exception("the backend %r takes nothing of this model", name)
                notes.append(f"the backend {name!r} failed and takes nothing: {type(error).__name__}: {error}")
                continue
            keys = {symbol: subgraph_key(name, data, self.threads) for symbol, data in exported.items()}
            subgraphs.update((keys[symbol], data) for symbol, data in exported.items())
            parts = (matched[symbol] for symbol in exported)
            notes += [f"{_pattern_of(func)} runs {', '.join(_operators(func))}" for func in parts]
            mod = rebuild_main(matched, _Call(keys, {symbol: _result_name(matched[symbol]) for symbol in exported}))
        return PassResult(mod, Taken(subgraphs, tuple(notes)))


def find_matches(mod: tvm.IRModule, library: Library) -> tuple[tvm.IRModule, dict[tvm.ir.GlobalVar, relax.Function]]:
    """Return `mod` with a function for each match of a pattern of `library`, and those."""
    matched = relax.transform.FuseOpsByPattern(list(library.patterns))(rebuild_main(mod, name_calls))
    return matched, {symbol: func for symbol, func in matched.functions.items() if _pattern_of(func)}


@dataclass(frozen=True)
class _Call:
    """Replaces calls of functions by calls of subgraphs by their keys; `names` are those of their results."""

    keys: Mapping[tvm.ir.GlobalVar, str]
    names: Mapping[tvm.ir.GlobalVar, str]

    def __call__(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        key = self.keys.get(value.op) if isinstance(value, relax.Call) else None
        if key is None:
            return value
        call = relax.op.call_pure_packed(RUN_SUBGRAPH, tvm.ir.StringImm(key), *value.args, ty_args=var.ty)
        return builder.emit(call, self.names[value.op] or var.name)


def name_calls(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    """Return a call with the name of its variable as its place in the source: `FuseOpsByPattern` keeps that, and gives
    results of what it matched names of its own, by which nobody finds which operators are in there."""
    if not isinstance(value, relax.Call):
        return value
    return relax.Call(
        value.op, value.args, value.attrs, value.ty_args, tvm.ir.Span(tvm.ir.SourceName(var.name), 0, 0, 0, 0)
    )


def _result_name(func: relax.Function) -> str:
    """Return what the model calls the result of `func`; "" where that is a tuple."""
    bindings = Bindings.of(func)
    result = bindings.resolve(bindings.result)
    value = bindings.values.get(result) if isinstance(result, relax.Var) else None
    return str(value.span.source_name.name) if isinstance(value, relax.Call) else ""


def _pattern_of(func: tvm.ir.BaseFunc) -> str:
    """Return the name of the pattern that `func` was made of; "" of any other function."""
    return str(func.attrs.get(COMPOSITE, "")) if func.attrs else ""


def _operators(func: relax.Function) -> list[str]:
    return [name for name in (call_name(value) for _, value in Bindings.of(func).values.items()) if name]
