"""Makes `main` ask the system for large pages for large results, before a kernel writes them.

    y = alloc_tensor(..)  ->  y = alloc_tensor(..); advise(y)

Memory of results is the caller's, so that those beyond what the system's allocator keeps come from fresh pages. Writing
46 MB in 11,776 pages of 4 KiB, each of which is a fault, takes 21 ms on Emerald Rapids, and 4 in pages of 2 MiB (memory
that is used again: 1.8). NumPy asks for those of its own arrays in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import tvm
from tvm import relax, tirx

from backends.tensorir.emit import Nest, int64
from fusion.bindings import call_name
from fusion.shapes import dims_of
from fusion.tensors import numpy_dtype, tensor_bytes

_LEAST = 4 << 20
"""Bytes of a result that is large: as much as of an array of NumPy's."""
_PAGE = 1 << 16
"""What the address is rounded up to: pages of x86-64 have 4 KiB, those of some Arm systems 64."""
_HUGE_PAGES = 14
"""MADV_HUGEPAGE of Linux's asm-generic/mman-common.h."""
_ADVISE = "fusion_advise_large_pages"
_LLVM_IR = f"""
declare i32 @madvise(ptr, i64, i32)

define i32 @{_ADVISE}(ptr %first, i64 %bytes) {{
  %at = ptrtoint ptr %first to i64
  %behind = add i64 %at, {_PAGE - 1}
  %from = and i64 %behind, -{_PAGE}
  %lost = sub i64 %from, %at
  %left = sub i64 %bytes, %lost
  %pages = inttoptr i64 %from to ptr
  %done = call i32 @madvise(ptr %pages, i64 %left, i32 {_HUGE_PAGES})
  ret i32 %done
}}
"""


def advise_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` with a call behind each allocation in `main` that may be large; on Linux, which has that call.

    Expects the form after `preallocate`, where only results are allocated, and what has a size that the run decides.
    """
    main, builder = mod["main"], relax.BlockBuilder(mod)
    made: dict[tuple[int, str], tvm.ir.GlobalVar] = {}

    def advice(kind: relax.TensorType) -> tvm.ir.GlobalVar:
        key = int(kind.ndim), str(kind.dtype)
        if key not in made:
            made[key] = builder.add_func(_advice(*key), "advise_result")
        return made[key]

    body = _advised(main.body, advice)
    if not made:
        return mod
    result = builder.finalize()
    changed = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), changed)
    return result


def _advised(body: relax.SeqExpr, advice: Callable[[relax.TensorType], tvm.ir.GlobalVar]) -> relax.SeqExpr:
    blocks = []
    for block in body.blocks:
        bindings = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                branches = [_advised(branch, advice) for branch in (value.true_branch, value.false_branch)]
                bindings.append(relax.VarBinding(binding.var, relax.If(value.cond, *branches, value.span)))
                continue
            bindings.append(binding)
            if call_name(value) == "builtin.alloc_tensor" and _may_be_large(binding.var.ty):
                nothing = relax.TupleType([])
                call = relax.Call(advice(binding.var.ty), [binding.var], None, [nothing])
                bindings.append(relax.VarBinding(relax.Var("advised", nothing), call))
        blocks.append(relax.BindingBlock(bindings, block.span))
    return relax.SeqExpr(blocks, body.body)


def _may_be_large(kind: relax.TensorType) -> bool:
    """Return whether a tensor is large, or may be where a call decides."""
    dims = dims_of(kind.shape)
    if dims is None:
        return False
    known = [extent for extent in dims if extent is not None]
    return len(known) < len(dims) or tensor_bytes(tuple(known), str(kind.dtype)) >= _LEAST


def _advice(rank: int, dtype: str) -> tirx.PrimFunc:
    """Return what asks for the pages of a tensor of this rank."""
    extents = [tirx.Var(f"n{axis}", "int64") for axis in range(rank)]
    result = tirx.decl_buffer(extents, dtype, "result")
    size = prod(extents, start=int64(numpy_dtype(dtype).itemsize))
    nest = Nest()
    nest.use_functions(_LLVM_IR)
    with nest.when(size >= _LEAST):
        first = tirx.address_of(tirx.BufferLoad(result, [int64(0)] * rank))
        nest.add(tirx.Evaluate(tirx.call_extern("int32", _ADVISE, first, size)))
    return tirx.PrimFunc([result], nest.finish())
