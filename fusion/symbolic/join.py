"""Modules that passes made of a model at several sizes, as one module with symbols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar, Var
from tvm.s_tir.stmt import SBlock

from backends.tensorir.symbols import symbols_of
from fusion.declined import Declined
from fusion.extents import Sizes
from fusion.passes.lift_weights import lift_weights
from fusion.structural import find
from fusion.symbolic.open_weights import OpenWeight, join_weight
from fusion.symbolic.unify import unify
from fusion.tensors import as_numpy


@dataclass(frozen=True, eq=False)
class Probe:
    """A module that was made for some sizes.

    Attributes:
        mod: Its `main` takes the inputs, then `weights`.
    """

    sizes: Sizes
    mod: tvm.IRModule
    weights: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, mod: tvm.IRModule, sizes: Sizes) -> Probe:
        """Return `mod` apart from its weights."""
        lifted, weights = lift_weights(mod)
        return cls(sizes, lifted, tuple(map(as_numpy, weights)))


def join_kernels(probes: Sequence[Probe]) -> tvm.IRModule:
    """Return what the modules of `probes` have in common, with symbols; weights are parameters of its `main`.

    Raises:
        Declined: They differ in more than sizes, for this reason.
    """
    sizes, mods = [probe.sizes for probe in probes], [probe.mod for probe in probes]
    main = unify([mod["main"] for mod in mods], sizes)
    called = {symbol.name_hint: symbol for symbol in find(main, GlobalVar)}
    names = [symbol.name_hint for symbol in mods[0].functions if symbol.name_hint != "main"]
    kernels = {
        called.get(name, GlobalVar(name)): _told(unify([_kernel(mod, name) for mod in mods], sizes), name, sizes[0])
        for name in names
    }
    return tvm.IRModule({**kernels, GlobalVar("main"): main})


def join_weights(probes: Sequence[Probe]) -> list[np.ndarray | OpenWeight]:
    """Return the weights of the modules of `probes` for all sizes.

    Raises:
        Declined: One of them differs in more than where it ends, for this reason.
    """
    sizes = [probe.sizes for probe in probes]
    if len({len(probe.weights) for probe in probes}) > 1:
        raise Declined("passes made other constants of it at other sizes")
    return [join_weight(values, sizes) for values in zip(*(probe.weights for probe in probes), strict=True)]


def with_constants(mod: tvm.IRModule, weights: Sequence[np.ndarray | OpenWeight]) -> tvm.IRModule:
    """Return `mod` with those of `weights` in it that are the same at all sizes."""
    main = mod["main"]
    params = main.params[len(main.params) - len(weights) :]
    values = {
        param: relax.const(tvm.runtime.tensor(weight))
        for param, weight in zip(params, weights, strict=True)
        if not isinstance(weight, OpenWeight)
    }
    return tvm.IRModule({**mod.functions, mod.get_global_var("main"): main.bind_params(values)})


def _told(kernel: tirx.PrimFunc, name: str, symbols: Iterable[str]) -> tirx.PrimFunc:
    """Return `kernel` if a call tells all of `symbols` that it reads, by the shapes of what it passes.

    Raises:
        Declined: A check of indices, say, reads the size of what they are in.
    """
    own = {loop.loop_var for loop in find(kernel.body, tirx.For)}
    own |= {each.var for block in find(kernel.body, SBlock) for each in block.iter_vars}
    read = {var for var in find(kernel.body, Var) if var.name in symbols}
    if unknown := read - own - set(symbols_of(kernel)):
        names = ", ".join(sorted(var.name for var in unknown))
        raise Declined(f"{name} depends on {names}, which no tensor that it takes has among its extents")
    return kernel


def _kernel(mod: tvm.IRModule, name: str) -> tirx.PrimFunc:
    if name not in {symbol.name_hint for symbol in mod.functions}:
        raise Declined(f"passes made no {name} of it at other sizes")
    return mod[name]
