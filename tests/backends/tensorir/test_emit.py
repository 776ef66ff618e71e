"""The one builder of loop nests: what its loops leave, by their number of iterations."""

from __future__ import annotations

import ast
from pathlib import Path

from tvm import tirx
from tvm.tirx import ForKind

from backends import tensorir
from backends.cpu import kernels
from backends.tensorir.emit import Nest, int64


def kinds(nest: Nest) -> list[str]:
    """Return what the statements are, in order."""
    body = nest.finish()
    return [type(each).__name__ for each in (body.seq if isinstance(body, tirx.SeqStmt) else [body])]


def test_a_loop_of_one_iteration_is_its_body() -> None:
    nest, buffer = Nest(), tirx.decl_buffer((4,), "float32", "x")
    with nest.loop("i", 1) as i:
        nest.store(buffer, [i], tirx.const(0.0, "float32"))
    assert int(i) == 0
    assert kinds(nest) == ["BufferStore"]


def test_a_run_of_one_iteration_keeps_its_variable() -> None:
    nest, buffer = Nest(), tirx.decl_buffer((4,), "float32", "x")
    with nest.run("i", 1, ForKind.VECTORIZED, begin=3) as i:
        nest.store(buffer, [i], tirx.const(0.0, "float32"))
    assert isinstance(i, tirx.Var)
    assert kinds(nest) == ["Bind", "BufferStore"]


def test_a_run_begins_where_it_is_told() -> None:
    nest, buffer = Nest(), tirx.decl_buffer((8,), "float32", "x")
    with nest.run("i", 4, ForKind.UNROLLED, begin=int64(3)) as i:
        nest.store(buffer, [i], tirx.const(0.0, "float32"))
    loop = nest.finish()
    assert (int(loop.min), int(loop.extent), loop.kind) == (3, 4, ForKind.UNROLLED)


def test_what_is_apart_is_where_it_is_put() -> None:
    nest, buffer = Nest(), tirx.decl_buffer((8,), "float32", "x")
    with nest.apart() as body:
        nest.store(buffer, [int64(1)], tirx.const(1.0, "float32"))
    nest.store(buffer, [int64(0)], tirx.const(0.0, "float32"))
    nest.add_when(tirx.const(True, "bool"), body)
    assert kinds(nest) == ["BufferStore", "IfThenElse"]


def test_there_is_one_builder() -> None:
    """Code generation changes loops that are there; the kernels and what they are made of make none otherwise."""
    found = set()
    for folder in (tensorir.__path__[0], kernels.__path__[0]):
        for path in Path(folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tirx.For", "tirx.IfThenElse"):
                    found.add(path)
    assert [path.name for path in found] == ["emit.py"]
