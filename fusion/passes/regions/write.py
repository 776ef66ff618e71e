"""Regions of a function as functions of their own, and the function that calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from backends.subgraphs import RUN_SUBGRAPH
from fusion.bindings import variables
from fusion.passes.regions.read import RegionGraph
from partition.substitution import substitute
from placement.cover.regions import PlacedSubgraph


@dataclass(frozen=True, eq=False)
class RegionFunction:
    """A region.

    Attributes:
        inputs: What it reads from outside, in the order of the parameters.
        outputs: What is read of it outside, in the order of the results.
        function: What it computes.
    """

    inputs: tuple[relax.Var, ...]
    outputs: tuple[relax.Var, ...]
    function: relax.Function


def write_region(found: RegionGraph, operators: frozenset[int]) -> RegionFunction:
    """Return the function of some operators, each of which has a result that is read; it has names of its own, so that
    regions which are equal but for their weights have one text, and as many bindings as what TVM's patterns match."""
    bindings = found.bindings(operators)
    made = {binding.var: None for binding in bindings}
    inputs = tuple(dict.fromkeys(read for each in bindings for read in variables(each.value) if read not in made))
    outputs = tuple(var for var in made if var in found.returned or not found.readers.get(var, operators) <= operators)
    params = [relax.Var(f"p{place}", var.ty) for place, var in enumerate(inputs)]
    env: dict[relax.Var, relax.Expr] = dict(zip(inputs, params, strict=True))
    builder = relax.BlockBuilder()
    with builder.function("region", params):
        with builder.dataflow():
            for binding in bindings:
                emit = builder.emit_output if outputs == (binding.var,) else builder.emit
                env[binding.var] = emit(substitute(binding.value, env))
            results = [env[var] for var in outputs]
            result = results[0] if len(results) == 1 else builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    return RegionFunction(inputs, outputs, builder.finalize()["region"])


def write_main(
    mod: tvm.IRModule,
    found: RegionGraph,
    groups: Sequence[PlacedSubgraph],
    regions: Mapping[frozenset[int], tuple[str, RegionFunction]],
) -> tvm.IRModule:
    """Return `mod` with the operators of `main` in the order of `groups`; those that are `regions`, by their operators,
    are calls by the key of each."""
    main = mod["main"]
    env: dict[relax.Var, relax.Expr] = {}
    builder = relax.BlockBuilder(tvm.IRModule({n: f for n, f in mod.functions.items() if n.name_hint != "main"}))
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            for group in groups:
                if group.operators in regions:
                    env.update(_call(builder, env, *regions[group.operators]))
                    continue
                for binding in found.bindings(group.operators):
                    env[binding.var] = _emit(builder, binding, substitute(binding.value, env))
            result = builder.emit_output(substitute(found.result, env))
        builder.emit_func_output(result)
    written = mod.clone()
    written["main"] = builder.finalize()["main"].with_attrs(dict(main.attrs or {}))
    return written


def _call(
    builder: relax.BlockBuilder, env: Mapping[relax.Var, relax.Expr], key: str, region: RegionFunction
) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Emit the call of a region; yield what its results are in place of."""
    arguments = [substitute(var, env) for var in region.inputs]
    kinds = [var.ty for var in region.outputs]
    call = relax.op.call_pure_packed(
        RUN_SUBGRAPH,
        tvm.ir.StringImm(key),
        *arguments,
        ty_args=kinds[0] if len(kinds) == 1 else relax.TupleType(kinds),
    )
    whole = builder.emit(call, region.outputs[0].name if len(kinds) == 1 else "region")
    for place, var in enumerate(region.outputs):
        field = relax.TupleGetItem(whole, place)
        yield var, whole if len(kinds) == 1 else builder.emit(field, var.name)


def _emit(builder: relax.BlockBuilder, binding: relax.Binding, value: relax.Expr) -> relax.Var:
    if isinstance(binding, relax.MatchCast):
        return builder.match_cast(value, binding.ty)
    return builder.emit(value, binding.var.name)

