"""Make one PrimFunc of a Relax function, schedule it with the memory-bound templates, and run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Marks
from backends.tensorir.legalize import LEGALIZATIONS
from backends.tensorir.result import Scheduled
from fusion import context
from tests.backends.cpu.kernels.templates import schedule_with
from tests.kept_code import unoptimised
from tests.targets import machine_code

Build = Callable[..., relax.Expr]


def prim_func(build: Build, arrays: Sequence[np.ndarray]) -> tirx.PrimFunc:
    """Return `build(builder, *inputs)`, legalised and merged into one PrimFunc."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("group", inputs, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(builder, *inputs)))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps(LEGALIZATIONS)(builder.get())
    outer = relax.BlockBuilder(module)
    arguments = [relax.Var(var.name, var.ty) for var in inputs]
    with outer.function("main", arguments):
        with outer.dataflow():
            result = outer.emit_output(relax.Call(module.get_global_var("group"), arguments))
        outer.emit_func_output(result)
    fused = relax.transform.FuseTIR()(outer.get())
    (func,) = [f for g, f in fused.functions.items() if isinstance(f, tirx.PrimFunc) and g.name_hint == "group"]
    return func


def schedule(build: Build, arrays: Sequence[np.ndarray], target: str = "llvm", threads: int = 2) -> Scheduled:
    """Return the scheduled kernel."""
    return schedule_func(prim_func(build, arrays), target, threads)


def schedule_func(func: tirx.PrimFunc, target: str, threads: int) -> Scheduled:
    """Return `func` with its loops."""
    templates = [template for template in priority.takers(func, Marks.of(func)) if template.claims is None]
    return schedule_with(templates, func, context.resolve(target).compiler.machine, threads)


def run(kernel: Scheduled, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile for this host and return the outputs; they are filled with NaN bytes before."""
    (outputs,) = run_different([kernel], arrays)
    return outputs


def run_different(
    kernels: Sequence[Scheduled], arrays: Sequence[np.ndarray], *, all_optimised: bool = False
) -> list[list[np.ndarray]]:
    """Compile those that differ for this host, and return the outputs of each, in order.

    Several targets often have the same loops for small tensors; a module for each kernel takes LLVM twice as long. LLVM
    optimises the first, the loops for this CPU, and the others with `all_optimised` alone: see `code_target`.
    """
    different: list[tirx.PrimFunc] = []
    for kernel in kernels:
        if not any(tvm_ffi.structural_equal(kernel.func, func) for func in different):
            different.append(kernel.func)
    host, many = context.resolve().target, len(different) if all_optimised else 1
    parts = (different[:many], host), (different[many:], unoptimised(host))
    inputs = [tvm.runtime.tensor(np.asarray(array)) for array in arrays]
    return [outputs for funcs, target in parts if funcs for outputs in _run_all(funcs, target, inputs)]


def _run_all(
    funcs: Sequence[tirx.PrimFunc], target: tvm.target.Target, inputs: Sequence[tvm.runtime.Tensor]
) -> Iterator[list[np.ndarray]]:
    """Yield the outputs of functions that are compiled as one module."""
    named = {f"k{place}": func.with_attr("global_symbol", f"k{place}") for place, func in enumerate(funcs)}
    library = machine_code(tvm.IRModule(named), target)
    for name, func in named.items():
        outputs = [_poisoned(param) for param in func.params[len(inputs) :]]
        library[name](*inputs, *outputs)
        yield [output.numpy() for output in outputs]


def _poisoned(param: tirx.Var) -> tvm.runtime.Tensor:
    shape = tuple(int(dim) for dim in param.ty.shape)
    dtype = np.dtype(str(param.ty.dtype.dtype))
    return tvm.runtime.tensor(np.frombuffer(b"\xff" * dtype.itemsize, dtype)[0] * np.ones(shape, dtype)
                              if dtype.kind != "b" else np.ones(shape, dtype))  # fmt: skip
