"""From kernels with loops to machine code: the list of TensorIR passes, then LLVM."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import pipeline as block_pipeline
from tvm_ffi.structural import StructuralMutator

from backends.cpu.codegen.bfloat16 import broadcast_bits, compute_in_lets
from backends.cpu.codegen.masks import mask_lanes
from backends.cpu.codegen.share_memory import share_memory
from backends.cpu.llvm_level import target_for
from backends.tensorir.emit import Nest, prefetch
from fusion.stages import stage
from fusion.structural import contains, mutate


def generate_module(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Return the code of the PrimFuncs `mod` as one module, which can run without a linker.

    Without blocks, every loop has a step of 1, and parallel and vectorized ones begin at 0 (TVM refuses others).
    """
    target = target_for(mod, target)
    bound = tirx.transform.BindTarget(target.with_host(target))(mod)
    with stage("TensorIR passes"):
        lowered = _lower(bound)
    with stage("LLVM"):
        return tvm.get_global_func("target.build.llvm")(lowered, target)


def _lower(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` as LLVM's code generator takes it."""
    lowered = tvm.IRModule({}, attrs=mod.attrs)
    for has_blocks, lower in ((True, _lower_blocks()), (False, _lower_loops())):
        functions = {symbol: func for symbol, func in mod.functions.items() if _has_blocks(func) == has_blocks}
        if functions:
            assert has_blocks or not any(map(_has_steps, functions.values()))
            lowered.update(lower(tvm.IRModule(functions, attrs=mod.attrs)))
    # LLVM took 1.9 s with the checks of each argument of each kernel, 1.5 s without (MobileNetV2). `main` alone calls
    # kernels, and knows what it passes: `InputSlot` checks inputs, `check_returned` what foreign functions return, and
    # the rest it allocates itself. -O2 in place of -O3 made compiling 4% faster and BERT-tiny 1.5% slower.
    return _align(tirx.transform.SkipAssert()(lowered))


def _align(mod: tvm.IRModule) -> tvm.IRModule:
    """Let code read and write at any address its elements may have, and save vector registers in whole cache lines.

    NumPy aligns arrays to 16 bytes, and TVM assumes 64 of every argument. A copy of each input took as long as a
    memory-bound kernel; vector instructions without the assumption are as fast where an address is aligned after all.

    LLVM aligns the stack frame of a function only for objects that it knows of before it runs out of registers. At the
    16 bytes of the caller's frame, what it saves then lies in two lines each, and reading that back stalls: a first
    layer took 900 us in one thread of a process and 257 in another. So each function gets an object of a line.
    """

    def loop(found: tirx.For, mutator: StructuralMutator) -> object:
        inner = mutator.default_mutate(found)
        if found.kind != tirx.ForKind.PARALLEL:  # whose body becomes a function
            return inner
        return tirx.For(
            inner.loop_var, inner.min, inner.extent, inner.kind, _with_line(inner.body), inner.thread_binding,
            inner.annotations, inner.step,
        )  # fmt: skip

    def attribute(found: tirx.AttrStmt, mutator: StructuralMutator) -> object:
        if found.attr_key == "storage_alignment":
            # A kernel has one of these around the next for each of its tensors: too many to go into one by one.
            body = found.body
            while isinstance(body, tirx.AttrStmt) and body.attr_key == "storage_alignment":
                body = body.body
            return mutator.mutate(body)
        inner = mutator.default_mutate(found)
        if found.attr_key != "compute_scope":  # the rest of a function
            return inner
        return tirx.AttrStmt(inner.node, inner.attr_key, inner.value, _with_line(inner.body))

    rules = [(tirx.For, loop), (tirx.AttrStmt, attribute)]
    functions = {symbol: func.with_body(mutate(func.body, rules)) for symbol, func in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def _with_line(body: tirx.Stmt) -> tirx.Stmt:
    """Return `body` behind a local object of a cache line, whose address a prefetch keeps LLVM from removing."""
    nest = Nest()
    prefetch(nest, tirx.BufferLoad(nest.allocate("line", (1,), "float32x16"), [tirx.const(0, "int32")]))
    nest.add(body)
    return nest.finish()


def _has_blocks(func: tirx.PrimFunc) -> bool:
    return contains(func.body, (s_tir.SBlock, lambda block: True))


def _has_steps(func: tirx.PrimFunc) -> bool:
    """Return whether a loop has a step; to look at 4000 takes 27 ms (MobileViT)."""
    return contains(func.body, (tirx.For, lambda loop: loop.step is not None))


def _lower_blocks() -> tvm.transform.Pass:
    """Return TVM's own list, for what `fallback_loops` and TVM's legalizations leave."""
    lower, finish, _ = block_pipeline.default_s_tir_pipeline()
    return tvm.transform.Sequential([lower, finish()])


def _lower_loops() -> tvm.transform.Pass:
    """Return what the kernels of our templates need of TVM's list, in 2.0 s where all of it takes 4.0 (PP-OCR's
    classifier).

    Left out, beside what is for blocks, annotations and GPUs: CanonicalizeLoop, as only loops with a step need it;
    CommonSubexprElim, RemoveNoOp, HoistIfThenElse and LoopPartition, as LLVM or the templates do their work;
    SplitHostDevice and AnnotateEntryFunc, as all code is the host's and called by name.
    """
    return tvm.transform.Sequential(
        [
            tirx.transform.FlattenBuffer(),
            compute_in_lets(),
            tirx.transform.BF16ComputeLegalize(),
            tirx.transform.NarrowDataType(32),
            tirx.transform.VectorizeLoop(True),
            broadcast_bits(),
            share_memory(),
            tirx.transform.UnrollLoop(),
            # Without it LLVM takes four times as long.
            tirx.transform.StmtSimplify(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.FP8ComputeLegalize(),
            # Otherwise MakePackedAPI refuses kernels in which two loops share a variable.
            tirx.transform.ConvertSSA(),
            tirx.transform.MakePackedAPI(),
            tirx.transform.FP8StorageLegalize(),
            tirx.transform.BF16StorageLegalize(),
            mask_lanes(),
            tirx.transform.LowerTVMBuiltin(),
            tirx.transform.LowerIntrin(),
        ]
    )
