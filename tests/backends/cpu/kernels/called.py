"""Kernels with symbols as machine code that tests call."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx

from backends.cpu.schedule import schedule
from fusion import context
from tests.targets import code_target, machine_code


class Called:
    """A kernel in machine code.

    Attributes:
        read: What it is called with: the positions of inputs, and constants.
    """

    def __init__(
        self, func: tirx.PrimFunc, read: list[int | np.ndarray], target: str = "llvm", threads: int = 1
    ) -> None:
        self.read = read
        self.made = schedule(func, context.resolve(target).compiler.machine, threads)
        module = tvm.IRModule({"k": self.made.func.with_attr("global_symbol", "k")})
        self._library = machine_code(module, code_target(context.resolve(target).target))

    def __call__(self, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        given = [arrays[each] if isinstance(each, int) else each for each in self.read]
        result = tvm.runtime.tensor(np.full(shape, 7, "float32"))
        self._library["k"](*map(tvm.runtime.tensor, given), result)
        return result.numpy()
