"""Kernels that are equal but for names have one structure, and points of a space have axes of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tvm
from tvm import relax, tirx
from tvm.script import from_source
from tvm.script import tirx as T

from backends.cpu.kernels.priority import TEMPLATES
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.cpu.schedule import read_choices
from fusion.json_graph import references
from tests.backends.cpu.kernels.anchored import always, groups, normal
from tests.passes.modules import Build
from tests.tables.kernels import kernel_of
from tuning.structure import structure_of

MACHINE = Machine(16, 32, 32 << 10, 1 << 20, 16 << 20, dot_bytes=True)


def parsed(source: str) -> tirx.PrimFunc:
    """Return the kernel that a text is of."""
    return from_source(source, {"T": T})


def kernel(shift: float = 1.0, rows: int = 4, name: str = "p0", symbol: str = "main", block: str = "add") -> Any:
    """Return a kernel with these names."""
    source = f"""
@T.prim_func(s_tir=True)
def {symbol}({name}: T.Buffer(({rows}, 8), "float32"), result: T.Buffer(({rows}, 8), "float32")):
    for i{name}, j in T.grid({rows}, 8):
        with T.sblock("{block}"):
            a, b = T.axis.remap("SS", [i{name}, j])
            result[a, b] = {name}[a, b] + T.float32({shift})
"""
    return parsed(source)


def test_names_do_not_count() -> None:
    first = structure_of(kernel())
    assert structure_of(kernel(name="weights", symbol="fused_7", block="T_add_3")) == first
    assert len({first, structure_of(kernel(shift=2.0)), structure_of(kernel(rows=5))}) == 3


def test_which_variable_is_read_counts() -> None:
    def two(read: str) -> Any:
        return parsed(f"""
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32"), z: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.sblock("b"):
            a, b = T.axis.remap("SS", [i, j])
            z[a, b] = {read}
""")

    reads = ["x[a, b] - y[a, b]", "y[a, b] - x[a, b]", "x[b, a] - y[a, b]", "x[a, b] - x[a, b]"]
    assert len({structure_of(two(read)) for read in reads}) == len(reads)


def conv(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    weight = relax.const(normal((32, 32, 3, 3), 1))
    return relax.op.nn.relu(b.emit(relax.op.nn.conv2d(x, weight, 1, 1, data_layout="NHWC")))


def test_layers_of_other_models_are_the_same_task() -> None:
    """With other weights, behind and before other operators."""

    def other(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        before = b.emit(relax.op.nn.max_pool2d(x, (3, 3), padding=(1, 1), layout="NHWC"))
        weight = relax.const(normal((32, 32, 3, 3), 7))
        made = b.emit(relax.op.nn.relu(b.emit(relax.op.nn.conv2d(before, weight, 1, 1, data_layout="NHWC"))))
        return relax.op.nn.softmax(b.emit(relax.op.permute_dims(made, [0, 3, 1, 2])), -1)

    def structures(build: Build) -> set[str]:
        return {structure_of(func) for func in groups(build, [normal((1, 12, 12, 32), 0)], always)}

    assert len(structures(conv) & structures(other)) == 1
    assert len(structures(other)) > 1


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_points_have_axes_of_their_own(template: Template[Any, Any]) -> None:
    func, _ = kernel_of(template)
    choices = read_choices(func, MACHINE, 2)
    assert choices is not None
    assert choices.family == template.name
    points = list(choices.space)
    axes = [tuple(sorted(point.axes().items())) for point in points]
    assert len(set(axes)) == len(points)
    assert all(type(value) is int for found in axes for _, value in found)
    assert choices.space.find(choices.space.default.axes()) == choices.space.default
    assert choices.space.find({**choices.space.default.axes(), "more": 1}) is None


def test_nodes_stand_behind_those_that_they_refer_to() -> None:
    """`structure_of` goes through them once."""
    for template in TEMPLATES:
        nodes = json.loads(tvm.ir.save_json(kernel_of(template)[0]))["nodes"]
        assert all(place < number for number, node in enumerate(nodes) for _, place in references(node))
