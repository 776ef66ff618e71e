"""How much LLVM optimises the code of a kernel: what its writer says, as an attribute of the function.

Kernels that a call tells their sizes write their loops out as they are to run. LLVM at its highest level looks for
loops to unroll and conditions to move out of them, in 1.5 times as long as at its lowest. Of 200 such kernels of eight
models products take 0.98 of their time without that, attention 0.99 and stages that ask for no border 1.0; loops that
ask what is outside of an image take up to 1.9 times as long, and windows 1.02 to 1.06 (two vCPUs of Zen 3).
"""

from __future__ import annotations

import tvm
from tvm import tirx

from backends.tensorir.inlining import is_branch
from fusion.structural import contains

_LIGHT, _FULL = 1, 3
"""LLVM's levels."""
_LEVEL = "fusion.llvm_level"
_OPTION = "opt-level"
"""Of a target."""


def with_level(func: tirx.PrimFunc, is_written_out: bool) -> tirx.PrimFunc:
    """Return `func` with the level of its code, given whether its loops are as they are to run but for conditions."""
    if not is_written_out or contains(func.body, (tvm.ir.Call, is_branch)):
        return func
    return func.with_attr(_LEVEL, _LIGHT)


def target_for(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.target.Target:
    """Return `target` with the level of the functions of `mod`, the highest of them where they differ, unless it has a
    lower one."""
    level = max((_level_of(func) for func in mod.functions.values()), default=_FULL)
    options = {key: value for key, value in target.export().items() if key != "tag"}
    if level >= options.get(_OPTION, _FULL):
        return target
    return tvm.target.Target({**options, _OPTION: level})


def _level_of(func: tvm.ir.BaseFunc) -> int:
    return int(func.attrs[_LEVEL]) if func.attrs and _LEVEL in func.attrs else _FULL
