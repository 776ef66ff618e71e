"""From scheduled kernels and Relax calls to a library: the list of VM-lowering passes, code generation, linking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import tvm
from tvm import relax, tirx
from tvm.relax import _ffi_api, transform
from tvm.relax.vm_build import _filter_tir, _vmcodegen

from fusion.bindings import Bindings, data_of
from fusion.context import Context
from fusion.errors import SavedFileError
from fusion.extents import Sizes
from fusion.library import LoadedLibrary
from fusion.lowered import Lowered
from fusion.module.check_returned import check_returned, name_libraries
from fusion.module.linker import load_linked
from fusion.module.plan import RunPlan
from fusion.module.preallocate import preallocate
from fusion.module.storages import share_by_order
from fusion.module.write_objects import why_not_linked, writing_code
from fusion.stages import stage

_NO_SIZES: Sizes = MappingProxyType({})
Generate = Callable[[tvm.IRModule], list[tvm.runtime.Module]]


@dataclass(frozen=True)
class Built:
    """Machine code of a model and the plan to run it.

    Attributes:
        executable: What can be linked and saved.
        library: The same code, ready to run in this process; None unless that was asked for.
        plan: The buffers it runs in; of a model with symbols those at the sizes it was planned for.
        others: The plan at other sizes, where there are symbols.
        linked: The bytes of `library`, where it was linked.
        notes: Why it was not built as it should have been.
    """

    executable: tvm.runtime.Executable
    library: LoadedLibrary | None
    plan: RunPlan
    linked: bytes | None = None
    notes: tuple[str, ...] = ()
    others: tuple[RunPlan, ...] = ()


@stage("machine code")
def build(lowered: Lowered, n_inputs: int, ctx: Context, *, sizes: Sequence[Sizes] = (), to_run: bool = True) -> Built:
    """Return the machine code of `lowered`, whose `main` takes `n_inputs` inputs before the weights.

    Args:
        sizes: Of the symbols in its shapes: those at which its memory is planned, then others.
        to_run: Whether this process will run it; False for code of which this machine lacks instructions.
    """
    with ctx.target:
        first, *rest = sizes or (_NO_SIZES,)
        planned = _planned(lowered.mod, first)
        mod, plan = preallocate(planned, n_inputs, first)
        others = tuple(preallocate(planned, n_inputs, each)[1] for each in rest)
        mod = check_returned(mod)
        mod = tvm.transform.Sequential(_to_vm_calls())(mod)
        mod = name_libraries(drop_checks(mod, n_inputs))
        mod = transform.AttachGlobalSymbol()(mod)
        built = _generate(mod, plan, ctx) if to_run else Built(_assemble(mod, ctx, _objects(ctx)), None, plan)
        return replace(built, others=others)


def plan_calls(mod: tvm.IRModule, n_inputs: int) -> tuple[tvm.IRModule, RunPlan]:
    """Return `mod`, as it was lowered, with planned activations as parameters of `main`, and what to pass for them."""
    return preallocate(_planned(mod, _NO_SIZES), n_inputs, _NO_SIZES)


def plan_branches(mod: tvm.IRModule, n_inputs: int) -> tuple[tvm.IRModule, RunPlan]:
    """Return the same as `plan_calls`, for a run that computes branches at the same time."""
    planned = _planned(mod, _NO_SIZES)
    _, apart = preallocate(planned, n_inputs, _NO_SIZES, apart=True)
    result, in_turn = preallocate(planned, n_inputs, _NO_SIZES)
    return result, share_by_order(apart, in_turn)


def _planned(mod: tvm.IRModule, sizes: Sizes) -> tvm.IRModule:
    """Return `mod` with the storages of its activations; which of them share one is decided at `sizes`."""
    return tvm.transform.Sequential(_to_planned_calls())(_with_sizes(mod, sizes) if sizes else mod)


def _with_sizes(mod: tvm.IRModule, sizes: Sizes) -> tvm.IRModule:
    """Return `mod` with the sizes that `StaticPlanBlockMemory` is to take for the symbols of `main`."""
    bounds = {symbol: tirx.IntImm("int64", size) for symbol, size in sizes.items()}
    result = mod.clone()
    result["main"] = mod["main"].with_attr("tir_var_upper_bound", bounds)
    return result


def _to_planned_calls() -> list[tvm.transform.Pass]:
    return [
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        # Aliases and tuples would be instructions of the virtual machine, 0.3 us each.
        transform.CanonicalizeBindings(),
        transform.StaticPlanBlockMemory(),
    ]


def _to_vm_calls() -> list[tvm.transform.Pass]:
    return [
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
    ]


def drop_checks(mod: tvm.IRModule, n_inputs: int) -> tvm.IRModule:
    """Remove the checks of each parameter at the entry of `main`: `InputSlot` has checked the inputs.

    With 41 parameters they took 5.3 us of 13.5. Checks of other values stay: those are what foreign functions return.
    Where there are symbolic shapes, matching those of the first `n_inputs` parameters also defines the symbols.
    """
    main = mod["main"]
    has_symbols = any(_calls(each, {"vm.builtin.alloc_shape_heap"}) for each in Bindings.of(main).all)
    defining = set(main.params[:n_inputs]) if has_symbols else set[relax.Var]()
    params = set(main.params)
    blocks = [
        relax.BindingBlock([each for each in block.bindings if not _is_check(each, params, defining)])
        for block in main.body.blocks
    ]
    body = relax.SeqExpr([block for block in blocks if block.bindings], main.body.body)
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    checked = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), checked)
    return result


def _is_check(binding: relax.Binding, params: set[relax.Var], defining: set[relax.Var]) -> bool:
    """Return whether `binding` looks at a parameter, and defines no symbol from one of `defining`."""
    if _calls(binding, {_MATCH_SHAPE}):
        return data_of(binding.value) in params - defining
    return _calls(binding, {"vm.builtin.check_tensor_info"}) and data_of(binding.value) in params


_MATCH_SHAPE = "vm.builtin.match_shape"


def _calls(binding: relax.Binding, names: set[str]) -> bool:
    value = binding.value
    if not isinstance(value, relax.Call):
        return False
    # What needs the virtual machine's context is the first argument of `call_builtin_with_ctx`.
    return any(isinstance(f, relax.ExternFunc) and str(f.global_symbol) in names for f in (value.op, *value.args[:1]))


def _generate(mod: tvm.IRModule, plan: RunPlan, ctx: Context) -> Built:
    linked = _linked(mod, plan, ctx)
    if isinstance(linked, Built):
        return linked
    executable = _assemble(mod, ctx, lambda kernels: [ctx.compiler.generate_module(kernels)])
    library = LoadedLibrary(executable.jit(), pooled=False)
    return Built(executable, library, plan, notes=(f"compiled in one thread and without a linker: {linked}",))


def _linked(mod: tvm.IRModule, plan: RunPlan, ctx: Context) -> Built | str:
    """Return the code, made in several threads and linked, or why this machine cannot do that."""
    if reason := why_not_linked():
        return reason
    try:
        executable = _assemble(mod, ctx, _objects(ctx))
        library, linked = load_linked(executable)
        return Built(executable, library, plan, linked)
    except SavedFileError as error:
        return f"{error.what.removeprefix('cannot save: ')}: {error.why}"


def _objects(ctx: Context) -> Generate:
    def generate(kernels: tvm.IRModule) -> list[tvm.runtime.Module]:
        with writing_code(ctx) as writer:
            return [tvm.runtime.load_static_library(str(path), []) for path in writer.finish(kernels)]

    return generate


_MANY_RESULTS = 64


def _assemble(mod: tvm.IRModule, ctx: Context, generate: Generate) -> tvm.runtime.Executable:
    """Generate code for kernels and for `main` too ("compiled"): a call takes it 0.07 us, bytecode 0.2 us.

    With many results `main` mostly asks for memory for them, of which code is no faster than bytecode: LLVM took 7 s of
    a `Split` into 200, and all the rest 1.
    """
    builder = relax.ExecBuilder()
    kind = mod["main"].ret_ty
    many = isinstance(kind, relax.TupleType) and len(kind.fields) > _MANY_RESULTS
    kernels = _filter_tir(_vmcodegen(builder, mod, "bytecode" if many else "compiled"))
    first, *others = generate(kernels)
    return relax.VMExecutable(_ffi_api.VMLink(builder, ctx.target, first, others, {}))
