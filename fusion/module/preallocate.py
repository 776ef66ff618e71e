"""Makes the planned activations of `main` parameters, and large results, so that a call allocates only small ones.

Before: `main(x, w0)` with `storage = alloc_storage(..); a = alloc_tensor(storage, ..); add(x, w0, a); kill_tensor(a)`;
after: `main(x, w0, a)` with `add(x, w0, a)` and the sizes in a `RunPlan`. On 40 small kernels this takes two VM
instructions of three away, and a run from 8.2 us to 7.5 us, although it passes 160 arguments more.

Results that are large, or may be, are parameters, too, for which each run has memory (`result_memory`). The virtual
machine's own keeps that of each size that it has ever seen, or none.

TVM plans each branch of an If by itself. What crosses the edge of one (conditions, values read in a branch, results of
branches) it leaves as `builtin.alloc_tensor(..)`; that gets a storage here, which it shares with what lives at another
time or in the opposite branch. Only memory whose size the run decides is still allocated by a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import tvm
from tvm import relax

from backends.subgraphs import RUN_SUBGRAPH
from fusion.bindings import Bindings, call_name, data_of
from fusion.extents import Sizes
from fusion.module.live_ranges import LiveRange, LiveRanges, find_live_ranges
from fusion.module.plan import Argument, Condition, KernelCall, OutputPlan, RunPlan, TensorPlan
from fusion.module.result_memory import LARGE_RESULT
from fusion.module.views import is_extern, is_reshape, root_of
from fusion.shapes import dims_of, known_extents, shape_at
from fusion.tensors import fills_bytes, tensor_bytes


@dataclass
class _Scan:
    """What one walk over `main` collects.

    Attributes:
        crossing: The storages that tensors which cross the edge of a branch may share, with their live ranges.
        lasting: The storages of conditions. They are not shared, so that after a run they still say what was decided.
        outputs: The tensors that `main` returns in memory of their own.
        sizes: Of the symbols in shapes.
        apart: Whether each tensor has a storage of its own.
    """

    bindings: Bindings
    live: LiveRanges
    outputs: frozenset[relax.Var]
    arguments: dict[relax.Var, Argument]
    sizes: Sizes
    apart: bool
    storages: list[int] = field(default_factory=list)
    storage_of: dict[relax.Var, int] = field(default_factory=dict)
    buffers: list[TensorPlan] = field(default_factory=list)
    buffer_params: list[relax.Var] = field(default_factory=list)
    given: list[Argument] = field(default_factory=list)
    given_params: list[relax.Var] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    crossing: dict[int, list[LiveRange]] = field(default_factory=dict)
    lasting: set[int] = field(default_factory=set)
    conditions: tuple[Condition, ...] = ()
    fresh: int = 0


def preallocate(
    mod: tvm.IRModule, n_inputs: int, sizes: Sizes, *, apart: bool = False
) -> tuple[tvm.IRModule, RunPlan]:
    """Return `mod` with planned activations as parameters of `main`, and what to pass for them at `sizes`.

    Expects the form after `StaticPlanBlockMemory`; the first `n_inputs` parameters are inputs, the others weights. With
    `apart` tensors share no storage, whatever was planned.
    """
    main = mod["main"]
    bindings, live = Bindings.of(main, branches=True), find_live_ranges(main)
    roots = [root_of(bindings, result) for result in bindings.results()]
    # A condition is small, and `profile` reads it in its storage: as an output it is copied.
    outputs = frozenset(root for root in roots if isinstance(root, relax.Var)) - live.conditions
    scan = _Scan(bindings, live, outputs, _parameter_arguments(main, n_inputs, sizes), sizes, apart=apart)
    blocks = [_rewrite_block(block, scan) for block in main.body.blocks]
    plan = RunPlan(
        tuple(scan.storages), tuple(scan.buffers), tuple(scan.given), tuple(scan.calls), _outputs(main, roots, scan)
    )
    body = relax.SeqExpr([block for block in blocks if block.bindings], main.body.body)
    params = [*main.params, *scan.buffer_params, *scan.given_params]
    new_main = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    result.update_func(result.get_global_var("main"), new_main)
    return result, plan


def _parameter_arguments(main: relax.Function, n_inputs: int, sizes: Sizes) -> dict[relax.Var, Argument]:
    found = {}
    for position, param in enumerate(main.params):
        kind, index = ("input", position) if position < n_inputs else ("weight", position - n_inputs)
        shape = shape_at(param, sizes)
        if shape is not None:
            found[param] = Argument(kind, index, shape, str(param.ty.dtype))
    return found


def _rewrite_block(block: relax.BindingBlock, scan: _Scan) -> relax.BindingBlock:
    kept = []
    for binding in block.bindings:
        if isinstance(binding.value, relax.If):
            kept.append(relax.VarBinding(binding.var, _rewrite_if(binding.value, scan), binding.span))
            _record_fresh(binding.var, scan)
        elif not _absorb(binding, scan):
            kept.append(binding)
    return relax.BindingBlock(kept, block.span)


def _rewrite_if(choice: relax.If, scan: _Scan) -> relax.If:
    """Rewrite both branches. They share storages: only one of them runs."""
    outside, tensor = scan.conditions, _decided_on(choice, scan)
    branches = []
    for value, branch in ((True, choice.true_branch), (False, choice.false_branch)):
        scan.conditions = (*outside, Condition(tensor, value))
        blocks = [_rewrite_block(block, scan) for block in branch.blocks]
        branches.append(relax.SeqExpr([block for block in blocks if block.bindings], branch.body))
    scan.conditions = outside
    return relax.If(choice.cond, *branches, choice.span)


def _decided_on(choice: relax.If, scan: _Scan) -> Argument:
    """Return where the condition can be read after a run; "fresh" where it cannot."""
    known = scan.arguments.get(scan.bindings.resolve(choice.cond))
    lasts = known is not None and (known.kind != "buffer" or scan.buffers[known.index].storage in scan.lasting)
    return known if known is not None and lasts else _new_fresh((), "bool", scan)


def _absorb(binding: relax.Binding, scan: _Scan) -> bool:
    """Record `binding`; return whether the plan replaces it."""
    if not isinstance(binding, relax.VarBinding):
        return False
    var, value = binding.var, binding.value
    if isinstance(value, relax.TupleGetItem) and scan.bindings.resolve(var) is var:
        _record_fresh(var, scan)
    if not isinstance(value, relax.Call):
        return False
    match value.op:
        case tvm.ir.Op(name="relax.memory.alloc_storage"):
            return _absorb_storage(var, value, scan)
        case tvm.ir.Op(name="relax.memory.alloc_tensor"):
            return _absorb_tensor(var, value, scan)
        case tvm.ir.Op(name="relax.memory.kill_tensor" | "relax.memory.kill_storage"):
            return data_of(value) in scan.storage_of or data_of(value) in scan.arguments
        case tvm.ir.Op(name="relax.builtin.alloc_tensor"):
            return _absorb_crossing(var, scan)
        case tvm.ir.GlobalVar():
            _record_call(value, scan)
        case _ if is_reshape(value):
            return _absorb_reshape(var, value, scan)
        case _:
            _record_fresh(var, scan)
    return False


def _absorb_storage(var: relax.Var, call: relax.Call, scan: _Scan) -> bool:
    size = known_extents(data_of(call))
    if size is None:
        return False
    scan.storage_of[var] = len(scan.storages)
    scan.storages.append(size[0])
    return True


def _absorb_tensor(var: relax.Var, call: relax.Call, scan: _Scan) -> bool:
    storage, offset, *_ = call.args
    shape, dtype = shape_at(var, scan.sizes), str(var.ty.dtype)
    # StaticPlanBlockMemory puts every tensor at offset 0 of its storage.
    if storage not in scan.storage_of or shape is None or int(offset.value) != 0 or not fills_bytes(dtype):
        return False
    place = scan.storage_of[storage]
    if scan.apart:
        place = len(scan.storages)
        scan.storages.append(tensor_bytes(shape, dtype))
    _add_buffer(var, TensorPlan(place, shape, dtype), scan)
    return True


def _absorb_crossing(var: relax.Var, scan: _Scan) -> bool:
    shape, dtype = shape_at(var, scan.sizes), str(var.ty.dtype)
    if var in scan.outputs or shape is None or not fills_bytes(dtype):
        _record_fresh(var, scan)
        return shape is not None and fills_bytes(dtype) and _take_as_given(var, scan)
    _add_buffer(var, TensorPlan(_crossing_storage(var, tensor_bytes(shape, dtype), scan), shape, dtype), scan)
    return True


def _take_as_given(var: relax.Var, scan: _Scan) -> bool:
    """Make a result a parameter, if it is large or may be where a call decides; return whether it is one. One that a
    branch makes, runs may not have."""
    dims = dims_of(var.ty.shape) or ()
    known = tuple([extent for extent in dims if extent is not None])
    is_small = len(known) == len(dims) and tensor_bytes(known, str(var.ty.dtype)) < LARGE_RESULT
    if is_small or scan.conditions:
        return False
    scan.given.append(scan.arguments[var])
    scan.given_params.append(var)
    return True


def _crossing_storage(var: relax.Var, size: int, scan: _Scan) -> int:
    """Return a storage of at least `size` bytes that nothing else needs while `var` lives, of the closest size."""
    live, storages = scan.live.of[var], scan.storages
    is_condition = var in scan.live.conditions
    free = [] if is_condition else [n for n, users in scan.crossing.items() if not any(map(live.meets, users))]
    if free:
        chosen = min(free, key=lambda number: abs(storages[number] - size))
        storages[chosen] = max(storages[chosen], size)
        scan.crossing[chosen].append(live)
        return chosen
    storages.append(size)
    if is_condition:
        scan.lasting.add(len(storages) - 1)
    else:
        scan.crossing[len(storages) - 1] = [live]
    return len(storages) - 1


def _absorb_reshape(var: relax.Var, call: relax.Call, scan: _Scan) -> bool:
    source = scan.arguments.get(scan.bindings.resolve(data_of(call)))
    shape = shape_at(var, scan.sizes)
    if shape is None or source is None:
        return False
    if source.kind != "buffer":
        scan.arguments[var] = replace(source, shape=shape)
        return False
    _add_buffer(var, replace(scan.buffers[source.index], shape=shape), scan)
    return True


def _add_buffer(var: relax.Var, tensor: TensorPlan, scan: _Scan) -> None:
    scan.arguments[var] = Argument("buffer", len(scan.buffers), tensor.shape, tensor.dtype)
    scan.buffers.append(tensor)
    scan.buffer_params.append(var)


def _record_fresh(var: relax.Var, scan: _Scan) -> None:
    shape = shape_at(var, scan.sizes)
    if shape is not None:
        scan.arguments[var] = _new_fresh(shape, str(var.ty.dtype), scan)


def _new_fresh(shape: tuple[int, ...], dtype: str, scan: _Scan) -> Argument:
    scan.fresh += 1
    return Argument("fresh", scan.fresh - 1, shape, dtype)


def _record_call(call: relax.Call, scan: _Scan) -> None:
    arguments = [scan.arguments.get(scan.bindings.resolve(arg)) for arg in call.args]
    known = [argument for argument in arguments if argument is not None]
    if len(known) == len(arguments):
        scan.calls.append(KernelCall(call.op.name_hint, tuple(known), scan.conditions))


def _outputs(main: relax.Function, roots: list[relax.Expr], scan: _Scan) -> tuple[OutputPlan, ...]:
    """An output is owned when it was allocated in this call and no earlier output shares its memory."""
    types = main.ret_ty.fields if isinstance(main.ret_ty, relax.TupleType) else [main.ret_ty]
    if len(types) != len(roots):
        return tuple(OutputPlan(str(ty.dtype), False) for ty in types)
    return tuple(
        OutputPlan(str(ty.dtype), _is_fresh(root, scan) and root not in roots[:position], scan.arguments.get(root))
        for position, (ty, root) in enumerate(zip(types, roots, strict=True))
    )


def _is_fresh(root: relax.Expr, scan: _Scan) -> bool:
    value = scan.bindings.values.get(root) if isinstance(root, relax.Var) else None
    if call_name(value) == "builtin.alloc_tensor":
        return root in scan.outputs
    if isinstance(value, relax.TupleGetItem):
        value = scan.bindings.values.get(value.tuple_value)
    return is_extern(value, RUN_SUBGRAPH)
