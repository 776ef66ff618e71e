"""From scheduled kernels and Relax calls to a library: the list of VM-lowering passes, code generation, linking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax import _ffi_api, transform
from tvm.relax.vm_build import _filter_tir, _vmcodegen

from fusion.bindings import Bindings, data_of
from fusion.context import Context
from fusion.errors import SavedFileError
from fusion.library import LoadedLibrary
from fusion.lowered import Lowered
from fusion.module.check_returned import check_returned
from fusion.module.kernel_cache import open_kernels
from fusion.module.linker import ELF, ROOM, find_linker, load_linked
from fusion.module.plan import RunPlan
from fusion.module.preallocate import preallocate
from fusion.module.shared_library import temporary_folder
from fusion.stages import stage

Generate = Callable[[tvm.IRModule], list[tvm.runtime.Module]]


@dataclass(frozen=True)
class Built:
    """Machine code of a model and the plan to run it.

    Attributes:
        executable: What can be linked and saved.
        library: The same code, ready to run in this process; None unless that was asked for.
        plan: The buffers it runs in.
        linked: The bytes of `library`, where it was linked.
        notes: Why it was not built as it should have been.
    """

    executable: tvm.runtime.Executable
    library: LoadedLibrary | None
    plan: RunPlan
    linked: bytes | None = None
    notes: tuple[str, ...] = ()


@stage("machine code")
def build(lowered: Lowered, n_inputs: int, ctx: Context, *, to_run: bool = True) -> Built:
    """Return the machine code of `lowered`, whose `main` takes `n_inputs` inputs before the weights.

    Args:
        to_run: Whether this process will run it; False for code of which this machine lacks instructions.
    """
    with ctx.target:
        mod, plan = plan_calls(lowered.mod, n_inputs)
        mod = check_returned(mod)
        mod = tvm.transform.Sequential(_to_vm_calls())(mod)
        mod = drop_checks(mod)
        mod = transform.AttachGlobalSymbol()(mod)
        return _generate(mod, plan, ctx) if to_run else Built(_assemble(mod, ctx, _objects(mod, ctx)), None, plan)


def plan_calls(mod: tvm.IRModule, n_inputs: int) -> tuple[tvm.IRModule, RunPlan]:
    """Return `mod`, as it was lowered, with planned activations as parameters of `main`, and what to pass for them."""
    return preallocate(tvm.transform.Sequential(_to_planned_calls())(mod), n_inputs)


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


def drop_checks(mod: tvm.IRModule) -> tvm.IRModule:
    """Remove the checks of each parameter at the entry of `main`: `InputSlot` has checked the inputs.

    With 41 parameters they took 5.3 us of 13.5. Checks of other values stay: those are what foreign functions return.

    Only modules without symbolic shapes: there, matching a shape also defines values.
    """
    main = mod["main"]
    heap = [each for each in Bindings.of(main).all if _calls(each, {"vm.builtin.alloc_shape_heap"})]
    if heap:
        return mod
    params = set(main.params)
    blocks = [
        relax.BindingBlock([b for b in block.bindings if not (_calls(b, _CHECKS) and data_of(b.value) in params)])
        for block in main.body.blocks
    ]
    body = relax.SeqExpr([block for block in blocks if block.bindings], main.body.body)
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    checked = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), checked)
    return result


_CHECKS = {"vm.builtin.check_tensor_info", "vm.builtin.match_shape"}


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
    if not ELF:
        return "the system's object files are not ELF"
    if find_linker() is None:
        return "none was found"
    try:
        executable = _assemble(mod, ctx, _objects(mod, ctx))
        library, linked = load_linked(executable)
        return Built(executable, library, plan, linked)
    except SavedFileError as error:
        return f"{error.what.removeprefix('cannot save: ')}: {error.why}"


def _objects(mod: tvm.IRModule, ctx: Context) -> Generate:
    kept = open_kernels(mod, ctx)

    def generate(kernels: tvm.IRModule) -> list[tvm.runtime.Module]:
        with temporary_folder(ROOM) as folder:
            paths = ctx.compiler.write_objects(kernels, folder, kept)
            return [tvm.runtime.load_static_library(str(path), []) for path in paths]

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
