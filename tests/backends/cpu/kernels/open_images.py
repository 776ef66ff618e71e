"""Kernels over images of which only a call knows the sizes, against the kernels of the sizes of each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np
import tvm
from tvm import tirx

from backends.cpu.schedule import schedule
from backends.tensorir.result import Scheduled
from backends.tensorir.symbols import bind, symbols_of
from fusion import context
from fusion.structural import find
from fusion.symbolic.fit import Fit
from tests.backends.cpu.kernels.anchored import normal, one_kernel
from tests.kept_code import unoptimised
from tests.passes.modules import Build
from tests.symbolic.unified import unified
from tests.targets import AVX2, host_target, machine_code

Size = tuple[int, int, int]
PROBES: tuple[Size, ...] = ((11, 127, 83), (11, 131, 83), (13, 131, 89), (13, 134, 90), (13, 141, 101), (7, 162, 118))
"""Images, rows and columns, of which halves and other parts tell which is which."""
SIZES: tuple[Size, ...] = ((1, 1, 1), (2, 7, 3), (3, 4, 45))
RUNS = ((1, "llvm", SIZES), (3, AVX2, SIZES[2:]))
"""Threads, a target and sizes."""


class Sized(Protocol):
    """What says how large the result of an image is, as a window does."""

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Return its height and width."""


@dataclass(frozen=True)
class OpenKernel:
    """A kernel of inputs whose `shapes` follow from images, rows and columns; its result is what `window` makes."""

    build: Build
    shapes: Callable[[int, int, int], Sequence[tuple[int, ...]]]
    window: Sized

    def sizes(self, size: Size) -> dict[str, int]:
        """Return the size of each symbol: those of the image, and of the result where they differ."""
        images, rows, columns = size
        down, across = self.window.output(rows, columns)
        return {"b": images, "h": rows, "w": columns, "p": down, "q": across}

    @cache  # noqa: B019, as tests make few
    def func(self, lanes: int) -> tirx.PrimFunc:
        """Return the kernel with symbols."""
        inputs = [[np.zeros(shape, "float32") for shape in self.shapes(*size)] for size in PROBES]
        return unified(
            [one_kernel(self.build, each, lanes) for each in inputs], Fit([self.sizes(size) for size in PROBES])
        )


def check_sizes(
    kernel: OpenKernel, template: str, threads: int, target: str, sizes: Sequence[Size], l2_bytes: int | None = None
) -> None:
    """Compare the loops for images of any size with those of each, on a machine with another L2 where that is given."""
    machine = context.resolve(target).compiler.machine
    machine = machine if l2_bytes is None else replace(machine, l2_bytes=l2_bytes)
    func = kernel.func(machine.vector_lanes)
    assert len(symbols_of(func)) > 1
    made = schedule(func, machine, threads)
    assert made.template == template, made.note
    bound = {f"s{place}": bind(func, kernel.sizes(size)) for place, size in enumerate(sizes)}
    static = {name: schedule(each, machine, threads) for name, each in bound.items()}
    library = _library({"open": made.func}, host_target(target))
    # What is compared with has tests of its own, of what LLVM makes of it too.
    expected = _library({name: each.func for name, each in static.items()}, unoptimised(context.resolve().target))
    for name, each in bound.items():
        want = _results(expected[name], each, static[name])
        got = _results(library["open"], each, made)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4, err_msg=str(each.params))


def _results(run: Callable[..., None], func: tirx.PrimFunc, made: Scheduled) -> list[np.ndarray]:
    """Return what a kernel, whose parameters are those of `func`, writes to them."""
    written = {store.buffer for store in find(func.body, tirx.BufferStore)}
    shapes = [tuple(int(dim) for dim in param.ty.shape) for param in func.params]
    given = [
        np.full(shape, 7, "float32") if param in written else normal(shape, place)
        for place, (param, shape) in enumerate(zip(func.params, shapes, strict=True))
    ]
    for place in made.repack.parameters if made.repack else ():
        given[place] = made.repack.pack(given[place])
    tensors = [tvm.runtime.tensor(each) for each in given]
    run(*tensors)
    return [tensor.numpy() for param, tensor in zip(func.params, tensors, strict=True) if param in written]


def _library(kernels: Mapping[str, tirx.PrimFunc], target: tvm.target.Target) -> tvm.runtime.Module:
    named = {name: func.with_attr("global_symbol", name) for name, func in kernels.items()}
    return machine_code(tvm.IRModule(named), target)
