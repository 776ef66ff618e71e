"""The kernels that a plan asks for: they read and write slices of joined tensors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tvm import relax, tirx

from fusion.bindings import callee
from fusion.passes.concats.plan import ConcatPlan, Place
from fusion.passes.concats.read import ConcatGraph, Result
from partition.slices import copy_function, hide_outputs, read_slice, with_parameters, write_slice


@dataclass(frozen=True)
class CalledKernel:
    """A kernel, and what it is called with.

    Attributes:
        name: What it is called, unless another is called so.
        func: Its PrimFunc, which takes inputs, joined tensors that others wrote to before, and results.
        reads: For each input the joined tensor that it is read from; None where it is an argument as before.
        updated: The joined tensors that others wrote to before.
        own: The results that have memory of their own.
        begun: The joined tensors that this call is the first to write to.
    """

    name: str
    func: tirx.PrimFunc
    reads: tuple[relax.Var | None, ...]
    updated: tuple[relax.Var, ...]
    own: tuple[Result, ...] = ()
    begun: tuple[relax.Var, ...] = ()

    @property
    def types(self) -> list[relax.TensorType]:
        """Those of `own`, `begun` and `updated`."""
        given, old = len(self.reads), len(self.reads) + len(self.updated)
        params = (*self.func.params[old:], *self.func.params[given:old])
        return [relax.TensorType(param.ty.shape, param.ty.dtype) for param in params]


def home_of(graph: ConcatGraph, plan: ConcatPlan, value: relax.Expr) -> Place | None:
    """Return the slice of a joined tensor that `value` is; None where it has memory of its own."""
    result = graph.result(value)
    return None if result is None else plan.homes.get(result)


def place_results(
    graph: ConcatGraph, plan: ConcatPlan, var: relax.Var, begun: Collection[relax.Var]
) -> CalledKernel | None:
    """Return the kernel for the call that `var` is bound to; None where it stays as it is.

    Args:
        begun: Joined tensors that earlier calls write to.
    """
    func = graph.kernel(var)
    if func is None:
        return None
    inputs = graph.arguments(var)
    results = graph.results(var)
    places = [(result, place) for result in results for place in plan.writes.get(result, ())]
    homes = [home_of(graph, plan, argument) for argument in inputs]
    if not places and not any(homes):
        return None
    for position, home in enumerate(homes):
        func = func if home is None else read_slice(func, position, home.slice_)
    roots: dict[relax.Var, tirx.Var] = {}
    for result, place in places:
        func = write_slice(func, func.params[len(inputs) + result.index], place.part, place.slice_)
        roots[place.root] = func.params[-1]
    own = [result for result in results if result not in plan.homes]
    kept = [func.params[len(inputs) + result.index] for result in own]
    func = hide_outputs(func, [func.params[len(inputs) + at.index] for at in results if at in plan.homes])
    updated = [root for root in roots if root in begun]
    new = [root for root in roots if root not in begun]
    given = func.params[: len(inputs)]
    func = with_parameters(func, [*given, *(roots[root] for root in updated), *kept, *(roots[root] for root in new)])
    return CalledKernel(
        name=callee(graph.values[var]).name_hint,
        func=func,
        reads=_roots(homes),
        updated=tuple(updated),
        own=tuple(own),
        begun=tuple(new),
    )


def copy_part(graph: ConcatGraph, plan: ConcatPlan, value: relax.Expr, place: Place) -> CalledKernel:
    """Return the kernel that copies `value` to its place in a joined tensor."""
    func = copy_function(place.part, str(value.ty.dtype.dtype), place.slice_)
    home = home_of(graph, plan, value)
    func = func if home is None else read_slice(func, 0, home.slice_)
    return CalledKernel("copy_part", func, _roots([home]), (place.root,))


def _roots(homes: Collection[Place | None]) -> tuple[relax.Var | None, ...]:
    return tuple(None if home is None else home.root for home in homes)
