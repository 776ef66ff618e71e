"""The kernels of a model that is lowered for a device beside the CPU, with loops for the CPU: tasks go to either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import tirx

from backends.backend import KernelCompiler
from backends.tensorir.kernel_info import kernel_info
from backends.tensorir.result import Kernel, Scheduled
from fusion.lowered import Lowered
from fusion.report.estimate import estimate_kernels


def host_kernels(lowered: Lowered, compiler: KernelCompiler) -> dict[str, Kernel]:
    """Return the kernels of `lowered` by name, with loops by `compiler`."""
    made = {name: _scheduled(source, compiler) for name, source in lowered.sources.items()}
    return {name: Kernel(source, made[name], made[name].func) for name, source in lowered.sources.items()}


def _scheduled(source: tirx.PrimFunc, compiler: KernelCompiler) -> Scheduled:
    """Return a kernel with loops that takes the weights as they are, for the other device takes them so."""
    made = compiler.schedule(source)
    return made if made.repack is None else compiler.schedule(source, plain=True)


def with_kernels(lowered: Lowered, kernels: Mapping[str, Kernel]) -> Lowered:
    """Return `lowered`, or a part of it, with these loops in place of its own."""
    functions = dict(lowered.mod.functions)
    for symbol in functions:
        if symbol.name_hint in kernels:
            functions[symbol] = kernels[symbol.name_hint].func
    return replace(lowered, mod=tvm.IRModule(functions, attrs=lowered.mod.attrs))


def host_estimates(lowered: Lowered, kernels: Mapping[str, Kernel], compiler: KernelCompiler) -> dict[str, float]:
    """Return the seconds that a call of each kernel is estimated to take on the CPU."""
    infos = {name: kernel_info(name, kernel) for name, kernel in kernels.items()}
    known = estimate_kernels(infos, lowered.graph.calls, lowered.weights, compiler)
    return {name: info.estimate_us * 1e-6 for name, info in known.items()}
