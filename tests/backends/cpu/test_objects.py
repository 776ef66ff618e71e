"""Object files of kernels: begun while others get their loops, written again only where they became others, and apart
from those of the functions in LLVM's own language that they call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from backends.cpu.codegen import objects
from backends.cpu.codegen.functions import apart
from backends.tensorir.emit import Nest, int64
from fusion import context
from fusion.module.linker import link_objects
from fusion.module.shared_library import load_library
from fusion.system.abandon import Abandoned, abandonable

CTX = context.resolve(threads=1)

_ADD = """
define i32 @added(i64 %count, ptr %values) {
  br label %step
step:
  %i = phi i64 [ 0, %0 ], [ %next, %step ]
  %at = getelementptr float, ptr %values, i64 %i
  %value = load float, ptr %at
  %sum = fadd float %value, 1.0
  store float %sum, ptr %at
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %step, label %done
done:
  ret i32 0
}
"""
_UNUSED = """
define i32 @unused(ptr %values) {
  ret i32 0
}
"""
SIZE = 5


def kernel(added: float) -> tirx.PrimFunc:
    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + te.const(added, "float32"))])
    return CTX.compiler.schedule(func).func.without_attr("global_symbol")


def adding(count: int, *, finished: bool = False) -> tirx.PrimFunc:
    """Return a kernel that adds 1 to the first `count` of five numbers, by a function."""
    values, nest = tirx.decl_buffer((SIZE,), "float32", "values"), Nest()
    nest.call_functions(_ADD if finished else _ADD + _UNUSED, finished=finished)
    first = tirx.address_of(tirx.BufferLoad(values, [int64(0)]))
    nest.add(tirx.Evaluate(tirx.call_extern("int32", "added", int64(count), first)))
    return tirx.PrimFunc([values], nest.finish())


def sums(made: tvm.runtime.Module, name: str) -> list[float]:
    """Return what a kernel makes of zeros."""
    values = tvm.runtime.tensor(np.zeros(SIZE, "float32"))
    made[name](values)
    return [float(value) for value in values.numpy()]


def module(**functions: tirx.PrimFunc) -> tvm.IRModule:
    """Return a module as `build` has it before code is made of it."""
    return tvm.relax.transform.AttachGlobalSymbol()(tvm.IRModule(functions))


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that code is made of."""
    found: list[str] = []
    original = objects.generate_module

    def count(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        found.extend(symbol.name_hint for symbol in mod.functions)
        return original(mod, target)

    monkeypatch.setattr(objects, "generate_module", count)
    return found


@contextmanager
def writer(folder: Path) -> Iterator[objects.ObjectFiles]:
    folder.mkdir()
    with CTX.compiler.object_writer(folder, None) as made:
        yield made


def test_what_was_begun_is_not_written_again(generated: list[str], tmp_path: Path) -> None:
    one, two = kernel(1.0), kernel(2.0)
    with writer(tmp_path / "begun") as files:
        files.begin("one", one)
        code = [path.read_bytes() for path in files.finish(module(one=one, two=two))]
    assert sorted(generated) == ["one", "two"]
    with writer(tmp_path / "not") as files:
        assert [path.read_bytes() for path in files.finish(module(one=one, two=two))] == code


def test_what_became_another_is_written_anew(generated: list[str], tmp_path: Path) -> None:
    with writer(tmp_path / "begun") as files:
        files.begin("one", kernel(1.0))
        files.begin("gone", kernel(3.0))
        code = [path.read_bytes() for path in files.finish(module(one=kernel(2.0)))]
        assert generated.count("one") in (1, 2)  # the first may be cancelled before a thread has it
        again = [path.read_bytes() for path in files.finish(module(one=kernel(2.0)))]
    assert code == again
    with writer(tmp_path / "not") as files:
        assert [path.read_bytes() for path in files.finish(module(one=kernel(2.0)))] == code


def test_what_is_begun_again_is_written_once_and_what_it_replaces_is_cancelled(
    generated: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, two = kernel(1.0), kernel(2.0)
    monkeypatch.setattr("fusion.system.map_in_threads.allowed_cpus", lambda: 1)  # no thread has any before `finish`
    with writer(tmp_path / "files") as files:
        for each in (two, one, one):
            files.begin("one", each)
        files.finish(module(one=one))
    assert generated == ["one"]


def test_code_that_nobody_needs_may_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original = objects.generate_module

    def fail(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        if any(symbol.name_hint == "odd" for symbol in mod.functions):
            raise tvm.error.InternalError("LLVM cannot select")
        return original(mod, target)

    monkeypatch.setattr(objects, "generate_module", fail)
    one = kernel(1.0)
    with writer(tmp_path / "files") as files:
        files.begin("odd", one)
        assert files.finish(module(one=one))
        files.begin("odd", one)
        with pytest.raises(tvm.error.InternalError, match="cannot select"):
            files.finish(module(odd=one))


def test_an_abandoned_compilation_writes_nothing(
    generated: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = kernel(1.0)
    with abandonable(), writer(tmp_path / "files") as files:
        monkeypatch.setattr("fusion.system.abandon._ending.is_set", lambda: True)
        files.begin("one", one)
        with pytest.raises(Abandoned):
            files.finish(module(one=one))
    assert not generated


def test_several_kernels_call_the_code_of_one_function(generated: list[str], tmp_path: Path) -> None:
    kernels = module(two=adding(2), three=adding(3))
    with writer(tmp_path / "files") as files:
        link_objects(files.finish(kernels), tmp_path / "kernels.so")
        made = load_library(tmp_path / "kernels.so", "kernels").functions
    assert sorted(generated) == ["added", "three", "two"]
    assert (sums(made, "two"), sums(made, "three")) == ([1, 1, 0, 0, 0], [1, 1, 1, 0, 0])


def test_finished_functions_are_written_as_they_are(generated: list[str], tmp_path: Path) -> None:
    kernels = module(two=adding(2, finished=True), three=adding(3, finished=True))
    with writer(tmp_path / "files") as files:
        link_objects(files.finish(kernels), tmp_path / "kernels.so")
        made = load_library(tmp_path / "kernels.so", "kernels").functions
    assert sorted(generated) == ["three", "two"]
    assert (sums(made, "two"), sums(made, "three")) == ([1, 1, 0, 0, 0], [1, 1, 1, 0, 0])


def test_code_of_functions_that_are_no_longer_called_is_left_out(generated: list[str], tmp_path: Path) -> None:
    plain = apart(adding(1))[0].with_body(tirx.Evaluate(0))
    with writer(tmp_path / "begun") as files:
        files.begin("one", adding(1))
        with_function = len(files.finish(module(one=adding(1))))
        files.begin("one", adding(1))
        assert len(files.finish(module(one=plain))) == with_function - 1


def test_without_a_linker_functions_are_in_line() -> None:
    made = CTX.compiler.generate_module(module(two=adding(2), three=adding(3, finished=True)))
    assert (sums(made, "two"), sums(made, "three")) == ([1, 1, 0, 0, 0], [1, 1, 1, 0, 0])
