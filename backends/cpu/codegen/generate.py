"""From kernels with loops to machine code: the list of TensorIR passes, then LLVM."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import pipeline as block_pipeline

from backends.cpu.codegen.bfloat16 import broadcast_bits, compute_in_lets
from backends.cpu.codegen.frames import align
from backends.cpu.codegen.functions import in_line
from backends.cpu.codegen.masks import mask_lanes
from backends.cpu.codegen.share_memory import share_memory
from backends.cpu.llvm_level import target_for
from fusion.stages import stage
from fusion.structural import contains


def generate_module(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Return the code of the PrimFuncs `mod` as one module, which can run without a linker.

    Without blocks, every loop has a step of 1, and parallel and vectorized ones begin at 0 (TVM refuses others).
    """
    target = target_for(mod, target)
    mod = tvm.IRModule({symbol: in_line(func) for symbol, func in mod.functions.items()}, attrs=mod.attrs)
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
    return align(tirx.transform.SkipAssert()(lowered))


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
