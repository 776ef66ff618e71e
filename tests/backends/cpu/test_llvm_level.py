"""LLVM looks for better loops only where a kernel's are not written out, or ask conditions."""

from __future__ import annotations

import pytest
import tvm
from tvm import te, tirx

from backends.cpu.codegen.generate import generate_module
from backends.cpu.llvm_level import target_for, with_level
from fusion import context

_HIGHEST = 3
_SHORT = 8
"""Numbers of a row."""


def _copy(*, asks: bool = False) -> tirx.PrimFunc:
    """Return a kernel that copies rows of 8 numbers, as many as it is told; 0 in place of the first of each if it
    `asks` for a border."""
    rows, row, step = (tirx.Var(name, "int64") for name in ("rows", "row", "step"))
    x = te.placeholder((rows, _SHORT), "float32", "x")
    source = te.create_prim_func([x, te.compute(x.shape, lambda y, i: x[y, i], "made")])
    value = tirx.BufferLoad(source.params[0], [row, step])
    value = tirx.if_then_else(step > 0, value, tirx.const(0.0, "float32")) if asks else value
    store = tirx.BufferStore(source.params[1], value, [row, step])
    inner = tirx.For(step, tirx.const(0, "int64"), tirx.const(_SHORT, "int64"), tirx.ForKind.SERIAL, store)
    loop = tirx.For(row, tirx.const(0, "int64"), rows, tirx.ForKind.SERIAL, inner)
    return source.with_body(loop).with_attr("global_symbol", "copy")


def _level(*funcs: tirx.PrimFunc, target: tvm.target.Target | None = None) -> int:
    mod = tvm.IRModule({f"kernel{number}": func for number, func in enumerate(funcs)})
    level: int = target_for(mod, target or context.resolve("llvm").target).export().get("opt-level", _HIGHEST)
    return level


def test_loops_that_are_written_out_and_ask_nothing_are_optimised_least() -> None:
    assert _level(with_level(_copy(), is_written_out=True)) == 1
    assert _level(with_level(_copy(), is_written_out=False)) == _HIGHEST
    assert _level(with_level(_copy(asks=True), is_written_out=True)) == _HIGHEST


def test_functions_together_are_optimised_as_the_one_that_needs_most() -> None:
    light = with_level(_copy(), is_written_out=True)
    assert _level(light, light) == 1
    assert _level(light, _copy()) == _HIGHEST
    assert _level() == _HIGHEST


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_target_keeps_a_lower_level(level: int) -> None:
    target = tvm.target.Target({**context.resolve("llvm").target.export(), "opt-level": level})
    assert _level(with_level(_copy(), is_written_out=True), target=target) == min(level, 1)
    assert _level(_copy(), target=target) == level


def test_machine_code_is_of_that_level() -> None:
    target = context.resolve("llvm").target
    light, full, again = (
        generate_module(tvm.IRModule({"copy": with_level(_copy(), is_written_out=flag)}), target).inspect_source("ll")
        for flag in (True, False, False)
    )
    assert full == again
    assert light != full, "LLVM writes a short loop out, if it is to look for such"
