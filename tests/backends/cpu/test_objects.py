"""Object files of kernels: begun while others get their loops, and written again only where they became others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tvm
from tvm import te, tirx

from backends.cpu.codegen import objects
from fusion import context
from fusion.system.abandon import Abandoned, abandonable

CTX = context.resolve(threads=1)


def kernel(added: float) -> tirx.PrimFunc:
    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + te.const(added, "float32"))])
    return CTX.compiler.schedule(func).func.without_attr("global_symbol")


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
