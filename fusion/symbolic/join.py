"""Modules that passes made of a model at several sizes, as one module with symbols."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar, Var
from tvm.s_tir.stmt import SBlock

from backends.tensorir.symbols import symbols_of
from fusion.declined import Declined
from fusion.extents import DerivedSize
from fusion.passes.lift_weights import lift_weights
from fusion.structural import find, map_nodes
from fusion.symbolic.fit import Fit
from fusion.symbolic.join_weights import join_weight
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.unify import unify
from fusion.tensors import as_numpy


@dataclass(frozen=True, eq=False)
class Probe:
    """A module that was made for some sizes.

    Attributes:
        mod: Its `main` takes the inputs, then `weights`.
    """

    mod: tvm.IRModule
    weights: tuple[tvm.runtime.Tensor, ...]

    @classmethod
    def of(cls, mod: tvm.IRModule) -> Probe:
        """Return `mod` apart from its weights."""
        return cls(*lift_weights(mod))


@dataclass(frozen=True, eq=False)
class Joined:
    """What modules at several sizes have in common.

    Attributes:
        mod: With symbols; `weights` are the last parameters of its `main`.
        weights: Of those that depend on sizes, what they may be.
    """

    mod: tvm.IRModule
    weights: Sequence[tvm.runtime.Tensor | tuple[OpenWeight, ...]]


def join(probes: Sequence[Probe], fit: Fit, dims: OpenDims) -> Joined:
    """Return what the modules of `probes`, made at those of `fit`, have in common; `main` computes sizes that follow
    from those of the inputs, while the kernels are told them.

    Raises:
        Declined: They differ in more than sizes, for this reason.
    """
    return Joined(_join_kernels(probes, fit, dims), _join_weights(probes, fit))


def _join_kernels(probes: Sequence[Probe], fit: Fit, dims: OpenDims) -> tvm.IRModule:
    mods = [probe.mod for probe in probes]
    main = unify([mod["main"] for mod in mods], fit, dims.derived)
    called = {symbol.name_hint: symbol for symbol in find(main, GlobalVar)}
    symbols = frozenset(fit.probes[0])
    names = [symbol.name_hint for symbol in mods[0].functions if symbol.name_hint != "main"]
    kernels = {
        called.get(name, GlobalVar(name)): _told(
            unify([_kernel(mod, name) for mod in mods], fit), name, symbols, dims.relations
        )
        for name in names
    }
    return tvm.IRModule({**kernels, GlobalVar("main"): main})


def _join_weights(probes: Sequence[Probe], fit: Fit) -> list[tvm.runtime.Tensor | tuple[OpenWeight, ...]]:
    if len({len(probe.weights) for probe in probes}) > 1:
        raise Declined("passes made other constants of it at other sizes")
    return [_join(values, fit) for values in zip(*(probe.weights for probe in probes), strict=True)]


def _join(values: Sequence[tvm.runtime.Tensor], fit: Fit) -> tvm.runtime.Tensor | tuple[OpenWeight, ...]:
    if all(value.same_as(values[0]) for value in values):  # as imports share them
        return values[0]
    joined = join_weight([as_numpy(value) for value in values], fit)
    return joined if isinstance(joined, tuple) else values[0]


def with_constants(mod: tvm.IRModule, weights: Sequence[tvm.runtime.Tensor | OpenWeight]) -> tvm.IRModule:
    """Return `mod` with those of `weights` in it that are the same at all sizes."""
    main = mod["main"]
    params = main.params[len(main.params) - len(weights) :]
    values = {
        param: relax.const(weight)
        for param, weight in zip(params, weights, strict=True)
        if not isinstance(weight, OpenWeight)
    }
    return tvm.IRModule({**mod.functions, mod.get_global_var("main"): main.bind_params(values)})


def _told(
    kernel: tirx.PrimFunc, name: str, symbols: Collection[str], relations: Sequence[DerivedSize]
) -> tirx.PrimFunc:
    """Return `kernel` if a call tells all of `symbols` that it reads, by the shapes of what it passes; sizes that
    follow from these by `relations` it computes.

    Raises:
        Declined: A check of indices, say, reads the size of what they are in.
    """
    told = {var.name: var for var in symbols_of(kernel)}
    for size in reversed(_following(relations, set(told))):
        if any(var.name == size.symbol for var in _read(kernel, symbols)):
            known = {symbol: told.get(symbol, Var(symbol, "int64")) for symbol in _parts(size)}
            kernel = _computing(kernel, size, known)
    if unknown := {var.name for var in _read(kernel, symbols)} - {var.name for var in symbols_of(kernel)}:
        names = ", ".join(sorted(unknown))
        raise Declined(f"{name} depends on {names}, which no tensor that it takes has among its extents")
    return kernel


def _following(relations: Sequence[DerivedSize], known: set[str]) -> list[DerivedSize]:
    """Return by which of `relations` sizes follow from those `known`, each from these and from those before it."""
    found = list[DerivedSize]()
    while True:
        more = [size for size in relations if size.symbol not in known and known.issuperset(_parts(size))]
        if not more:
            return found
        found.append(more[0])
        known.add(more[0].symbol)


def _parts(size: DerivedSize) -> set[str]:
    return {symbol for part in size.parts for symbol in part.symbols}


def _read(kernel: tirx.PrimFunc, symbols: Collection[str]) -> set[Var]:
    own = {loop.loop_var for loop in find(kernel.body, tirx.For)}
    own |= {each.var for block in find(kernel.body, SBlock) for each in block.iter_vars}
    return {var for var in find(kernel.body, Var) if var.name in symbols} - own


def _computing(kernel: tirx.PrimFunc, size: DerivedSize, known: Mapping[str, Var]) -> tirx.PrimFunc:
    """Return `kernel` with the expression of `size` in place of it."""
    total = tirx.const(0, "int64")
    for part in size.parts:
        product = reduce(lambda a, b: a * b, (known[symbol] for symbol in part.symbols), tirx.const(1, "int64"))
        total = total + product * part.coefficient + part.constant
    value = total if size.divisor == 1 else tirx.floordiv(total, size.divisor)
    return map_nodes(kernel, (Var, lambda var: value if var.name == size.symbol else var))


def _kernel(mod: tvm.IRModule, name: str) -> tirx.PrimFunc:
    if name not in {symbol.name_hint for symbol in mod.functions}:
        raise Declined(f"passes made no {name} of it at other sizes")
    return mod[name]
