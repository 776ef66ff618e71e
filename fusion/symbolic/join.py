"""Modules that passes made of a model at several sizes, as one module with symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar

from backends.sized_work import SizedWork, join_work
from backends.tensorir.kernel_info import count_work
from fusion.declined import Declined
from fusion.passes.lift_weights import lift_weights_alike
from fusion.structural import find
from fusion.symbolic.fit import Fit
from fusion.symbolic.join_weights import join_weight
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.tell_sizes import ToldSizes
from fusion.symbolic.unify import FunctionText, Unified, unify
from fusion.tensors import as_numpy

_MAIN = "main"


@dataclass(frozen=True, eq=False)
class Probe:
    """A module that was made for some sizes."""

    mod: tvm.IRModule

    @cached_property
    def kernels(self) -> Mapping[str, FunctionText]:
        """Its functions but `main`, by name."""
        functions = {symbol.name_hint: func for symbol, func in self.mod.functions.items()}
        return {name: FunctionText.of(func) for name, func in functions.items() if name != _MAIN}


@dataclass(frozen=True, eq=False)
class Joined:
    """What modules at several sizes have in common.

    Attributes:
        functions: By name; `weights` are the last parameters of `main`.
        weights: Of those that depend on sizes, what they may be.
        symbols: Those that functions may have.
    """

    functions: Mapping[str, Unified]
    weights: tuple[tvm.runtime.Tensor | tuple[OpenWeight, ...], ...]
    symbols: frozenset[str]

    @classmethod
    def of(cls, probes: Sequence[Probe], fit: Fit) -> Joined:
        """Return what the modules of `probes`, made at those of `fit`, have in common.

        Raises:
            Declined: They differ in more than sizes, for this reason.
        """
        functions = {name: unify([_text(probe, name) for probe in probes], fit) for name in probes[0].kernels}
        mods, weights = zip(*lift_weights_alike([probe.mod for probe in probes]), strict=True)
        functions[_MAIN] = unify([FunctionText.of(mod[_MAIN]) for mod in mods], fit)
        return cls(functions, _join_weights(weights, fit), frozenset(fit.probes[0]))

    def told(self, dims: OpenDims) -> ToldSizes:
        """Return what tells kernels the sizes that `main` has.

        Raises:
            Declined: Something else than sizes in that depends on these.
        """
        return ToldSizes(self.functions[_MAIN].function(dims.derived), dims, self.symbols)

    def module(
        self, dims: OpenDims, take: Callable[[str, tirx.PrimFunc], None] = lambda name, func: None
    ) -> tvm.IRModule:
        """Return the module with symbols, whose `main` computes sizes that follow from those of the inputs, while the
        kernels are told them: see `ToldSizes`.

        Args:
            take: Gets each kernel as soon as it is made.

        Raises:
            Declined: Something else than sizes in it depends on these, or a kernel cannot be told one.
        """
        told, kernels = self.told(dims), {}
        called = {symbol.name_hint: symbol for symbol in find(told.main, GlobalVar)}
        for name, unified in self.functions.items():
            if name != _MAIN:
                kernel = told.kernel(name, unified.function())
                kernels[told.symbol(called.get(name, GlobalVar(name)))] = kernel
                take(name, kernel)
        return tvm.IRModule({**kernels, GlobalVar(_MAIN): told.telling()})


def _text(probe: Probe, name: str) -> FunctionText:
    if name not in probe.kernels:
        raise Declined(f"passes made no {name} of it at other sizes")
    return probe.kernels[name]


def _join_weights(
    weights: Sequence[Sequence[tvm.runtime.Tensor]], fit: Fit
) -> tuple[tvm.runtime.Tensor | tuple[OpenWeight, ...], ...]:
    """Return what the constants at the probes of `fit` have in common."""
    if len(set(map(len, weights))) > 1:
        raise Declined("passes made other constants of it at other sizes")
    return tuple(_join(values, fit) for values in zip(*weights, strict=True))


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


def join_works(mods: Sequence[tvm.IRModule], fit: Fit) -> dict[str, SizedWork]:
    """Return what each kernel does at any sizes, of modules made at those of `fit`, for reports: without those of which
    that is not known."""
    found = {}
    for symbol, func in mods[0].functions.items():
        if isinstance(func, tirx.PrimFunc):
            with suppress(Declined, ValueError):
                counted = [count_work(mod[symbol.name_hint]) for mod in mods]
                found[symbol.name_hint] = join_work(counted, fit.extent)
    return found
