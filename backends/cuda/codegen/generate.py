"""Writes CUDA C of scheduled PrimFuncs, by TVM's own generator, which needs neither a toolkit nor a device."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.backend
from tvm import s_tir, tirx
from tvm_ffi.structural import StructuralMutator

from backends.cuda.codegen.device_functions import INSTRUCTIONS
from backends.tensorir.stages import dtype_of, shape_of
from fusion.structural import find, mutate
from fusion.tensors import tensor_bytes

BLOCKS_OF_SM = "fusion.blocks_of_sm"
"""An annotation of the loop over blocks: as many an SM is to hold at once, for which ptxas leaves registers. Where it
is not said, ptxas stays at 128 or 168 for some kernels that need a few more, and spills."""
PRELUDE = """\
#ifdef __CUDACC_RTC__
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif
#define CUDART_INF_F __int_as_float(0x7F800000)
#define CUDART_NAN_F __int_as_float(0x7FFFFFFF)
#ifndef FUSION_HAS_HALF
struct __align__(2) half {
  unsigned short bits;
  half() = default;
  __device__ __forceinline__ half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ __forceinline__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
struct __align__(2) nv_bfloat16 {
  unsigned short bits;
  nv_bfloat16() = default;
  __device__ __forceinline__ nv_bfloat16(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ __forceinline__ operator float() const { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
};
#endif
__device__ __forceinline__ half __float2half_rn(float x) { return half(x); }
__device__ __forceinline__ nv_bfloat16 __float2bfloat16_rn(float x) { return nv_bfloat16(x); }
struct half2 { unsigned int both; };
struct nv_bfloat162 { unsigned int both; };
struct __align__(8) half4 { unsigned int first, second; };
struct __align__(8) nv_bfloat164 { unsigned int first, second; };
"""
"""In place of TVM's, whose headers NVRTC alone does not bring: what kernels need of it that compute in float32.

Conversions are those of PTX, on devices from sm_80 on. Pairs of narrow numbers are moved only.
"""


@dataclass(frozen=True)
class CudaKernel:
    """One kernel as CUDA C.

    Attributes:
        source: The whole file.
        symbol: Of the function in it.
        parameters: Names of its pointers, in its order.
        blocks: Of the grid, which has one dimension.
        threads: Of a block, which has one dimension.
        shared_bytes: Of the shared memory that a launch has to ask for.
    """

    source: str
    symbol: str
    parameters: tuple[str, ...]
    blocks: int
    threads: int
    shared_bytes: int = 0


def generate_kernel(func: tirx.PrimFunc, name: str, arch: str) -> CudaKernel:
    """Return the CUDA C of a PrimFunc without blocks, whose loops are bound to `blockIdx.x` and `threadIdx.x`.

    Args:
        name: Of the PrimFunc; the function on the device is called after it.
        arch: As nvcc calls it, such as "sm_80".
    """
    tvm.backend.load("cuda")  # which `fusion.runtime` leaves out
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    module = tvm.IRModule({name: func.with_attr("global_symbol", name)})
    passes = _lower(target.with_host(tvm.target.Target("llvm")), narrows=not _has_int64(func))
    functions = passes(module).functions.items()
    ((symbol, kernel),) = ((symbol, made) for symbol, made in functions if symbol.name_hint != name)
    kernels = tvm.IRModule({symbol: kernel.with_body(_unsigned(_with_whole_doubles(kernel.body)))})
    text = tvm.get_global_func("target.build.cuda")(kernels, target).inspect_source()
    text, extents = text[text.index('extern "C" __global__') :], _launch_extents(func)
    for blocks in _blocks_of_sm(func):
        text = leave_registers_for(blocks, text)
    return CudaKernel(
        source=PRELUDE + INSTRUCTIONS + text,
        symbol=str(symbol.name_hint),
        parameters=tuple(str(param.name).removesuffix("_ptr") for param in kernel.params),
        blocks=extents.get("blockIdx.x", 1),
        threads=extents.get("threadIdx.x", 1),
        shared_bytes=_dynamic_bytes(func),
    )


def leave_registers_for(blocks: int, source: str) -> str:
    """Return CUDA C of a kernel that has ptxas leave registers for so many blocks on an SM, in place of those that it
    named before."""
    return re.sub(r"(__launch_bounds__\(\d+)[^)]*\)", rf"\1, {blocks})", source)


def _with_whole_doubles(body: tirx.Stmt) -> tirx.Stmt:
    """Return a kernel's statements with the bits of each float64: TVM writes 15 digits behind the point of it, and
    nothing of what is smaller."""

    def bits(number: tirx.FloatImm, mutator: StructuralMutator) -> Any:
        if str(number.ty.dtype) != "float64":
            return number
        (whole,) = struct.unpack("<q", struct.pack("<d", number.value))
        return tirx.call_pure_extern("float64", "__longlong_as_double", tirx.const(whole, "int64"))

    return mutate(body, [(tirx.FloatImm, bits)])


def _unsigned(body: tirx.Stmt) -> tirx.Stmt:
    """Return statements without int128, of which `legalize.wraps` asks for the low half: TVM writes no such C, where
    unsigned numbers wrap.

    `int32(int128(x) * int128(y))`  ->  `int32(uint32(x) * uint32(y))`
    """

    def narrow(cast: tirx.Cast, mutator: StructuralMutator) -> Any:
        inner = cast.value
        if not str(inner.ty.dtype).startswith("int128") or not isinstance(inner, tirx.Add | tirx.Sub | tirx.Mul):
            return mutator.default_mutate(cast)
        dtype = str(cast.ty.dtype)
        unsigned = dtype if dtype.startswith("u") else f"u{dtype}"
        return tirx.Cast(dtype, type(inner)(*(low(each, unsigned, mutator) for each in (inner.a, inner.b))))

    def low(operand: Any, unsigned: str, mutator: StructuralMutator) -> Any:
        if isinstance(operand, tirx.IntImm):
            value, kept = int(operand), tirx.const(0, unsigned)
            return tirx.const(value, unsigned) if value >= 0 else kept - tirx.const(-value, unsigned)
        return tirx.Cast(unsigned, mutator.mutate(operand.value))

    return mutate(body, [(tirx.Cast, narrow)])


def _has_int64(func: tirx.PrimFunc) -> bool:
    """Return whether numbers are int64, which `ForceNarrowIndexToInt32` refuses."""
    buffers = [*func.params, *(node.buffer for node in find(func.body, tirx.AllocBuffer))]
    return any(dtype_of(buffer) == "int64" for buffer in buffers)


def _lower(target: tvm.target.Target, *, narrows: bool) -> tvm.transform.Pass:
    """Return what our kernels need of TVM's list, in a fifth of its time.

    Left out is what is for blocks, annotations and hosts, and what NVRTC does as well: common subexpressions, loops
    that are split, branches that are moved out of them.
    """
    return tvm.transform.Sequential(
        [
            *([tirx.transform.ForceNarrowIndexToInt32()] if narrows else []),
            tirx.transform.BindTarget(target),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.FlattenBuffer(),
            tirx.transform.NarrowDataType(32),
            tirx.transform.VectorizeLoop(True),
            tirx.transform.StorageRewrite(),
            tirx.transform.UnrollLoop(),
            tirx.transform.StmtSimplify(),
            s_tir.transform.RewriteUnsafeSelect(),
            tirx.transform.AnnotateEntryFunc(),
            s_tir.transform.ThreadSync("shared"),
            tirx.transform.SplitHostDevice(),
            tirx.transform.BF16StorageLegalize(),
            tirx.transform.LowerIntrin(),
        ]
    )


def _blocks_of_sm(func: tirx.PrimFunc) -> list[int]:
    """Return what the loop over blocks says; nothing where it does not."""
    loops = (loop for loop in find(func.body, tirx.For) if loop.thread_binding is not None)
    return [int(loop.annotations[BLOCKS_OF_SM]) for loop in loops if BLOCKS_OF_SM in loop.annotations]


def _launch_extents(func: tirx.PrimFunc) -> dict[str, int]:
    """Return the extents of the loops that are bound to blocks and threads, by what they are bound to."""
    loops = [loop for loop in find(func.body, tirx.For) if loop.thread_binding is not None]
    return {str(loop.thread_binding.thread_tag): int(loop.extent) for loop in loops}


def _dynamic_bytes(func: tirx.PrimFunc) -> int:
    """Return the size of the shared memory whose size a launch says."""
    buffers = [node.buffer for node in find(func.body, tirx.AllocBuffer)]
    dynamic = [buffer for buffer in buffers if str(buffer.scope()) == "shared.dyn"]
    return sum(tensor_bytes(shape_of(buffer), dtype_of(buffer)) for buffer in dynamic)
