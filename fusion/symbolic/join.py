"""Modules that passes made of a model at several sizes, as one module with symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from partition.access import is_static

_MAIN = "main"


@dataclass(eq=False)
class Probe:
    """A module that was made for some sizes."""

    mod: tvm.IRModule
    _texts: dict[str, FunctionText] = field(default_factory=dict, init=False)

    @cached_property
    def kernels(self) -> Mapping[str, tirx.PrimFunc]:
        """Its functions but `main`, by name."""
        functions = {symbol.name_hint: func for symbol, func in self.mod.functions.items()}
        return {name: func for name, func in functions.items() if name != _MAIN}

    def text(self, name: str) -> FunctionText:
        """Return a kernel as text, which is written when it is first asked for: code of those before it begins then.

        Raises:
            Declined: There is none of this name.
        """
        if name not in self.kernels:
            raise Declined(f"passes made no {name} of it at other sizes")
        if name not in self._texts:
            self._texts[name] = FunctionText.of(self.kernels[name])
        return self._texts[name]


@dataclass(eq=False)
class Joined:
    """What modules at several sizes have in common.

    Attributes:
        main: What `main` is, the last of whose parameters are `weights`.
        weights: Of those that depend on sizes, what they may be.
        dims: The dimensions of the model.
        symbols: Those that functions may have.
        kernels: The other functions, by name.
    """

    main: Unified
    weights: tuple[tvm.runtime.Tensor | tuple[OpenWeight, ...], ...]
    dims: OpenDims
    symbols: frozenset[str]
    kernels: dict[str, Unified] = field(default_factory=dict, init=False)
    _made: dict[str, tirx.PrimFunc] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls, probes: Sequence[Probe], fit: Fit, dims: OpenDims, take: Callable[[str, tirx.PrimFunc], None] | None = None
    ) -> Joined:
        """Return what the modules of `probes`, made at those of `fit`, have in common.

        Args:
            take: Gets each kernel with symbols as soon as it is known what it is, as long as `fit` has no doubts: if it
                has some in the end, what was taken may be others.

        Raises:
            Declined: They differ in more than sizes, for this reason.
        """
        mods, weights = zip(*lift_weights_alike([probe.mod for probe in probes]), strict=True)
        main = unify([FunctionText.of(mod[_MAIN]) for mod in mods], fit)
        joined = cls(main, _join_weights(weights, fit), dims, frozenset(fit.probes[0]))
        for name in probes[0].kernels:
            joined.kernels[name] = unify([probe.text(name) for probe in probes], fit)
            if take is not None and not fit.has_doubts and (kernel := joined._try_kernel(name)) is not None:
                take(name, kernel)
        return joined

    def told(self) -> ToldSizes:
        """Return what tells kernels the sizes that `main` has.

        Raises:
            Declined: Something else than sizes in that depends on these.
        """
        return ToldSizes(self.main.function(self.dims.derived), self.dims, self.symbols)

    def module(self) -> tvm.IRModule:
        """Return the module with symbols, whose `main` computes sizes that follow from those of the inputs, while the
        kernels are told them: see `ToldSizes`.

        Raises:
            Declined: Something else than sizes in it depends on these, or a kernel cannot be told one.
        """
        called = {symbol.name_hint: symbol for symbol in find(self._told.main, GlobalVar)}
        made = {name: self._kernel(name) for name in self.kernels}
        kernels = {self._told.symbol(called.get(name, GlobalVar(name))): kernel for name, kernel in made.items()}
        return tvm.IRModule({**kernels, GlobalVar(_MAIN): self._told.telling()})

    @cached_property
    def _told(self) -> ToldSizes:
        return self.told()

    def _kernel(self, name: str) -> tirx.PrimFunc:
        if name not in self._made:
            self._made[name] = self._told.kernel(name, self.kernels[name].function())
        return self._made[name]

    def _try_kernel(self, name: str) -> tirx.PrimFunc | None:
        """Return a kernel; None where it declines, which `module` tells."""
        try:
            return self._kernel(name)
        except Declined:
            return None


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
    that is not known, as where the run decides how much it is."""
    found = {}
    for symbol, func in mods[0].functions.items():
        if isinstance(func, tirx.PrimFunc):
            made = [mod[symbol.name_hint] for mod in mods]
            with suppress(Declined, ValueError):
                if all(map(is_static, made)):
                    found[symbol.name_hint] = join_work(list(map(count_work, made)), fit.extent)
    return found
